"""Quantised values: y = saturate(round(x / scale) + zero point)."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array
from .blocks import fill, work_bytes
from .call import ELEMENT_TYPES, Call, common_shape, evaluates
from .convolution import convolution_of, convolve


def _along(call: Call, x: Array, parameter: Array) -> Array:
    """A scale or zero point shaped so that it broadcasts with x: one, one for each slice of an axis, or blocks."""
    if parameter.size == 1:
        return parameter.reshape(())
    axis, block = call.axis(call.integer("axis", 1), x.ndim), call.integer("block_size", 0)
    if parameter.ndim == 1 and not block:
        if parameter.size != x.shape[axis]:
            raise call.error(f"{parameter.size} scales do not fit axis {axis} of shape {x.shape}")
        return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    if block < 1 or parameter.ndim != x.ndim or parameter.shape[axis] != -(-x.shape[axis] // block):
        raise call.error(f"scales of shape {parameter.shape} and block_size {block} do not fit shape {x.shape}")
    return np.repeat(parameter, block, axis)[(slice(None),) * axis + (slice(x.shape[axis]),)]


def _along_bytes(call: Call, x: Array, *parameters: Array | None) -> int:
    """Bytes that ``_along`` takes for parameters: blocks are repeated."""
    block = call.integer("block_size", 0)
    given = [p for p in parameters if p is not None and p.size > 1 and p.ndim == x.ndim]
    return sum(p.nbytes * block for p in given) if block > 0 else 0


def saturated(values: Array, dtype: np.dtype) -> Array:
    """Rounded numbers as an integer type, the nearest it has."""
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(values, limits.min, limits.max), dtype)


def quantised(x: Array, scale: Array, zero: Array) -> Array:
    """X in steps of ``scale``, in the type of ``zero``; parameters broadcast."""
    return saturated(np.rint(x / scale) + zero.astype(np.float64), zero.dtype)


@evaluates("QuantizeLinear")
def quantize_linear(call: Call) -> list[Array]:
    """For the whole tensor, for each slice of an axis, or in blocks."""
    x, scale, zero = call.x(0), call.x(1), call.get(2)
    if zero is None:
        number = call.integer("output_dtype", 0) or 2
        if number not in ELEMENT_TYPES:
            raise call.error(f"output_dtype {number} is not supported")
        zero = np.zeros(scale.shape, ELEMENT_TYPES[number])
    if zero.dtype.kind not in "iu":
        raise call.error(f"zero point of {zero.dtype} is not supported")
    work = call.integer("precision", 0)
    kind = ELEMENT_TYPES.get(work) if work else np.promote_types(scale.dtype, np.float32)
    if kind is None:
        raise call.error(f"precision {work} is not supported")
    to = kind
    call.reserve((x.shape, zero.dtype), workspace=_along_bytes(call, x, scale, zero) + work_bytes(x.size))
    parameters = _along(call, x, scale), _along(call, x, zero)
    function = lambda v, s, z: quantised(v.astype(to), s.astype(to), z)  # noqa: E731
    return [fill(np.empty(x.shape, zero.dtype), function, x, *parameters)]


@evaluates("DequantizeLinear")
def dequantize_linear(call: Call) -> list[Array]:
    """(x - zero point) scale, in the scale's type."""
    x, scale, zero = call.x(0), call.x(1), call.get(2)
    if x.dtype.kind not in "iu":
        raise call.error(f"input of {x.dtype} is not supported")
    to = call.dtype("output_dtype", 0) if call.integer("output_dtype", 0) else scale.dtype
    work = np.dtype(np.float64 if x.dtype.itemsize > 2 else np.float32)
    call.reserve((x.shape, to), workspace=_along_bytes(call, x, scale, zero) + work_bytes(x.size))
    y, steps = np.empty(x.shape, to), _along(call, x, scale)
    if zero is None:
        return [fill(y, lambda v, s: v.astype(work) * s, x, steps)]
    return [fill(y, lambda v, s, z: (v.astype(work) - z.astype(work)) * s, x, steps, _along(call, x, zero))]


@evaluates("DynamicQuantizeLinear")
def dynamic_quantize(call: Call) -> list[Array]:
    """Quantise to uint8 over the range of x and zero; return values, scale (1 for zeros alone), zero point."""
    x = call.x(0)
    call.reserve((x.shape, np.dtype(np.uint8)), workspace=work_bytes(x.size))
    low, high = np.minimum(np.float32(0), x.min(initial=0)), np.maximum(np.float32(0), x.max(initial=0))
    scale = np.float32(1 if high == low else (high - low) / np.float32(255))
    zero = saturated(np.rint(-low / scale) if scale else np.zeros(()), np.dtype(np.uint8))
    steps = np.asarray(scale if scale else 1, np.float32)
    y = fill(np.empty(x.shape, np.uint8), lambda v: quantised(v, steps, zero), x)
    return [y, np.asarray(scale, np.float32), zero]


