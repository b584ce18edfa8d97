"""Outputs that the user keeps when compiling: callers seldom want all that a model returns, and what only the others
need is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from .ir import GraphError
from .model import Model


def keep_outputs(model: Model, names: Sequence[str]) -> None:
    """Leave a model the outputs of these names, in its own order. Raises GraphError, one line, if it has no such
    outputs, ValueError if no name is given.
    """
    if isinstance(names, str) or not names:
        raise ValueError("keep: a list of one or more names of outputs")
    outputs = model.graph.outputs
    known = [port.name for port in outputs]
    for name in names:
        if name not in known:
            raise GraphError(f"no output {name!r} to keep: the model's outputs are {', '.join(known)}")
    outputs[:] = [port for port in outputs if port.name in names]
