"""Reductions of outputs that the user asks for while compiling: callers who would reduce a map at once get the numbers
that they want of it, and the map itself is never whole in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

import numpy as np

from .ir import DTYPES, GraphError
from .lower.reduction import POSITIONS_MAX
from .model import Constant, Model, ModelGraph, ModelNode
from .ports import Port
from .sources import ArraySource, ModelSource

_HOW = "write OUT=argmax:AXIS or OUT=threshold:X"


class Reduction(NamedTuple):
    """Reduction of an output."""

    axis: int | None
    """Axis whose largest element's position the output is; None: whether elements are above the threshold."""
    threshold: float = 0.0


def parse_reduction(text: str) -> Reduction:
    """Read ``argmax:AXIS`` or ``threshold:X``. Raises ValueError."""
    kind, _, given = text.partition(":")
    try:
        if kind == "argmax":
            return Reduction(int(given))
        number = float(given)
        if kind == "threshold" and isfinite(number):
            return Reduction(None, number)
    except ValueError:
        pass
    raise ValueError(f"not a reduction of an output: {text!r}; {_HOW}")


def parse_named(text: str) -> tuple[str, str]:
    """Read ``OUT=REDUCTION``; return both. Raises ValueError."""
    name, equals, reduction = text.rpartition("=")
    if not equals or not name:
        raise ValueError(f"not a reduction of an output: {text!r}; {_HOW}")
    parse_reduction(reduction)
    return name, reduction


def check_reductions(model: Model, reductions: Mapping[str, Reduction]) -> None:
    """Raise GraphError, one line, if the model has no such outputs, or if they cannot be reduced so."""
    for name, reduction in reductions.items():
        _check(model.graph, name, reduction)


def reduce_outputs(model: Model, reductions: Mapping[str, Reduction]) -> None:
    """Let outputs of the model, which are checked, be their reductions. They keep their names."""
    names = [port.name for port in model.graph.outputs]
    for name, reduction in reductions.items():
        _reduce(model, names.index(name), reduction)


def _check(graph: ModelGraph, name: str, reduction: Reduction) -> None:
    names = [port.name for port in graph.outputs]
    if name not in names:
        raise GraphError(f"no output {name!r} to reduce: the model's outputs are {', '.join(names)}")
    if name in (port.name for port in graph.inputs):
        raise GraphError(f"output {name!r} cannot be reduced: it is an input of the model, too")
    port = graph.outputs[names.index(name)]
    if port.dtype is None or not np.issubdtype(DTYPES[port.dtype], np.floating):
        found = "of no known type" if port.dtype is None else port.dtype
        raise GraphError(f"output {name!r} cannot be reduced: it is {found}, and only floats are")
    if not np.isfinite(_limit(port, reduction)):
        raise GraphError(f"output {name!r} cannot be reduced: {port.dtype} does not reach {reduction.threshold:g}")
    axis, dims = reduction.axis, port.dims
    if axis is not None and dims is not None and not -len(dims) <= axis < len(dims):
        raise GraphError(f"output {name!r} cannot be reduced over axis {axis}: it has {len(dims)} dimensions")


def _limit(port: Port, reduction: Reduction) -> np.ndarray:
    """Return the threshold as a number of the output's type."""
    with np.errstate(over="ignore"):
        return np.array(reduction.threshold).astype(DTYPES[str(port.dtype)])


def _reduce(model: Model, number: int, reduction: Reduction) -> None:
    graph = model.graph
    port = graph.outputs[number]
    whole = _unused(graph, f"{port.name}:whole")
    _rename(graph, port.name, whole)
    if reduction.axis is None:
        index = 1 + max((source.index for source in _sources(graph)), default=-1)
        source = ModelSource(index, ArraySource(_limit(port, reduction)))
        constant = Constant(_unused(graph, f"{port.name}:threshold"), (), str(port.dtype), source)
        graph.constants[constant.name] = constant
        graph.nodes.append(ModelNode("Greater", port.name, [whole, constant.name], [port.name]))
        graph.outputs[number] = port._replace(dtype="bool")
    else:
        graph.outputs[number], operator = _positions(port, reduction.axis)
        attrs = {"axis": reduction.axis} | ({"keepdims": 0} if operator == "ArgMax" else {})
        graph.nodes.append(ModelNode(operator, port.name, [whole], [port.name], dict(attrs)))


def _positions(port: Port, axis: int) -> tuple[Port, str]:
    """Return the output that numbers the positions on an axis, without that axis, and the operator that makes it."""
    if port.dims is None:
        return port._replace(dtype="i64"), "ArgMax"
    at = axis % len(port.dims)
    size = port.dims[at]
    is_few = isinstance(size, int) and size <= POSITIONS_MAX
    dims = port.dims[:at] + port.dims[at + 1 :]
    return port._replace(dtype="u8" if is_few else "i64", dims=dims), "ArgMax.u8" if is_few else "ArgMax"


def _rename(graph: ModelGraph, before: str, after: str) -> None:
    """Give a value another name, also where nested graphs read it."""
    if before in graph.constants:
        constant = graph.constants.pop(before)
        constant.name = after
        graph.constants[after] = constant
    for node in graph.nodes:
        node.input = [after if name == before else name for name in node.input]
        node.output = [after if name == before else name for name in node.output]
        for inner in node.graphs:
            if before in inner.captures():
                _rename(inner, before, after)
                inner.outputs = [p._replace(name=after) if p.name == before else p for p in inner.outputs]


def _unused(graph: ModelGraph, name: str) -> str:
    """Return a name like this one that no value has."""
    taken: set[str] = set()
    for inner in graph.walk():
        taken.update(inner.constants, (port.name for port in inner.inputs))
        taken.update(name for node in inner.nodes for name in (*node.input, *node.output))
    while name in taken:
        name += "'"
    return name


def _sources(graph: ModelGraph) -> list[ModelSource]:
    """Return the sources of all constants, those of attributes, too."""
    attributes = (v for inner in graph.walk() for node in inner.nodes for v in node.attrs.values())
    constants = [v for v in attributes if isinstance(v, Constant)]
    constants += [constant for inner in graph.walk() for constant in inner.constants.values()]
    return [constant.source for constant in constants if isinstance(constant.source, ModelSource)]
