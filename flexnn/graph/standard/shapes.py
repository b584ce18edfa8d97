"""Shapes of values, as far as they are known: of inputs that declare one, of constants, and of what is made of these.

A dimension that is not known is None. What a model declares of other values is not believed.
"""

from __future__ import annotations

from math import prod
from struct import unpack

import onnx
from onnx import AttributeProto, TensorProto

from .fits import BROADCAST, WINDOWED, Dims, Operands, check_fit

_SAME = {
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization", "Bernoulli", "Cast", "CastLike",
    "Ceil", "Celu", "Clip", "Cos", "Cosh", "CumSum", "DequantizeLinear", "Dropout", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "InstanceNormalization",
    "IsInf", "IsNaN", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "Mish",
    "Neg", "Not", "PRelu", "QuantizeLinear", "RandomNormalLike", "RandomUniformLike", "Reciprocal", "Relu", "Round",
    "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus",
    "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Trilu",
}  # fmt: skip
"""Operators whose first output has the shape of their first input."""
_RANK = {"DepthToSpace", "Pad", "Resize", "Slice", "SpaceToDepth", "Split", "TopK", "Upsample"}
"""Operators of whose outputs only the rank is that of the first input."""
_VALUES_MAX = 1 << 10
"""Most elements of a constant whose integers are looked at."""
_INTEGERS: dict[int, tuple[str, str, int]] = {
    TensorProto.INT64: ("int64_data", "q", 8),
    TensorProto.INT32: ("int32_data", "i", 4),
}
"""Types of the integers that are looked at: the field that holds them, and how raw bytes do."""


class Shapes:
    """Shapes, and integers of small constants, by the names of values. ``around``: those of the graph around it."""

    def __init__(self, around: Shapes | None = None) -> None:
        self._dims: dict[str, Dims] = dict(around._dims) if around else {}
        self._ints: dict[str, list[int]] = dict(around._ints) if around else {}

    def declare(self, info: onnx.ValueInfoProto) -> None:
        """Note the shape that an input declares."""
        if info.type.WhichOneof("value") == "tensor_type" and info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            self._dims[info.name] = tuple(d.dim_value if d.dim_value > 0 else None for d in dims)

    def state(self, name: str, tensor: TensorProto) -> None:
        """Note the shape of a constant, and its numbers if they are few integers."""
        self._dims[name] = tuple(tensor.dims)
        is_few = len(tensor.dims) < 2 and all(0 <= d <= _VALUES_MAX for d in tensor.dims)
        is_here = tensor.data_location != TensorProto.EXTERNAL and not tensor.HasField("segment")
        if tensor.data_type in _INTEGERS and is_few and is_here:
            values = _integers(tensor)
            if len(values) == prod(tensor.dims):  # else reading it says what is wrong
                self._ints[name] = values

    def check(self, node: onnx.NodeProto, version: int) -> None:
        """Check a node that fits its schema, and note the shapes of its outputs. Raises GraphError."""
        operands = Operands(
            node,
            {attribute.name: attribute for attribute in node.attribute},
            [self._dims.get(name) for name in node.input],
            [self._ints.get(name) for name in node.input],
            version,
        )
        check_fit(operands)
        if node.op_type == "Constant":
            self._constant(node.output[0], operands.attributes)
        elif (made := _made(operands)) is not None:
            for name in node.output:
                self._dims[name] = made

    def _constant(self, name: str, attributes: dict[str, AttributeProto]) -> None:
        if "value" in attributes:
            self.state(name, attributes["value"].t)
        elif "value_int" in attributes:
            self._dims[name], self._ints[name] = (), [attributes["value_int"].i]
        elif "value_ints" in attributes:
            self._ints[name] = list(attributes["value_ints"].ints)
            self._dims[name] = (len(self._ints[name]),)


def _integers(tensor: TensorProto) -> list[int]:
    """Return the integers of a tensor whose data lie in the model, without numpy; none where they are damaged."""
    field, kind, nbytes = _INTEGERS[tensor.data_type]
    if not tensor.HasField("raw_data"):
        return list(getattr(tensor, field))
    raw = tensor.raw_data
    return list(unpack(f"<{len(raw) // nbytes}{kind}", raw)) if len(raw) % nbytes == 0 else []


def _made(o: Operands) -> Dims | None:
    """Return the shape of the outputs, where all have one and it is known."""
    op, x = o.node.op_type, o.dims[0] if o.dims else None
    if op in ("Reshape", "ConstantOfShape"):
        return _reshaped(o, x)
    if op == "Shape":
        return (None,)
    if x is None:
        return None
    if op in _SAME:
        return x if len(o.node.output) == 1 or op == "BatchNormalization" else (None,) * len(x)
    if op in _RANK:
        return (None,) * len(x)
    if op in BROADCAST:
        known = [dims for dims in o.dims if dims is not None]
        return _broadcast(known) if len(known) == len(o.dims) and o.version >= 7 else None
    if op in _MAKES:
        return _MAKES[op](o, x)
    if op in WINDOWED:
        return _windowed(o, x) if len(o.node.output) == 1 else None
    return (None,) * len(x) if op.startswith("Reduce") and o.integer("keepdims", 1) else None


