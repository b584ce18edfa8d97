"""The call of an evaluator: attributes, inputs and outputs of one ONNX node; and the table of evaluators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..ir import Array, GraphError
from ..registry import Registry

Value = object
"""An attribute: int, float, str or bytes, a list of them, or an array (a tensor)."""

BYTES_MAX = 1 << 28
"""Most bytes that an evaluated node may take unless told otherwise; beyond, it is an attack or a mistake."""
Made = tuple[Sequence[int], np.dtype]
"""Shape and element type of an array that a call makes."""

ELEMENT_TYPES: dict[int, np.dtype] = {
    1: np.dtype("<f4"),
    2: np.dtype("u1"),
    3: np.dtype("i1"),
    4: np.dtype("<u2"),
    5: np.dtype("<i2"),
    6: np.dtype("<i4"),
    7: np.dtype("<i8"),
    9: np.dtype("?"),
    10: np.dtype("<f2"),
    11: np.dtype("<f8"),
    12: np.dtype("<u4"),
    13: np.dtype("<u8"),
}
"""TensorProto.DataType (onnx.proto) to numpy, of the types that numpy has."""


class MemoryNeededError(GraphError):
    """An operator needs more memory than is left. ``needed``: an upper bound of the bytes that it takes while it runs,
    its outputs among them; ``made``: shapes and types of the outputs, as far as it states them.
    """

    def __init__(self, message: str, needed: int, made: Sequence[Made] = ()) -> None:
        super().__init__(message)
        self.needed, self.made = needed, made

    def __reduce__(self) -> tuple[type[MemoryNeededError], tuple[str, int, Sequence[Made]]]:
        return MemoryNeededError, (str(self), self.needed, self.made)


@quick_dataclass(frozen=True, slots=True)
class Call:
    """One node: its attributes, the values of its inputs, and how many outputs it names.

    An evaluator calls ``reserve`` once, after its checks and before it allocates anything that grows with its inputs.
    """

    op: str
    attrs: Mapping[str, Value]
    inputs: Sequence[Array | None]
    opset: int
    outputs: int = 1
    budget_bytes: int | None = BYTES_MAX
    stated: list[int] | None = None
    """Bytes that were reserved are added to this list."""

    def error(self, message: str) -> GraphError:
        """The error that says ``message`` of this operator, in one line."""
        return GraphError(f"{self.op}: {message}")

    # ---- inputs ----

    def get(self, index: int) -> Array | None:
        """An optional input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def x(self, index: int) -> Array:
        """A required input."""
        value = self.get(index)
        if value is None:
            raise self.error(f"input {index} is missing")
        return value

    def all(self) -> list[Array]:
        """Every input of a variadic operator."""
        if not self.inputs:
            raise self.error("has no inputs")
        return [self.x(i) for i in range(len(self.inputs))]

    def get_ints(self, index: int) -> list[int] | None:
        """The integers of an optional input."""
        value = self.get(index)
        if value is None:
            return None
        if value.dtype.kind not in "iu" or value.ndim > 1:
            raise self.error(f"input {index} is not a list of integers")
        return [int(v) for v in value.reshape(-1)]

    def ints_at(self, index: int) -> list[int]:
        """The integers of a required input."""
        self.x(index)
        return self.get_ints(index) or []

    def scalar(self, index: int) -> Array | None:
        """An optional input of one element, as a 0-d array."""
        value = self.get(index)
        if value is None:
            return None
        if value.size != 1:
            raise self.error(f"input {index} of shape {value.shape} is not a scalar")
        return value.reshape(())

    # ---- attributes ----

    def has(self, name: str) -> bool:
        """Whether the node states this attribute."""
        return name in self.attrs

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise self.error(f"attribute {name} is not an integer")
        return value

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self.attrs.get(name, default)
        if not isinstance(value, (int, float)):
            raise self.error(f"attribute {name} is not a number")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        """A string attribute."""
        value = self.attrs.get(name, default)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if not isinstance(value, str):
            raise self.error(f"attribute {name} is not a string")
        return value

    def integers(self, name: str, default: list[int] | None = None) -> list[int]:
        """An attribute that is a list of integers; [] where there is none and no default."""
        value = self.attrs.get(name, default or [])
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
            raise self.error(f"attribute {name} is not a list of integers")
        return [int(v) for v in value]

    def numbers(self, name: str, default: list[float]) -> list[float]:
        """An attribute that is a list of floats."""
        value = self.attrs.get(name, default)
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, (int, float)) for v in value):
            raise self.error(f"attribute {name} is not a list of numbers")
        return [float(v) for v in value]

    def texts(self, name: str, default: list[str]) -> list[str]:
        """An attribute that is a list of strings."""
        value = self.attrs.get(name, default)
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, (str, bytes)) for v in value):
            raise self.error(f"attribute {name} is not a list of strings")
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]

    def tensor(self, name: str) -> Array | None:
        """A tensor attribute, or None."""
        value = self.attrs.get(name)
        if value is not None and not isinstance(value, np.ndarray):
            raise self.error(f"attribute {name} is not a tensor")
        return value

    def dtype(self, name: str, default: int) -> np.dtype:
        """An attribute that names an element type."""
        number = self.integer(name, default)
        if number not in ELEMENT_TYPES:
            raise self.error(f"element type {number} ({name}) is not supported")
        return ELEMENT_TYPES[number]

    # ---- checks ----

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < rank:
            raise self.error(f"axis {value} is outside a tensor with {rank} dimensions")
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Different axes counted from the front."""
        found = [self.axis(v, rank) for v in values]
        if len(set(found)) != len(found):
            raise self.error(f"axes {list(values)} name an axis twice")
        return found

    def shape(self, dims: Sequence[int]) -> tuple[int, ...]:
        """``dims`` as a tuple. Refuses those that are no shape."""
        if any(d < 0 for d in dims) or len(dims) > 64:
            raise self.error(f"invalid shape {list(dims)}")
        return tuple(int(d) for d in dims)

    def reserve(self, *made: Made, workspace: int = 0) -> None:
        """State what the call allocates while it runs: arrays that it returns, and at most ``workspace`` bytes beside
        them. Raises MemoryNeededError if that is more than the budget.
        """
        needed = workspace + sum(prod(self.shape(dims)) * dtype.itemsize for dims, dtype in made)
        if self.stated is not None:
            self.stated.append(needed)
        if self.budget_bytes is not None and needed > self.budget_bytes:
            what = f"makes {list(made[0][0])} of {made[0][1]}, and " if made else ""
            message = f"{self.op}: {what}takes {needed} bytes in all; at most {max(self.budget_bytes, 0)} are left"
            raise MemoryNeededError(message, needed, made)


Evaluator = Callable[[Call], list[Array]]
EVALUATORS: Registry[Evaluator] = Registry(
    __package__,
    {
        "attention": "Attention LinearAttention RotaryEmbedding SwiGLU",
        "convolution": "CausalConvWithState Col2Im Conv ConvTranspose DeformConv",
        "linear": "Einsum Gemm MatMul",
        "noise": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
        "normalisation": "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization"
        " NegativeLogLikelihoodLoss RMSNormalization SoftmaxCrossEntropyLoss",
        "pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
        "quantised": "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul"
        " QuantizeLinear",
        "recurrent": "GRU LSTM RNN",
        "resizing": "Resize Upsample",
        "sampling": "AffineGrid GridSample MaxRoiPool NonMaxSuppression NonMaxSuppression.rows RoiAlign",
        "signal": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
        "unique": "Unique Unique.first Unique.groups Unique.members",
    },
)
"""Evaluators by ONNX operator of the default domain; the modules of this package fill the table."""


def evaluates(*operators: str) -> Callable[[Evaluator], Evaluator]:
    """Register the evaluator of these ONNX operators."""

    def register(function: Evaluator) -> Evaluator:
        for operator in operators:
            EVALUATORS.register(operator, function)
        return function

    return register


def old_broadcast(call: Call, a: Array, b: Array) -> Array:
    """Operand b of arithmetic or logic. Before opset 7 it broadcasts only if told to, from attribute axis on."""
    if call.opset >= 7 or not call.integer("broadcast", 0) or not b.ndim:
        return b
    axis = call.axis(call.integer("axis", a.ndim - b.ndim), a.ndim)
    if axis + b.ndim > a.ndim:
        raise call.error(f"shape {b.shape} does not broadcast to {a.shape} from axis {axis} on")
    return b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim))


def broadcast_shape(call: Call, *operands: Array) -> tuple[int, ...]:
    """The common shape of operands."""
    return common_shape(call, *(o.shape for o in operands))


def common_shape(call: Call, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that ``shapes`` broadcast to."""
    found = [1] * max(map(len, shapes))
    for dims in shapes:
        for i, d in enumerate(dims, len(found) - len(dims)):
            if d != 1 and found[i] not in (1, d):
                raise call.error(f"shapes {', '.join(str(tuple(s)) for s in shapes)} do not broadcast")
            found[i] = found[i] if d == 1 else int(d)
    return tuple(found)


def copied(*operands: Array | None) -> int:
    """Bytes of copies that make operands contiguous."""
    return sum(o.nbytes for o in operands if o is not None and not o.flags.c_contiguous)
