"""Graphs: ONNX models in, passes over them, and what is left for the artifact and the planner.

Importing this package imports no onnx; ``load_onnx`` does.
"""

from __future__ import annotations

from collections.abc import Mapping

from .ir import Graph, GraphError

__all__ = ["Graph", "GraphError", "load_onnx"]


def load_onnx(path: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The graph of the ONNX model at ``path``, after all passes; its weights stay in the file until they are packed.

    ``shapes`` binds the dimensions of inputs by name. Raises OSError, or GraphError with one line that names operator,
    node and attribute of what is not supported.
    """
    import numpy as np

    from .bind import bind_model
    from .importer import import_onnx
    from .onnx_file import open_onnx
    from .passes import run_passes

    with np.errstate(all="ignore"):  # constants may be infinite or no numbers: they are the model's
        return run_passes(bind_model(import_onnx(open_onnx(path)), shapes or {}))
