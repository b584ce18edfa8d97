"""Quantised operators. Where the steps are constants, products are those of restored operands, rounded again: passes
make them operators on bytes. Else products of integers are exact: operands less their zero points are whole numbers in
float32, sums are int32 (attribute ``sums`` of conv, dwconv and matmul), and quantised again as by onnxruntime.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from ..ir import Attr
from ..stated import dtype_name
from .constant import DOUBLE_BLOCK, Const, of_blocks, of_integers, stored_form
from .context import Context, Value, lowers
from .convolution import convolve
from .elementwise import emit_binary
from .linear import multiply
from .shape import expanded


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


def chosen(ctx: Context, x: Value, op: str, attrs: dict[str, Attr]) -> Value:
    """The result of ``op``, which chooses among integers of 8 bits; int8 goes in as its number plus 128."""
    if ctx.dtype(x) == "u8":
        return ctx.emit(op, [x], attrs)
    flip = np.arange(256, dtype=np.uint8) ^ 128
    y = ctx.emit(op, [ctx.emit("table_u8", [x, ctx.array(flip, "flip")], {})], attrs)
    return ctx.emit("table_u8", [y, ctx.array(flip.view(np.int8), "unflip")], {})


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
    x, scale, block = ctx.input(0), ctx.input(1), ctx.integer("block_size", 0)
    bits = ctx.integer("bits", 8)  # of an expansion (graph/contrib)
    ctx.attr("output_dtype")
    if block and isinstance(x, Const):
        return [_of_blocks(ctx, x, scale, block, bits)]
    return [restored(ctx, x, scale, ctx.optional(2), _axis(ctx, x, scale))]


def _of_blocks(ctx: Context, x: Const, scale: Value, block: int, bits: int) -> Const:
    """The constant with a scale and a zero point for each block along the axis, or what is added last, and what scales
    are multiples of (inputs 3 and 4, which an importer makes).
    """
    zero, least, factors = ctx.optional(2), ctx.optional(3), ctx.optional(4)
    axis = ctx.axis(ctx.integer("axis", 1), len(x.shape))
    if not isinstance(scale, Const) or not isinstance(zero, Const | None) or not isinstance(least, Const | None):
        raise ctx.error("scales in blocks are supported as constants only")
    wanted = tuple(-(-d // block) if i == axis else d for i, d in enumerate(x.shape))
    given = (scale, zero, least)
    if len(x.shape) != 2 or block < 1 or any(v is not None and v.shape != wanted for v in given):
        raise ctx.error(f"scales of shape {scale.shape} do not fit blocks of {block} of shape {x.shape}")
    if bits == 4 and least is None:
        x, zero = _halves(ctx, x, zero, wanted)
    value = of_blocks(x, scale, zero, axis, block, bits, least)
    if factors is not None and value.narrow is not None:
        runs = (1 if least is None else 2) * (x.shape[1] // DOUBLE_BLOCK)
        if not isinstance(factors, Const) or axis != 1 or factors.shape != (x.shape[0], runs):
            raise ctx.error(f"factors of scales do not fit double blocks of shape {x.shape}")
        value.narrow = replace(value.narrow, factors=factors)
    return value


def _halves(ctx: Context, x: Const, zero: Const | None, shape: tuple[int, ...]) -> tuple[Const, Const | None]:
    """Integers of 4 bits and their zero points as forms of panels hold them: with zero points they are 0 to 15, without
    they have a sign.
    """
    if x.dtype == "u8" and zero is None:
        return x, ctx.array(np.zeros(shape, np.uint8), "zeros")
    if x.dtype == "i8" and zero is not None:
        raised = [v.converted("u8", lambda a: (a + np.int8(8)).astype(np.uint8), "raised8") for v in (x, zero)]
        return raised[0], raised[1]
    return x, zero


@lowers("DynamicQuantizeLinear")
def dynamic_quantize(ctx: Context) -> list[Value]:
    """Quantise to uint8 over the range of x and zero; return values, scale, zero point."""
    x = ctx.input(0)
    measured = ctx.emit("byte_steps", [x], {"part": "all"})
    scale, zero = (ctx.reshape(ctx.slice(measured, [i], [1], [1]), ()) for i in range(2))
    y = ctx.emit("quantize", [x, measured], {"to": "u8", "axis": 0})
    return [y, scale, ctx.emit("cast", [zero], {"to": "u8"})]


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


class _Between(NamedTuple):
    """Two operands in float32, and the steps of their product."""

    first: Value
    second: Value
    scale: Value
    zero: Value


def _known(ctx: Context, index: int, what: str) -> Const | None:
    value = ctx.optional(index)
    return None if value is None else ctx.known(value, what)


def _product(ctx: Context, a: Value, zero_a: Value | None, b: Value, zero_b: Value | None) -> Value:
    """The product of two matrices of integers, int32."""
    return multiply(ctx, _centred(ctx, a, zero_a, -2), _centred(ctx, b, zero_b, -1), "i32")


def _convolution(ctx: Context, zero_x: Value | None, w: int, zero_w: int) -> Value:
    """The convolution of integers, int32, of input 0 and the weight at input ``w``, its zero point at ``zero_w``."""
    weights = _centred(ctx, ctx.known(ctx.input(w), "its weight"), _known(ctx, zero_w, "its zero point"), 0)
    assert isinstance(weights, Const)
    return convolve(ctx, _centred(ctx, ctx.input(0), zero_x, 1), weights, None, "i32")


@lowers("MatMulInteger")
def matmul_integer(ctx: Context) -> list[Value]:
    """Products of 8-bit matrices, exact; sums wrap as int32."""
    return [_product(ctx, ctx.input(0), ctx.optional(2), ctx.input(1), ctx.optional(3))]


@lowers("ConvInteger")
def conv_integer(ctx: Context) -> list[Value]:
    """Convolution of 8-bit tensors, exact; pads are the zero point, sums wrap as int32."""
    return [_convolution(ctx, ctx.optional(2), 1, 3)]


def _requantised(ctx: Context, sums: Value, steps: tuple[Value, Value], index: int, bias: Value | None) -> Value:
    """Sums of products of operands with these steps, in steps of input ``index``; its zero point follows.

    As onnxruntime: (sums + bias) in float32, times step step / step of the result, each rounded to float32, then
    rounded half to even. Biases, and steps of the second operand, belong to columns or channels.
    """
    scale, zero = ctx.input(index), ctx.input(index + 1)
    if prod(ctx.shape(scale)) != 1 or prod(ctx.shape(zero)) != 1 or prod(ctx.shape(steps[0])) != 1:
        raise ctx.error("scales of the first operand and of the result are supported for the whole tensor only")
    first, second, result = (ctx.reshape(v, (prod(ctx.shape(v)),)) for v in (*steps, scale))
    ratio = _combined(ctx, _combined(ctx, first, second, "mul"), result, "div")
    axis = 1 if ctx.node.op_type == "QLinearConv" else len(ctx.shape(sums)) - 1
    count = max(prod(ctx.shape(v)) for v in (ratio, bias) if v is not None)
    if count != 1 and (axis < 0 or ctx.shape(sums)[axis] != count):
        raise ctx.error(f"{count} scales or biases do not fit a result of shape {ctx.shape(sums)}")
    inputs = [sums, _repeated(ctx, ratio, count), _repeated(ctx, zero, count)]
    if bias is not None:
        inputs.append(_repeated(ctx, bias, count))
    return ctx.emit("quantize", inputs, {"to": ctx.dtype(zero), "axis": max(axis, 0) if count != 1 else 0})


def _combined(ctx: Context, a: Value, b: Value, kind: str) -> Value:
    """A product or quotient of float32, at once where both are constants."""
    if isinstance(a, Const) and isinstance(b, Const):
        return ctx.array((np.multiply if kind == "mul" else np.divide)(a.load(), b.load()), "ratio")
    return emit_binary(ctx, a, b, kind)


def _repeated(ctx: Context, v: Value, count: int) -> Value:
    """One number as ``count``; as many stay as they are."""
    if isinstance(v, Const):
        return ctx.array(np.broadcast_to(v.load().reshape(-1), (count,)).copy(), "repeated")
    return expanded(ctx, ctx.reshape(v, (prod(ctx.shape(v)),)), (count,))


def _between(ctx: Context, a: tuple[int, int, int], b: tuple[int, int, int], y: int, *, axis: int) -> _Between | None:
    """Operands of a product and steps of its result, where all steps are constants and those of the first operand and
    of the result belong to whole tensors. ``a``, ``b``: inputs that are values, scale, zero point; ``axis``: of b.
    """
    steps = [ctx.input(i) for i in (*a[1:], *b[1:], y, y + 1)]
    if not all(isinstance(v, Const) for v in steps) or any(prod(ctx.shape(steps[i])) != 1 for i in (0, 1, 4, 5)):
        return None
    scale_a, zero_a, scale_b, zero_b, scale, zero = steps
    if isinstance(ctx.input(b[0]), Const) or prod(ctx.shape(scale_b)) == 1:
        second = restored(ctx, ctx.input(b[0]), scale_b, zero_b, axis if prod(ctx.shape(scale_b)) != 1 else 0)
        if isinstance(second, Const) and stored_form(second, axis)[0] != "s8":
            return None
        return _Between(restored(ctx, ctx.input(a[0]), scale_a, zero_a), second, scale, zero)
    return None


@lowers("QLinearMatMul")
def qlinear_matmul(ctx: Context) -> list[Value]:
    """Integers multiplied, the sums quantised."""
    b = ctx.input(3)
    found = _between(ctx, (0, 1, 2), (3, 4, 5), 6, axis=max(len(ctx.shape(b)) - 1, 0))
    if found is not None:
        return [quantised(ctx, multiply(ctx, found.first, found.second), found.scale, found.zero)]
    sums = _product(ctx, ctx.input(0), ctx.input(2), b, ctx.input(5))
    return [_requantised(ctx, sums, (ctx.input(1), ctx.input(4)), 6, None)]


@lowers("QLinearConv")
def qlinear_conv(ctx: Context) -> list[Value]:
    """Integers convolved, the sums quantised; the bias counts in steps of input times weights."""
    bias = ctx.optional(8)
    found = _between(ctx, (0, 1, 2), (3, 4, 5), 6, axis=0)
    if found is not None and isinstance(found.second, Const) and (bias is None or isinstance(bias, Const)):
        wide = None if bias is None else of_integers(bias, _products(ctx, ctx.input(1), ctx.input(4), bias.shape))
        return [quantised(ctx, convolve(ctx, found.first, found.second, wide), found.scale, found.zero)]
    return [_requantised(ctx, _convolution(ctx, ctx.input(2), 3, 5), (ctx.input(1), ctx.input(4)), 6, bias)]


def _products(ctx: Context, first: Value, second: Value, shape: tuple[int, ...]) -> Const:
    """The steps of a bias: those of the input times those of the weights."""
    assert isinstance(first, Const)
    assert isinstance(second, Const)
    steps = first.load().reshape(-1) * second.load().reshape(-1)
    return ctx.array(np.broadcast_to(steps, shape).astype(np.float32), "steps")
