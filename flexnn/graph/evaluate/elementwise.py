"""Element by element: functions, arithmetic, bits, types."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..ir import Array
from .blocks import fill, over, work_bytes
from .call import ELEMENT_TYPES, Call, broadcast_shape, copied, evaluates, old_broadcast

_ERF_ELEMENTS = 512
_each_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function of each element, in x's type."""
    y = np.empty(x.size, x.dtype)
    flat = x.reshape(-1)
    for first in range(0, x.size, _ERF_ELEMENTS):  # of objects, which are large
        part = slice(first, first + _ERF_ELEMENTS)
        y[part] = _each_erf(flat[part].astype(np.float64))
    return y.reshape(x.shape)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, e) / (1 + e), x.dtype)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return np.asarray(np.logaddexp(x.dtype.type(0), x), x.dtype)


_PLAIN: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "Round": np.rint,
    "Sigmoid": sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(softplus(x)),
}


@evaluates(*_PLAIN)
def plain(call: Call) -> list[Array]:
    """Functions without attributes."""
    x = call.x(0)
    return [over(call, _PLAIN[call.op], [x], x.dtype)]


@evaluates("Identity", "Dropout")
def identity(call: Call) -> list[Array]:
    """The input; Dropout's mask is all true at inference."""
    x = call.x(0)
    if call.op == "Dropout":
        training = call.scalar(2)
        ratio = call.scalar(1)
        if training is not None and training and (ratio is None or ratio > 0):
            raise call.error("training_mode is not supported (inference only)")
        if call.outputs > 1:
            kind = np.dtype(np.bool_) if call.opset >= 10 else x.dtype
            call.reserve((x.shape, kind))
            return [x, np.ones(x.shape, kind)]
    call.reserve()
    return [x]


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _shaped(call: Call) -> Callable[[Array], Array]:
    """The function of an activation with attributes."""
    usual = {"LeakyRelu": 0.01, "HardSigmoid": 0.2, "Selu": 1.67326319217681884765625}
    alpha = call.number("alpha", usual.get(call.op, 1.0))
    match call.op:
        case "LeakyRelu":
            return lambda x: np.where(x < 0, alpha * x, x)
        case "Elu":
            return lambda x: _elu(x, alpha)
        case "Celu":
            return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))
        case "ThresholdedRelu":
            return lambda x: np.where(x > alpha, x, 0)
        case "HardSigmoid":
            beta = call.number("beta", 0.5)
            return lambda x: np.clip(alpha * x + beta, 0, 1)
        case "Selu":
            gamma = call.number("gamma", 1.05070102214813232421875)
            return lambda x: gamma * _elu(x, alpha)
        case "Shrink":
            bias, edge = call.number("bias", 0.0), call.number("lambd", 0.5)
            return lambda x: np.where(x < -edge, x + bias, np.where(x > edge, x - bias, 0))
        case "Swish":
            return lambda x: x * sigmoid(alpha * x)
    if call.text("approximate", "none") == "tanh":
        return lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))


@evaluates("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Selu", "Shrink", "Swish", "Gelu")
def shaped(call: Call) -> list[Array]:
    """Activations with attributes."""
    x = call.x(0)
    return [over(call, _shaped(call), [x], x.dtype)]


@evaluates("Clip")
def clip(call: Call) -> list[Array]:
    """Bounds are attributes before opset 11, inputs since; where they cross, the upper one holds."""
    x = call.x(0)
    low: Array | float | None
    high: Array | float | None
    if call.opset < 11:
        low, high = call.number("min", -math.inf), call.number("max", math.inf)
    else:
        low, high = call.scalar(1), call.scalar(2)

    def clipped(v: Array) -> Array:
        v = v if low is None else np.maximum(v, low)
        return v if high is None else np.minimum(v, high)

    return [over(call, clipped, [x], x.dtype)]


@evaluates("PRelu")
def prelu(call: Call) -> list[Array]:
    """A slope for each element below zero; before opset 7 one slope for each channel."""
    x, slope = call.x(0), call.x(1)
    if call.opset < 7 and slope.ndim == 1 and slope.size > 1:
        slope = slope.reshape(slope.shape + (1,) * (x.ndim - 2))
    return [over(call, lambda v, s: np.where(v < 0, s * v, v), [x, slope], x.dtype)]


def truncated_quotient(a: Array, b: Array) -> Array:
    """A / b of integers, rounded towards zero as C does; by zero: 0."""
    quotient = a // b
    inexact = (quotient * b != a) & (b != 0)
    return np.asarray(quotient + (inexact & ((a < 0) != (b < 0))), quotient.dtype)


def _divide(a: Array, b: Array) -> Array:
    return truncated_quotient(a, b) if a.dtype.kind in "iu" else np.divide(a, b)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
}


@evaluates(*_BINARY)
def binary(call: Call) -> list[Array]:
    """Arithmetic of two operands of one type, with numpy's broadcasting."""
    a = call.x(0)
    b = old_broadcast(call, a, call.x(1))
    if a.dtype != b.dtype:
        raise call.error(f"the operands have different types: {a.dtype} and {b.dtype}")
    return [over(call, _BINARY[call.op], [a, b], a.dtype)]