def _centred(call: Call, x: Array, zero: Array | None, axis: int) -> Array:
    """X without its zero point (one, or one for each slice of an axis), exact: 8 bytes an element."""
    y = x.astype(np.float64)
    if zero is None or not zero.size:
        return y
    if zero.size == 1:
        y -= float(zero.reshape(()))
        return y
    if zero.ndim > 1:
        y -= zero
        return y
    if not x.ndim or zero.size != x.shape[axis]:
        raise call.error(f"{zero.size} zero points do not fit shape {x.shape}")
    shape = [1] * x.ndim
    shape[axis] = -1
    y -= zero.reshape(shape)
    return y


def _product_shape(call: Call, a: Array, b: Array) -> tuple[int, ...]:
    """The shape of the product of matrices, or of a vector as one."""
    batch = common_shape(call, a.shape[:-2], b.shape[:-2])
    return (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))


@evaluates("MatMulInteger")
def matmul_integer(call: Call) -> list[Array]:
    """Exact products of 8-bit matrices, in int32."""
    a, b = call.x(0), call.x(1)
    made = _product_shape(call, a, b)
    call.reserve((made, np.dtype(np.int32)), workspace=8 * (a.size + b.size + prod(made)) + work_bytes(prod(made)))
    product = _centred(call, a, call.get(2), -2 if a.ndim > 1 else -1) @ _centred(call, b, call.get(3), -1)
    return [_wrapped(np.asarray(product))]


def _wrapped(exact: Array) -> Array:
    """Whole numbers as int32, modulo 2^32."""
    return fill(np.empty(exact.shape, np.int32), lambda v: v.astype(np.int64), exact)


@evaluates("ConvInteger")
def conv_integer(call: Call) -> list[Array]:
    """Exact convolution of 8-bit tensors, in int32; pads are the zero point."""
    x, w = call.x(0), call.x(1)
    windows, taken = convolution_of(call, x.shape, w.shape, 8)
    made = (x.shape[0], w.shape[0], *windows.size)
    work = taken + 8 * (x.size + w.size) + work_bytes(prod(made))
    call.reserve((made, np.dtype(np.int32)), workspace=work)
    return [_wrapped(convolve(call, _centred(call, x, call.get(2), 1), _centred(call, w, call.get(3), 0)))]


def _requantised(exact: Array, scales: tuple[Array, Array], scale: Array, zero: Array, bias: Array) -> Array:
    """Sums, with ``bias`` int32, times both scales over ``scale``, each step in float32 as onnxruntime takes it."""
    first, second, result = (np.asarray(s, np.float32) for s in (*scales, scale.reshape(())))
    ratio, centre = np.asarray(first * second / result, np.float32), float(zero.reshape(()))

    def steps(v: Array, factor: Array, more: Array) -> Array:
        sums = v.astype(np.int64).astype(np.int32) + more
        return saturated(np.rint(sums.astype(np.float32) * factor) + np.float64(centre), zero.dtype)

    return fill(np.empty(exact.shape, zero.dtype), steps, exact, ratio, bias)


@evaluates("QLinearMatMul")
def qlinear_matmul(call: Call) -> list[Array]:
    """Quantised operands, quantised product."""
    a, scale_a, zero_a, b, scale_b, zero_b, scale, zero = (call.x(i) for i in range(8))
    made = _product_shape(call, a, b)
    work = 8 * (a.size + b.size + prod(made) + scale_a.size * scale_b.size) + work_bytes(prod(made))
    call.reserve((made, zero.dtype), workspace=work)
    product = np.asarray(_centred(call, a, zero_a, -2) @ _centred(call, b, zero_b, -1))
    rows = scale_a.reshape(-1, 1) if scale_a.ndim == 1 and scale_a.size > 1 else scale_a
    first, second = (s.reshape(()) if s.size == 1 else s for s in (rows, scale_b))
    return [_requantised(product, (first, second), scale, zero, np.zeros((), np.int32))]


@evaluates("QLinearConv")
def qlinear_conv(call: Call) -> list[Array]:
    """Quantised input and weights (scales for each output channel, too), bias in int32, quantised output."""
    x, scale_x, zero_x, w, scale_w, zero_w, scale, zero = (call.x(i) for i in range(8))
    windows, taken = convolution_of(call, x.shape, w.shape, 8)
    made = (x.shape[0], w.shape[0], *windows.size)
    work = taken + 8 * (x.size + w.size) + 24 * w.shape[0] + work_bytes(prod(made))
    call.reserve((made, zero.dtype), workspace=work)
    y, given = convolve(call, _centred(call, x, zero_x, 1), _centred(call, w, zero_w, 0)), call.get(8)
    channels = (-1, *[1] * (y.ndim - 2))
    bias = np.zeros((), np.int32) if given is None else given.astype(np.int32).reshape(channels)
    of_channels = scale_w.reshape(channels if scale_w.size > 1 else ())
    return [_requantised(y, (scale_x.reshape(()), of_channels), scale, zero, bias)]
