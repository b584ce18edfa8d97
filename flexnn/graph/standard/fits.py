"""Operands that fit together: axes that exist, dimensions that agree, as far as shapes are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod

import onnx
from onnx import AttributeProto

from flexnn.quick_dataclass import quick_dataclass

from ..stated import GraphError
from .names import node_error

Dims = tuple[int | None, ...]
"""A shape; None: a dimension that is not known."""

_REDUCE = {
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
}  # fmt: skip
_AXIS = {
    "ArgMax", "ArgMin", "Compress", "Concat", "Gather", "GatherElements", "Hardmax", "LayerNormalization", "LogSoftmax",
    "LpNormalization", "ScatterElements", "Softmax", "Split", "TopK", "Unique",
}  # fmt: skip
"""Operators with an attribute ``axis`` of their first input."""
_AXES_INPUT = {"CumSum": 1, "Squeeze": 1, "Unsqueeze": 1, "Slice": 3, **dict.fromkeys(_REDUCE, 1)}
"""Which input states axes, where no attribute does."""
_RECURRENT = {"GRU": 3, "LSTM": 4, "RNN": 1}
"""Gates of a recurrent layer."""
_RANKS: dict[str, dict[int, int]] = {
    "BatchNormalization": {1: 1, 2: 1, 3: 1, 4: 1},
    "ConstantOfShape": {0: 1},
    "DepthToSpace": {0: 4},
    "Expand": {1: 1},
    "Gemm": {0: 2, 1: 2},
    "InstanceNormalization": {1: 1, 2: 1},
    "NonMaxSuppression": {0: 3, 1: 3},
    "Reshape": {1: 1},
    "SpaceToDepth": {0: 4},
    "Tile": {1: 1},
    **{op: {0: 3, 1: 3, 2: 3, 3: 2, 4: 1, 5: 3, 6: 3} for op in _RECURRENT},
}
"""Numbers of dimensions that inputs must have."""
BROADCAST = {
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod",
    "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
}  # fmt: skip
"""Operators whose operands broadcast; from opset 7 on."""
WINDOWED = ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool")
"""Operators of a window over the last dimensions."""


@quick_dataclass(frozen=True, slots=True)
class Operands:
    """A node that fits its schema, with what is known of its inputs."""

    node: onnx.NodeProto
    attributes: dict[str, AttributeProto]
    dims: Sequence[Dims | None]
    ints: Sequence[list[int] | None]
    """Numbers of inputs that are small constants of integers."""
    version: int
    """Version of the default domain."""

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return self.attributes[name].i if name in self.attributes else default

    def integers(self, name: str) -> list[int]:
        """An attribute of integers."""
        return list(self.attributes[name].ints) if name in self.attributes else []

    def shape(self, index: int) -> Dims | None:
        """Return the shape of an input; None where it is absent or not known."""
        return self.dims[index] if index < len(self.dims) else None

    def values(self, index: int) -> list[int] | None:
        """Return the numbers of an input; None where it is absent or not known."""
        return self.ints[index] if index < len(self.ints) else None

    def size(self, index: int, axis: int) -> int | None:
        """Return a dimension of an input; None where it is not known."""
        dims = self.shape(index)
        return dims[axis] if dims is not None and axis < len(dims) else None

    def axes(self) -> list[int] | None:
        """Return the axes that the node names; None where they are not known, or where it names none."""
        if "axes" in self.attributes:
            return self.integers("axes")
        return self.values(_AXES_INPUT.get(self.node.op_type, len(self.ints)))

    def error(self, message: str) -> GraphError:
        """The error that says ``message`` of the node."""
        return node_error(self.node, message)

    def agree(self, what: str, found: int | None, wanted: int | None) -> None:
        """Refuse two sizes that differ. Raises GraphError."""
        if found is not None and wanted is not None and found != wanted:
            raise self.error(f"{what}: {found}, but it must be {wanted}")


def check_fit(o: Operands) -> None:
    """Check that operands and attributes fit together. Raises GraphError."""
    op = o.node.op_type
    for i, wanted in _RANKS.get(op, {}).items():
        dims = o.shape(i)
        if dims is not None and len(dims) != wanted and not (op == "Gemm" and o.version < 7):
            raise o.error(f"input {i} {o.node.input[i]!r} has {len(dims)} dimensions; it must have {wanted}")
    if o.dims and o.dims[0] is not None:
        _check_axes(o, len(o.dims[0]))
    if op in BROADCAST and o.version >= 7:
        _check_broadcast(o)
    if op in WINDOWED and o.dims[0] is not None:
        _check_window(o, o.dims[0])
    if op in _RULES:
        _RULES[op](o)


def _check_axes(o: Operands, rank: int) -> None:
    op, axis = o.node.op_type, o.integer("axis", 0)
    if op in _AXIS and "axis" in o.attributes:
        _check_axis(o, axis, max(rank, 1))
    if op == "Flatten":
        _check_axis(o, axis, rank + (axis == rank))
    if op == "OneHot":
        _check_axis(o, o.integer("axis", -1), rank + 1)
    if op == "Transpose" and "perm" in o.attributes and len(o.integers("perm")) != rank:
        raise o.error(f"attribute perm={o.integers('perm')}, but its input has {rank} dimensions")
    axes = o.axes()
    if axes is None:
        return
    whole = rank + len(axes) if op == "Unsqueeze" else max(rank, 1)
    for each in axes:
        _check_axis(o, each, whole)
    if len({each % whole for each in axes}) != len(axes):
        raise o.error(f"axes {axes} name an axis twice")


def _check_axis(o: Operands, axis: int, rank: int) -> None:
    if not -rank <= axis < rank:
        raise o.error(f"axis {axis} is outside a tensor with {rank} dimensions")


def _check_broadcast(o: Operands) -> None:
    known = [(name, dims) for name, dims in zip(o.node.input, o.dims, strict=True) if dims is not None]
    rank = max((len(dims) for _, dims in known), default=0)
    for i in range(1, rank + 1):
        sizes = {dims[-i]: name for name, dims in known if i <= len(dims) and dims[-i] not in (1, None)}
        if len(sizes) > 1:
            text = " and ".join(f"{size} of {name!r}" for size, name in sizes.items())
            raise o.error(f"shapes do not broadcast: dimension -{i} is {text}")


def _check_window(o: Operands, x: Dims) -> None:
    op, rank = o.node.op_type, len(x)
    if rank < 3:
        raise o.error(f"input 0 {o.node.input[0]!r} has {rank} dimensions; it must have 3 or more")
    for name, each in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        count = len(o.integers(name))
        if count and count != each * (rank - 2):
            raise o.error(f"attribute {name} has {count} values; the node needs {each * (rank - 2)}")
    weight = o.shape(1)
    if "Conv" not in op or weight is None:
        return
    if len(weight) != rank:
        raise o.error(f"its weight has {len(weight)} dimensions, its input {rank}")
    group, kernel = o.integer("group", 1), o.integers("kernel_shape")
    if kernel and any(d not in (None, k) for d, k in zip(weight[2:], kernel, strict=True)):
        raise o.error(f"attribute kernel_shape={kernel}, but its weight has {list(weight[2:])}")
    outputs = weight[0]
    if op == "ConvTranspose":
        o.agree("channels of its weight", weight[0], x[1])
    else:
        o.agree(f"attribute group={group}: channels of its weight", weight[1] and weight[1] * group, x[1])
    if outputs is not None and outputs % group:
        raise o.error(f"attribute group={group} does not divide {outputs} channels of its weight")


def _check_channels(o: Operands) -> None:
    for i in range(1, len(o.dims)):
        o.agree(f"size of input {i} {o.node.input[i]!r}", o.size(i, 0), o.size(0, 1))


def _check_concat(o: Operands) -> None:
    known = [(i, dims) for i, dims in enumerate(o.dims) if dims is not None]
    if not known:
        return
    first, axis = known[0][1], o.integer("axis", 1) % max(len(known[0][1]), 1)
    for i, dims in known[1:]:
        o.agree(f"dimensions of input {i}", len(dims), len(first))
        for k, (mine, other) in enumerate(zip(dims, first, strict=True)):
            if k != axis:
                o.agree(f"dimension {k} of input {i}", mine, other)


def _check_blocks(o: Operands) -> None:
    size, is_depth = o.integer("blocksize", 1), o.node.op_type == "DepthToSpace"
    for axis, block in ((1, size * size),) if is_depth else ((2, size), (3, size)):
        if (o.size(0, axis) or 0) % block:
            raise o.error(f"attribute blocksize={size} does not divide dimension {axis} of {o.size(0, axis)}")


def _check_matmul(o: Operands) -> None:
    x, y = o.dims[0], o.dims[1]
    if x is None or y is None:
        return
    if not x or not y:
        raise o.error("an operand has no dimensions")
    o.agree("rows of input 1", y[-2] if len(y) > 1 else y[0], x[-1])


def _check_gemm(o: Operands) -> None:
    rows = o.size(1, 1 if o.integer("transB", 0) else 0)
    o.agree("rows of input 1", rows, o.size(0, 0 if o.integer("transA", 0) else 1))


def _check_pad(o: Operands) -> None:
    pads, x = o.integers("pads") or o.values(1), o.dims[0]
    if pads is None or x is None or o.shape(3) is not None or (len(o.node.input) > 3 and o.node.input[3]):
        return
    o.agree("number of pads", len(pads), 2 * len(x))
    mode = o.attributes["mode"].s if "mode" in o.attributes else b"constant"
    for i, size in enumerate(x):
        if mode == b"reflect" and size is not None and max(pads[i], pads[i + len(x)]) >= size:
            raise o.error(f"reflects {max(pads[i], pads[i + len(x)])} elements of a dimension of {size}")


def _check_reshape(o: Operands) -> None:
    target, x = o.values(1), o.dims[0]
    if target is None:
        return
    if target.count(-1) > 1 or min(target, default=0) < -1:
        raise o.error(f"its target {target} is no shape")
    if x is None or None in x or 0 in target:
        return
    size, given = prod(d for d in target if d > 0), prod(d for d in x if d is not None)
    if given % size if -1 in target else given != size:
        raise o.error(f"shape {list(x)} does not reshape to {target}")


def _check_split(o: Operands) -> None:
    sizes, x = o.integers("split") or o.values(1), o.dims[0]
    if sizes is None or not sizes or x is None:
        return
    if len(sizes) != len(o.node.output):
        raise o.error(f"has {len(o.node.output)} outputs for {len(sizes)} sizes")
    o.agree("sum of its sizes", sum(sizes), x[o.integer("axis", 0) % len(x)])


def _check_squeeze(o: Operands) -> None:
    axes, x = o.axes(), o.dims[0]
    for axis in axes or () if x is not None else ():
        o.agree(f"dimension {axis}", o.size(0, axis % len(x or ())), 1)


def _check_topk(o: Operands) -> None:
    k, x = (o.values(1) or [o.integer("k", 0)])[0], o.dims[0]
    if len(o.node.input) > 1 and o.values(1) is None:
        return
    size = x[o.integer("axis", -1) % len(x)] if x else None
    if k < 0 or (size is not None and k > size):
        raise o.error(f"takes {k} of {size if size is not None else 'its'} elements")


def _check_recurrent(o: Operands) -> None:
    both = o.attributes["direction"].s == b"bidirectional" if "direction" in o.attributes else False
    hidden = o.integer("hidden_size", 0) or o.size(2, 2)
    rows = hidden and hidden * _RECURRENT[o.node.op_type]
    steps, batch = (1, 0) if o.integer("layout", 0) else (0, 1)
    for i in (1, 2, 3):
        o.agree(f"directions of input {i}", o.size(i, 0), 2 if both else 1)
    o.agree("rows of input 1", o.size(1, 1), rows)
    o.agree("columns of input 1", o.size(1, 2), o.size(0, 2))
    o.agree("rows of input 2", o.size(2, 1), rows)
    o.agree("columns of input 2", o.size(2, 2), hidden)
    o.agree("size of input 3", o.size(3, 1), rows and rows * 2)
    o.agree("number of lengths", o.size(4, 0), o.size(0, batch))
    for length in o.values(4) or ():
        most = o.size(0, steps)
        if length < 0 or (most is not None and length > most):
            raise o.error(f"a sequence has length {length}; the longest has {'any' if most is None else most} steps")


def _check_einsum(o: Operands) -> None:
    equation = o.attributes["equation"].s.decode("utf-8", "replace").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    groups = terms.split(",")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", equation):
        raise o.error(f"attribute equation={equation!r} is malformed")
    o.agree("terms of its equation", len(groups), len(o.node.input))
    if arrow and (lost := set(result) - set(terms)):
        raise o.error(f"attribute equation={equation!r} makes {sorted(lost)[0]!r} of nothing")
    sizes: dict[str, int] = {}
    for i, (group, dims) in enumerate(zip(groups, o.dims, strict=True)):
        if dims is None or "." in group:
            continue
        o.agree(f"dimensions of input {i}", len(dims), len(group))
        for letter, size in zip(group, dims, strict=True):
            if size is not None and size != 1:
                o.agree(f"dimension {letter!r} of input {i}", size, sizes.setdefault(letter, size))


_RULES: dict[str, Callable[[Operands], None]] = {
    "BatchNormalization": _check_channels,
    "Concat": _check_concat,
    "DepthToSpace": _check_blocks,
    "Einsum": _check_einsum,
    "GRU": _check_recurrent,
    "Gemm": _check_gemm,
    "InstanceNormalization": _check_channels,
    "LSTM": _check_recurrent,
    "MatMul": _check_matmul,
    "Pad": _check_pad,
    "RNN": _check_recurrent,
    "Reshape": _check_reshape,
    "SpaceToDepth": _check_blocks,
    "Split": _check_split,
    "Squeeze": _check_squeeze,
    "TopK": _check_topk,
}
"""Rules of single operators."""
