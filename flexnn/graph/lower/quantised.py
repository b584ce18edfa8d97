"""Quantised operators: integers as they are stored, computed in float32 between."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Attr
from ..model import dtype_name
from .constant import Const, of_integers
from .context import Context, Value, lowers
from .convolution import convolve
from .elementwise import emit_binary, emit_unary
from .linear import multiply


def _axis(ctx: Context, x: Value, scale: Value) -> int:
    """The axis of which each slice has a scale; 0 where there is only one."""
    if prod(ctx.shape(scale)) == 1:
        ctx.attr("axis")
        return 0
    axis = ctx.axis(ctx.integer("axis", 1), len(ctx.shape(x)))
    if len(ctx.shape(scale)) != 1 or ctx.integer("block_size", 0):
        raise ctx.error("scales in blocks are not supported")
    return axis


def restored(ctx: Context, x: Value, scale: Value, zero: Value | None, axis: int = 0) -> Value:
    """(x - zero) scale in float32."""
    if isinstance(x, Const) and isinstance(scale, Const) and (zero is None or isinstance(zero, Const)):
        if any(v is not None and prod(v.shape) not in (1, *x.shape[axis : axis + 1]) for v in (scale, zero)):
            raise ctx.error(f"scales of shape {scale.shape} do not fit axis {axis} of shape {x.shape}")
        return of_integers(x, scale, zero, axis)
    if zero is not None and isinstance(zero, Const) and not zero.load().any():
        zero = None
    attrs: dict[str, Attr] = {"to": "f32", "axis": axis}
    return ctx.emit("quantize", [x, scale] if zero is None else [x, scale, zero], attrs)


def quantised(ctx: Context, x: Value, scale: Value, zero: Value, axis: int = 0) -> Value:
    """X in steps of scale, in the type of zero."""
    return ctx.emit("quantize", [x, scale, zero], {"to": ctx.dtype(zero), "axis": axis})


@lowers("QuantizeLinear")
def quantize_linear(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.optional(2)
    for name in ("saturate", "precision", "block_size"):
        ctx.attr(name)
    axis = _axis(ctx, x, scale)
    if zero is None:
        to = ctx.integer("output_dtype", 0) or 2
        types = {"u8": np.uint8, "i8": np.int8}
        if dtype_name(to, "output_dtype") not in types:
            raise ctx.error(f"output_dtype {to} is not supported")
        zero = ctx.array(np.zeros(ctx.shape(scale), types[dtype_name(to, "output_dtype")]), "zero")
    else:
        ctx.attr("output_dtype")
    return [quantised(ctx, x, scale, zero, axis)]


@lowers("DequantizeLinear")
def dequantize_linear(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html."""
    x, scale = ctx.input(0), ctx.input(1)
    ctx.attr("block_size")
    ctx.attr("output_dtype")
    return [restored(ctx, x, scale, ctx.optional(2), _axis(ctx, x, scale))]


@lowers("DynamicQuantizeLinear")
def dynamic_quantize(ctx: Context) -> list[Value]:
    """Quantise to uint8 over the range of x and zero; return values, scale, zero point."""
    x = ctx.input(0)
    nothing = ctx.array(np.zeros((), np.float32), "nothing")
    rank = len(ctx.shape(x))
    ends = []
    for kind in ("min", "max"):
        flat = ctx.reshape(x, (prod(ctx.shape(x)),)) if rank != 1 else x
        end = ctx.emit("reduction", [flat], {"kind": kind, "axes": [0], "keepdims": 0})
        ends.append(emit_binary(ctx, end, nothing, kind))
    low, high = ends
    steps = ctx.array(np.array(255, np.float32), "steps")
    scale = emit_binary(ctx, emit_binary(ctx, high, low, "sub"), steps, "div")
    shift = emit_unary(ctx, emit_binary(ctx, emit_unary(ctx, low, "neg"), scale, "div"), "round")
    zero = ctx.emit("cast", [shift], {"to": "u8"})
    return [quantised(ctx, x, scale, zero), scale, zero]


def _zero_axis(ctx: Context, zero: Value | None, x: Value, axis: int) -> int:
    """The axis of which each slice has a zero point; 0 where there is only one."""
    if zero is None or prod(ctx.shape(zero)) == 1:
        return 0
    axis = ctx.axis(axis, len(ctx.shape(x)))
    if ctx.shape(zero) != ctx.shape(x)[axis : axis + 1]:
        raise ctx.error(f"zero points of shape {ctx.shape(zero)} do not fit an operand of shape {ctx.shape(x)}")
    return axis


def _centred(ctx: Context, x: Value, zero: Value | None, axis: int) -> Value:
    """X less its zero points, as float32."""
    ones = np.ones(1 if zero is None else prod(ctx.shape(zero)), np.float32)
    return restored(ctx, x, ctx.array(ones, "ones"), zero, _zero_axis(ctx, zero, x, axis))


def _known(ctx: Context, index: int, what: str) -> Const | None:
    value = ctx.optional(index)
    return None if value is None else ctx.known(value, what)


@lowers("MatMulInteger")
def matmul_integer(ctx: Context) -> list[Value]:
    """Products of 8-bit matrices. Sums are exact up to 2^24, then right to 6e-8."""
    a = _centred(ctx, ctx.input(0), ctx.optional(2), -2)
    b = _centred(ctx, ctx.input(1), ctx.optional(3), -1)
    return [ctx.emit("cast", [multiply(ctx, a, b)], {"to": "i32"})]


@lowers("ConvInteger")
def conv_integer(ctx: Context) -> list[Value]:
    """Convolution of 8-bit tensors; pads are the zero point. Sums are exact up to 2^24, then right to 6e-8."""
    weights = _centred(ctx, ctx.known(ctx.input(1), "its weight"), _known(ctx, 3, "its zero point"), 0)
    assert isinstance(weights, Const)
    y = convolve(ctx, _centred(ctx, ctx.input(0), ctx.optional(2), 1), weights, None)
    return [ctx.emit("cast", [y], {"to": "i32"})]


@lowers("QLinearMatMul")
def qlinear_matmul(ctx: Context) -> list[Value]:
    """Restored, multiplied, quantised."""
    a, b = (
        restored(ctx, x, scale, zero, _zero_axis(ctx, scale, x, axis))
        for x, scale, zero, axis in (
            (ctx.input(0), ctx.input(1), ctx.input(2), -2),
            (ctx.input(3), ctx.input(4), ctx.input(5), -1),
        )
    )
    return [quantised(ctx, multiply(ctx, a, b), ctx.input(6), ctx.input(7))]


@lowers("QLinearConv")
def qlinear_conv(ctx: Context) -> list[Value]:
    """Restored, convolved, quantised; the bias counts in steps of input times weights."""
    x = restored(ctx, ctx.input(0), ctx.input(1), ctx.input(2))
    names = ("its weight", "its weight's scale", "its weight's zero point")
    values, scale, zero = (ctx.known(ctx.input(3 + i), name) for i, name in enumerate(names))
    weights = restored(ctx, values, scale, zero)
    assert isinstance(weights, Const)
    bias = _known(ctx, 8, "its bias")
    if bias is not None:
        step = ctx.known(ctx.input(1), "its input's scale").load() * scale.load()
        bias = of_integers(bias, ctx.array(np.asarray(step, np.float32).reshape(-1), "steps"))
    return [quantised(ctx, convolve(ctx, x, weights, bias), ctx.input(6), ctx.input(7))]
