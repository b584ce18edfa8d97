"""Quantised operators: integers as they are stored, computed in float32 between."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Attr
from ..model import dtype_name
from .context import Const, Context, Value, lowers
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
    """(x - zero) scale in float32. A constant stays stored as it is."""
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
    """To uint8 over the range of x and zero: values, scale, zero point."""
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


def _one() -> np.ndarray:
    return np.ones((), np.float32)


@lowers("MatMulInteger")
def matmul_integer(ctx: Context) -> list[Value]:
    """Products of 8-bit matrices. Sums are exact up to 2^24, then right to 6e-8."""
    a, b = ctx.input(0), ctx.input(1)
    for zero in (ctx.optional(2), ctx.optional(3)):
        if zero is not None and prod(ctx.shape(zero)) != 1:
            raise ctx.error("a zero point for each row or column is not supported")
    one = ctx.array(_one(), "one")
    x = restored(ctx, a, one, ctx.optional(2))
    w = widened(ctx, b, ctx.optional(3)) if isinstance(b, Const) else restored(ctx, b, one, ctx.optional(3))
    return [ctx.emit("cast", [multiply(ctx, x, w)], {"to": "i32"})]


@lowers("ConvInteger")
def conv_integer(ctx: Context) -> list[Value]:
    """Convolution of 8-bit tensors; pads are the zero point. Sums are exact up to 2^24, then right to 6e-8."""
    x, zero = ctx.input(0), ctx.optional(3)
    if zero is not None and prod(ctx.shape(zero)) != 1:
        raise ctx.error("a zero point for each channel is not supported")
    weights = widened(ctx, ctx.known(ctx.input(1), "its weight"), zero)
    y = convolve(ctx, restored(ctx, x, ctx.array(_one(), "one"), ctx.optional(2)), weights, False)
    return [ctx.emit("cast", [y], {"to": "i32"})]


def widened(ctx: Context, weights: Const, zero: Value | None) -> Const:
    """Constant integers less their zero point, as float32."""
    shift = 0 if zero is None else int(ctx.known(zero, "its zero point").load().item())
    return weights.converted("f32", lambda v: v.astype(np.float32) - np.float32(shift), f"less{shift}")


@lowers("QLinearMatMul")
def qlinear_matmul(ctx: Context) -> list[Value]:
    """Restored, multiplied, quantised."""
    a = restored(ctx, ctx.input(0), ctx.input(1), ctx.input(2))
    b = restored(ctx, ctx.input(3), ctx.input(4), ctx.input(5))
    y = multiply(ctx, a, b)
    return [quantised(ctx, y, ctx.input(6), ctx.input(7))]