@evaluates("Pow")
def power(call: Call) -> list[Array]:
    """The result has the type of the base."""
    a = call.x(0)
    b = old_broadcast(call, a, call.x(1))
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return [over(call, _integer_power, [a, b], a.dtype)]
    return [over(call, lambda v, w: converted(np.asarray(np.power(v, w)), a.dtype), [a, b], a.dtype)]


def _integer_power(a: Array, b: Array) -> Array:
    """Wraps; of an exponent below zero the integer part of 1 / a^-b, and 0 of zero."""
    wide = np.uint64 if a.dtype == np.uint64 else np.int64
    y = np.power(a.astype(wide), np.where(b < 0, 0, b).astype(wide)).astype(a.dtype)
    if b.dtype.kind == "u":
        return np.asarray(y)
    inverse = np.where(a == 1, 1, np.where((a < 0) & (a + 1 == 0), 1 - 2 * (b & 1), 0))
    return np.where(b < 0, inverse.astype(a.dtype), y)


@evaluates("Mod")
def mod(call: Call) -> list[Array]:
    """The remainder has the sign of the divisor, or with fmod, of the dividend; by zero of integers: 0."""
    a, b = call.x(0), call.x(1)
    return [over(call, np.fmod if call.integer("fmod", 0) else np.mod, [a, b], a.dtype)]


_VARIADIC: dict[str, Callable[[Array, Array], Array]] = {
    "Sum": np.add,
    "Mean": np.add,
    "Max": np.maximum,
    "Min": np.minimum,
}


@evaluates(*_VARIADIC)
def variadic(call: Call) -> list[Array]:
    """Any number of operands, broadcast."""
    values = call.all()
    shape, dtype, combine = broadcast_shape(call, *values), values[0].dtype, _VARIADIC[call.op]
    call.reserve((shape, dtype), workspace=work_bytes(prod(shape)))
    y = np.empty(shape, dtype)
    y[...] = values[0]
    for value in values[1:]:
        fill(y, combine, y, value)
    return [fill(y, lambda v: v / len(values), y) if call.op == "Mean" else y]


@evaluates("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
def bits(call: Call) -> list[Array]:
    """Operations on the bits of integers."""
    a = call.x(0)
    if a.dtype.kind not in "iu":
        raise call.error(f"operands of type {a.dtype} are not integers")
    if call.op == "BitwiseNot":
        return [over(call, np.invert, [a], a.dtype)]
    b = call.x(1)
    if a.dtype != b.dtype:
        raise call.error(f"the operands have different types: {a.dtype} and {b.dtype}")
    if call.op != "BitShift":
        functions = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
        return [over(call, functions[call.op], [a, b], a.dtype)]
    direction = call.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise call.error(f"direction {direction!r} is neither LEFT nor RIGHT")
    return [over(call, np.left_shift if direction == "LEFT" else np.right_shift, [a, b], a.dtype)]


def converted(x: Array, to: np.dtype) -> Array:
    """Conversion as ONNX's Cast: to integers towards zero, to bool by being not zero.

    Numbers that an integer does not have become what x86-64 makes of them, as in the C core (kernels/ops/cast.c).
    """
    if to.kind not in "iu" or x.dtype.kind != "f":
        return x.astype(to)
    through = np.int64 if to.itemsize == 8 else np.int32
    y = _whole(x, through).astype(to)
    if to.kind == "u" and to.itemsize >= 4:
        half = 2.0 ** (8 * to.itemsize - 1)
        y = np.where(x >= half, _whole(x - half, through).astype(to) ^ to.type(half), y)
    return y


def _whole(x: Array, to: type[np.signedinteger[Any]]) -> Array:
    """Integers towards zero; the smallest of the type for numbers that it does not have."""
    if x.dtype.itemsize < 4:
        x = x.astype(np.float32)
    cut, least = np.trunc(x), float(np.iinfo(to).min)
    return np.asarray(np.where((cut >= least) & (cut < -least), cut, cut.dtype.type(least)).astype(to))


@evaluates("Cast")
def cast(call: Call) -> list[Array]:
    """https://onnx.ai/onnx/operators/onnx__Cast.html, of the types that numpy has."""
    x, to = call.x(0), call.dtype("to", 0)
    return [over(call, lambda v: converted(v, to), [x], to)]


@evaluates("CastLike")
def cast_like(call: Call) -> list[Array]:
    """Conversion to the type of another value."""
    x, to = call.x(0), call.x(1).dtype
    return [over(call, lambda v: converted(v, to), [x], to)]


@evaluates("BitCast")
def bit_cast(call: Call) -> list[Array]:
    """The same bits as another type of the same size."""
    x, to = call.x(0), call.dtype("to", 0)
    if to.itemsize != x.dtype.itemsize:
        raise call.error(f"{x.dtype} and {to} differ in size")
    call.reserve(workspace=copied(x))
    return [np.ascontiguousarray(x).view(to).reshape(x.shape)]


def element_number(dtype: np.dtype) -> int:
    """TensorProto.DataType of a numpy type."""
    return {d: n for n, d in ELEMENT_TYPES.items()}[dtype]