def _reshaped(o: Operands, x: Dims | None) -> Dims | None:
    target = o.ints[-1]
    if target is None or o.version < 5:
        return None
    if o.node.op_type == "ConstantOfShape" or o.integer("allowzero", 0):
        return tuple(d if d >= 0 else None for d in target)
    kept = [x[i] if x and d == 0 and i < len(x) else d if d > 0 else None for i, d in enumerate(target)]
    if (
        target.count(-1) == 1
        and x
        and None not in x
        and None not in [d for d, t in zip(kept, target, strict=True) if t != -1]
    ):
        rest = prod(d for d, t in zip(kept, target, strict=True) if t != -1 and d is not None)
        kept[target.index(-1)] = prod(d for d in x if d is not None) // rest if rest else None
    return tuple(kept)


def _broadcast(shapes: list[Dims]) -> Dims:
    rank = max(map(len, shapes))
    made: list[int | None] = []
    for i in range(rank):
        sizes = {dims[i - rank + len(dims)] for dims in shapes if i - rank + len(dims) >= 0} - {1}
        made.append(next(iter(sizes)) if len(sizes) == 1 else None if sizes else 1)
    return tuple(made)


def _windowed(o: Operands, x: Dims) -> Dims:
    if "Conv" not in o.node.op_type:
        return (*x[:2], *([None] * (len(x) - 2)))
    weight = o.dims[1]
    channels = None
    if weight is not None and len(weight) > 1:
        each = weight[1] if o.node.op_type == "ConvTranspose" else weight[0]
        groups = o.integer("group", 1) if o.node.op_type == "ConvTranspose" else 1
        channels = each * groups if each is not None else None
    return (x[0], channels, *([None] * (len(x) - 2)))


def _concatenated(o: Operands, x: Dims) -> Dims | None:
    axis = o.integer("axis", 1) % len(x)
    parts = [dims[axis] if dims is not None else None for dims in o.dims]
    whole = sum(d for d in parts if d is not None) if None not in parts else None
    return (*x[:axis], whole, *x[axis + 1 :])


def _product(o: Operands, x: Dims) -> Dims | None:
    y = o.dims[1]
    if y is None or len(x) < 2 or len(y) < 2:
        return None
    return (*_broadcast([x[:-2], y[:-2]]), x[-2], y[-1]) if len(x) > 2 or len(y) > 2 else (x[-2], y[-1])


def _gemm(o: Operands, x: Dims) -> Dims | None:
    y = o.dims[1]
    if y is None or len(x) != 2 or len(y) != 2:
        return None
    return x[1 if o.integer("transA", 0) else 0], y[0 if o.integer("transB", 0) else 1]


def _gathered(o: Operands, x: Dims) -> Dims | None:
    indices = o.dims[1]
    axis = o.integer("axis", 0) % max(len(x), 1)
    return (*x[:axis], *indices, *x[axis + 1 :]) if indices is not None else None


def _transposed(o: Operands, x: Dims) -> Dims:
    perm = list(o.attributes["perm"].ints) if "perm" in o.attributes else list(range(len(x)))[::-1]
    return tuple(x[i] for i in perm)


def _flattened(o: Operands, x: Dims) -> Dims:
    axis = o.integer("axis", 1)
    axis = axis + len(x) if axis < 0 else axis
    return tuple(None if None in part else prod(d for d in part if d is not None) for part in (x[:axis], x[axis:]))


def _unsqueezed(o: Operands, x: Dims) -> Dims | None:
    axes = o.axes()
    if axes is None:
        return None
    rank = len(x) + len(axes)
    new, old = {axis % rank for axis in axes}, iter(x)
    return tuple(1 if i in new else next(old) for i in range(rank))


def _squeezed(o: Operands, x: Dims) -> Dims | None:
    axes = o.axes()
    if axes is None:
        return None
    gone = {axis % len(x) for axis in axes}
    return tuple(d for i, d in enumerate(x) if i not in gone)


def _pooled(o: Operands, x: Dims) -> Dims:
    return (*x[:2], *([1] * (len(x) - 2)))


_MAKES = {
    "Concat": _concatenated,
    "Flatten": _flattened,
    "Gather": _gathered,
    "Gemm": _gemm,
    "GlobalAveragePool": _pooled,
    "GlobalMaxPool": _pooled,
    "MatMul": _product,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
"""Shapes that single operators make of those of their operands."""
