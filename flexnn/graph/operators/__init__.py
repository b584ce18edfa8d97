"""The internal operators, one record each, a module for each family; and what one can ask of a node.

``check`` and ``infer`` are what the artifact's reader trusts a file by, so they accept nothing that is malformed;
``encode`` turns a node into the fields of its operator's struct (kernels/include/flexnn/params.h). Attributes say what
a node means and hold no shapes, except where a shape is the meaning (``expand`` of copy, ``sizes`` of resize).

Adding an operator: its record in a family's ``OPERATORS``. Iterating over ``OPERATORS`` fails where the records and the
operators of the C core are not the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from flexnn import _core

from ..attributes import INT_MAX, node_error
from ..ir import Graph, Node, Shape
from . import (
    convolution,
    elementwise,
    linear,
    movement,
    normalisation,
    pointwise,
    reduction,
    window,
)
from .pointwise import computes
from .record import OUTPUT, Operator, Values
from .reduction import reduces

__all__ = [
    "OPERATORS",
    "OUTPUT",
    "Operator",
    "check",
    "collect",
    "computes",
    "encode",
    "fits",
    "has_panels",
    "infer",
    "infer_shapes",
    "reduces",
]

FAMILIES = (
    convolution,
    elementwise,
    linear,
    movement,
    normalisation,
    pointwise,
    reduction,
    window,
)
"""Families that most models need. The others are imported when one of their operators is met: a session pays for what
it imports.
"""


def collect(records: Iterable[Operator], core: Sequence[str] = _core.OPS) -> dict[str, Operator]:
    """The records by name, in the order of the C core's operators.

    Raises TypeError, naming every operator, unless each of ``core`` has exactly one record, and each record is of one,
    with as many inputs and with panels where the core's has them.
    """
    found: dict[str, Operator] = {}
    wrong = []
    for record in records:
        if record.name in found:
            wrong.append(f"operator {record.name}: two records")
        elif record.name not in core:
            wrong.append(f"operator {record.name}: not in FX_OPS (kernels/include/flexnn/params.h)")
        elif record.has_panels != ("panels" in _core.op_traits(record.name)):
            wrong.append(f"operator {record.name}: has_panels {record.has_panels}, unlike its driver")
        found[record.name] = record
    wrong += [f"operator {name}: no record in flexnn/graph/operators" for name in core if name not in found]
    if wrong:
        raise TypeError("; ".join(wrong))
    return {name: found[name] for name in core}


class _Records(Mapping[str, Operator]):
    """Records by name, in the order of the C core's operators."""

    def __init__(self) -> None:
        self._found = {record.name: record for family in FAMILIES for record in family.OPERATORS}
        self._is_whole = False

    def __getitem__(self, name: str) -> Operator:
        if name not in self._found and name in _core.OPS:
            self._load()
        found: Operator = self._found[name]
        return found

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._found)

    def __len__(self) -> int:
        return len(_core.OPS)

    def _load(self) -> None:
        if self._is_whole:
            return
        from . import attention, coupling, fourier, half, indexing, noise, quantised, recurrent, selection, trees

        rare = attention, coupling, fourier, half, indexing, noise, quantised, recurrent, selection, trees
        self._found = collect(record for family in (*FAMILIES, *rare) for record in family.OPERATORS)
        self._is_whole = True


OPERATORS: Mapping[str, Operator] = _Records()
"""The record of each internal operator."""


def check(node: Node) -> None:
    """Raise GraphError unless operator, attributes and numbers of inputs and outputs are legal."""
    record = OPERATORS.get(node.op)
    if record is None:
        raise node_error(node, "unknown operator")
    if node.attrs.keys() != record.attrs.keys():
        raise node_error(node, f"attributes {sorted(node.attrs)}, expected {sorted(record.attrs)}")
    for name, spec in record.attrs.items():
        if not spec.accepts(node.attrs[name]):
            raise node_error(node, f"attribute {name} = {str(node.attrs[name])[:60]} is out of range")
    low, high = record.inputs
    if not low <= len(node.inputs) <= high or len(node.outputs) != 1:
        found = f"{len(node.inputs)} inputs and {len(node.outputs)} outputs"
        raise node_error(node, f"{found}, expected {low} to {high} and 1")


def infer(graph: Graph, node: Node) -> list[tuple[Shape, str]]:
    """Return shape and dtype of each output. Raises GraphError where inputs and attributes do not fit."""
    inputs = [graph.tensors[i] for i in node.inputs]
    return infer_shapes(node, [t.shape for t in inputs], [t.dtype for t in inputs])


def infer_shapes(node: Node, shapes: list[Shape], dtypes: list[str], least: int = 1) -> list[tuple[Shape, str]]:
    """Infer outputs from shapes and dtypes alone, as ``infer`` does. ``least``: of each dimension."""
    record = OPERATORS[node.op]
    if any(dtype not in record.dtypes for dtype in dtypes):
        raise node_error(node, f"computes float32 only, not {', '.join(dtypes)}")
    shape, dtype = record.infer(node, shapes, dtypes)
    if any(not least <= d <= INT_MAX for d in shape):
        raise node_error(node, f"inputs {', '.join(map(str, shapes))} make an output of shape {shape}")
    return [(shape, dtype)]


def encode(graph: Graph, node: Node) -> Values:
    """Return every field of the operator's struct, for a node that ``check`` and ``infer`` accept.

    Raises GraphError where the operator does not take an operand's strides, or a number does not fit into 32 bits.
    """
    tensors = [graph.tensors[i] for i in node.inputs] + [graph.tensors[node.outputs[0]]]
    for i, tensor in enumerate(tensors):
        operand = OUTPUT if i == len(node.inputs) else i
        if not fits(node.op, operand, tensor.shape, tensor.strides):
            raise node_error(node, f"does not take tensor {tensor.name!r} with strides {tensor.strides}")
    values = OPERATORS[node.op].encode(node, tensors[:-1], tensors[-1])
    for name, field in values.items():
        value = getattr(field, "value", field)  # of a size, without making a condition of it
        if type(value) is int and not -INT_MAX - 1 <= value <= INT_MAX:
            raise node_error(node, f"{name} = {value} is too large")
    return values


def fits(op: str, operand: int, shape: Shape, strides: Shape) -> bool:
    """Return whether ``op`` takes an operand (an input's number, or OUTPUT) with these strides."""
    return OPERATORS[op].strided[operand](shape, strides)


def has_panels(node: Node) -> bool:
    """Return whether a node, which may be a view, takes packed panels of floats, and an activation behind its sums."""
    record = OPERATORS.get(node.op)
    return record is not None and record.has_panels and "act" in record.attrs
