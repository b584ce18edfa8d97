"""Graphs: ONNX models in, passes over them, and what is left for the artifact and the planner.

Importing this package imports no onnx; ``load_onnx`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .stated import GraphError

if TYPE_CHECKING:
    from .beside import Beside
    from .coverage import Support
    from .ir import Graph
    from .model import Model

__all__ = ["GraphError", "bind_shapes", "load_model", "load_onnx", "support", "supported"]


def load_model(path: str, *, follow_links: bool = False, beside: Beside | None = None) -> Model:
    """The ONNX model at ``path``, which a process ``beside`` may have read; its large constants stay in the file, or in
    files beside it, which may be links only with ``follow_links``. Raises OSError or GraphError, one line.
    """
    from .importer import import_onnx
    from .onnx_file import open_onnx

    found = None if beside is None else beside.take()
    return import_onnx(*found) if found is not None else import_onnx(open_onnx(path, follow_links=follow_links))


def bind_shapes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give inputs the shapes in ``shapes``, by name; the others keep theirs. Outputs have their dimensions where these
    have the same names. Raises GraphError.
    """
    from .bind import bound_port
    from .ports import renamed

    unknown = set(shapes) - {port.name for port in model.graph.inputs}
    if unknown:
        inputs = ", ".join(port.name for port in model.graph.inputs)
        raise GraphError(f"no input {sorted(unknown)[0]!r}: the model's inputs are {inputs}")
    sizes: dict[str, int] = {}
    for port in model.graph.inputs:
        given = zip(port.dims or (), shapes.get(port.name, ()), strict=False)
        sizes.update((dim, size) for dim, size in given if isinstance(dim, str))
    model.graph.inputs = [bound_port(p, shapes[p.name]) if p.name in shapes else p for p in model.graph.inputs]
    model.graph.outputs = [renamed(port, sizes) for port in model.graph.outputs]


def load_onnx(path: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The graph of the ONNX model at ``path``, after all passes; its weights stay in the file until they are packed.

    ``shapes`` binds the dimensions of inputs by name. Raises OSError, or GraphError with one line that names operator,
    node and attribute of what is not supported.
    """
    import numpy as np

    from .bind import bind_model
    from .passes import run_passes

    model = load_model(path)
    bind_shapes(model, shapes or {})
    with np.errstate(all="ignore"):  # constants may be infinite or no numbers: they are the model's
        return run_passes(bind_model(model))


def support(names: Iterable[str], domain: str = "") -> dict[str, Support]:
    """Return how each ONNX operator of ``domain`` is supported, by name and in the order given (graph/coverage.py)."""
    from . import coverage

    return coverage.support(names, domain)


def supported(domain: str = "") -> dict[str, Support]:
    """Return the supported ONNX operators of ``domain`` in alphabetical order, and how (graph/coverage.py)."""
    from . import coverage

    return coverage.supported(domain)
