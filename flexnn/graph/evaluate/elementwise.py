"""Element by element: functions, arithmetic, bits, types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ..ir import Array
from .call import ELEMENT_TYPES, Call, broadcast_shape, evaluates, old_broadcast

_each_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function of each element, in x's type."""
    return np.asarray(_each_erf(x.astype(np.float64)), np.float64).astype(x.dtype)


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
    return [np.asarray(_PLAIN[call.op](x), x.dtype)]


@evaluates("Identity", "Dropout")
def identity(call: Call) -> list[Array]:
    """The input; Dropout's mask is all true at inference."""
    x = call.x(0)
    if call.op == "Dropout":
        training = call.scalar(2)
        ratio = call.scalar(1)
        if training is not None and training and (ratio is None or ratio > 0):
            raise call.error("training_mode is not supported (inference only)")
        mask = np.ones(x.shape, np.bool_ if call.opset >= 10 else x.dtype)
        return [x, mask][: max(call.outputs, 1)]
    return [x]


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@evaluates("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Selu", "Shrink", "Swish", "Gelu")
def shaped(call: Call) -> list[Array]:
    """Activations with attributes."""
    x = call.x(0)
    y: Array
    match call.op:
        case "LeakyRelu":
            y = np.where(x < 0, call.number("alpha", 0.01) * x, x)
        case "Elu":
            y = _elu(x, call.number("alpha", 1.0))
        case "Celu":
            alpha = call.number("alpha", 1.0)
            y = np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))
        case "ThresholdedRelu":
            y = np.where(x > call.number("alpha", 1.0), x, 0)
        case "HardSigmoid":
            y = np.clip(call.number("alpha", 0.2) * x + call.number("beta", 0.5), 0, 1)
        case "Selu":
            y = call.number("gamma", 1.05070102214813232421875) * _elu(
                x, call.number("alpha", 1.67326319217681884765625)
            )
        case "Shrink":
            bias, edge = call.number("bias", 0.0), call.number("lambd", 0.5)
            y = np.where(x < -edge, x + bias, np.where(x > edge, x - bias, 0))
        case "Swish":
            y = x * sigmoid(call.number("alpha", 1.0) * x)
        case _:
            if call.text("approximate", "none") == "tanh":
                y = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            else:
                y = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    return [np.asarray(y, x.dtype)]


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
    y = x if low is None else np.maximum(x, low)
    return [np.asarray(y if high is None else np.minimum(y, high), x.dtype)]


@evaluates("PRelu")
def prelu(call: Call) -> list[Array]:
    """A slope for each element below zero; before opset 7 one slope for each channel."""
    x, slope = call.x(0), call.x(1)
    if call.opset < 7 and slope.ndim == 1 and slope.size > 1:
        slope = slope.reshape(slope.shape + (1,) * (x.ndim - 2))
    return [np.asarray(np.where(x < 0, slope * x, x), x.dtype)]


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
    broadcast_shape(call, a, b)
    return [np.asarray(_BINARY[call.op](a, b), a.dtype)]


@evaluates("Pow")
def power(call: Call) -> list[Array]:
    """The result has the type of the base."""
    a = call.x(0)
    b = old_broadcast(call, a, call.x(1))
    broadcast_shape(call, a, b)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return [_integer_power(a, b)]
    return [converted(np.asarray(np.power(a, b)), a.dtype)]


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
    broadcast_shape(call, a, b)
    return [np.asarray((np.fmod if call.integer("fmod", 0) else np.mod)(a, b), a.dtype)]


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
    broadcast_shape(call, *values)
    y = reduce(_VARIADIC[call.op], values)
    return [np.asarray(y / len(values) if call.op == "Mean" else y, values[0].dtype)]


@evaluates("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
def bits(call: Call) -> list[Array]:
    """Operations on the bits of integers."""
    a = call.x(0)
    if a.dtype.kind not in "iu":
        raise call.error(f"operands of type {a.dtype} are not integers")
    if call.op == "BitwiseNot":
        return [np.invert(a)]
    b = call.x(1)
    if a.dtype != b.dtype:
        raise call.error(f"the operands have different types: {a.dtype} and {b.dtype}")
    broadcast_shape(call, a, b)
    if call.op == "BitShift":
        direction = call.text("direction")
        if direction not in ("LEFT", "RIGHT"):
            raise call.error(f"direction {direction!r} is neither LEFT nor RIGHT")
        return [(np.left_shift if direction == "LEFT" else np.right_shift)(a, b)]
    return [{"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}[call.op](a, b)]


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
    call.allow(x.shape, to)
    return [converted(x, to)]


@evaluates("CastLike")
def cast_like(call: Call) -> list[Array]:
    """Conversion to the type of another value."""
    x, to = call.x(0), call.x(1).dtype
    call.allow(x.shape, to)
    return [converted(x, to)]


@evaluates("BitCast")
def bit_cast(call: Call) -> list[Array]:
    """The same bits as another type of the same size."""
    x, to = call.x(0), call.dtype("to", 0)
    if to.itemsize != x.dtype.itemsize:
        raise call.error(f"{x.dtype} and {to} differ in size")
    return [np.ascontiguousarray(x).view(to).reshape(x.shape)]


def element_number(dtype: np.dtype) -> int:
    """TensorProto.DataType of a numpy type."""
    return {d: n for n, d in ELEMENT_TYPES.items()}[dtype]
