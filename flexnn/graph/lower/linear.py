"""Gemm and MatMul. With a constant second operand they are 1x1 convolutions over rows: h = rows, w = 1."""

from __future__ import annotations

from math import prod

import numpy as np

from flexnn import _core

from ..build import NO_ACT
from ..pack import PanelSource
from ..sources import ArraySource, MappedSource
from ..strided import broadcast
from ..weight_form import FORMS
from .constant import Const, block_form, rows_source, shifted_form, stored_form, tied_source, untransposed
from .context import Context, Value, lowers
from .convolution import emit_conv
from .shape import expanded
from .spatial import Window


def rows_by_constant(
    ctx: Context, x: Value, weights: Const, transposed: bool, scale: float, bias: Const | None, sums: str = "f32"
) -> int:
    """x[..., K] times constant [K, N] (``transposed``: [N, K]) times ``scale``, plus bias [N]: [1, rows, 1, N]."""
    k, n = weights.shape[::-1] if transposed else weights.shape
    rows = prod(ctx.shape(x)[:-1])
    if not rows * n:
        return ctx.empty((1, rows, 1, n), "f32")
    if not transposed and (table := untransposed(weights)) is not None:
        weights, transposed = table, True
    shape = (n, k, 1, 1)
    if transposed:
        source = rows_source(tied_source(weights) or weights.source, (n, k))
    else:
        source = MappedSource(weights.source, lambda v: v.T.reshape(shape), f"turned{shape}", is_view=True)
    scales = None if scale == 1 else ArraySource(np.full(n, scale, np.float32))
    axis = 0 if transposed else 1
    form = block_form(weights, axis) or (shifted_form(weights, axis) if sums == "f32" else None)
    wtype, step, least, factors = form or (*stored_form(weights, axis), None, None)
    bias_source = bias.source if bias else None
    panels = PanelSource(
        "conv", shape, 1, source, bias_source, scales, wtype=wtype, step=step, least=least, factors=factors
    )
    image = ctx.reshape(x, (1, rows, 1, k))
    if sums == "i8" and (not _core.multiplies_rounded(wtype) or k % FORMS[wtype].block):
        sums = "f32"
    return emit_conv(ctx, image, Window([1, 1], [1, 1], [1, 1], [0, 0, 0, 0]), panels, sums)


def _scaled(ctx: Context, value: Value, factor: float) -> Value:
    if factor == 1:
        return value
    if isinstance(value, Const):
        return value.mapped(value.shape, lambda v: (v * np.float32(factor)).astype(np.float32), f"times{factor}")
    return ctx.emit("binary", [value, ctx.array(np.array(factor, np.float32), "factor")], {"kind": "mul", **NO_ACT})


@lowers("Gemm")
def gemm(ctx: Context) -> list[Value]:
    """Alpha A' B' + beta C; https://onnx.ai/onnx/operators/onnx__Gemm.html."""
    a, b, c = ctx.input(0), ctx.input(1), ctx.optional(2)
    alpha, beta = ctx.number("alpha", 1.0), ctx.number("beta", 1.0)
    ctx.attr("broadcast")  # opset < 7: C broadcasts anyway where its shape says so
    if len(ctx.shape(a)) != 2 or len(ctx.shape(b)) != 2:
        raise ctx.error(f"operands of shapes {ctx.shape(a)} and {ctx.shape(b)} are not matrices")
    trans_b = bool(ctx.integer("transB", 0))
    if ctx.integer("transA", 0):
        a = ctx.transpose(a, [1, 0])
    n, k = ctx.shape(b) if trans_b else ctx.shape(b)[::-1]
    rows = ctx.shape(a)[0]
    if ctx.shape(a)[1] != k or {ctx.dtype(a), ctx.dtype(b)} != {"f32"}:
        raise ctx.error(f"operands {ctx.shape(a)} and {ctx.shape(b)} of {ctx.dtype(a)}, {ctx.dtype(b)} do not multiply")
    if c is not None and beta == 0:
        c = None
    if isinstance(b, Const) and k:
        bias = _gemm_bias(c, n, beta)
        y: Value = ctx.reshape(rows_by_constant(ctx, a, b, trans_b, alpha, bias), (rows, n))
        if bias:
            return [y]
    else:
        if trans_b:
            b = ctx.transpose(b, [1, 0])
        y = _scaled(ctx, ctx.emit("matmul", [a, b], {**NO_ACT, "sums": "f32"}), alpha)
    if c is not None:
        y = ctx.emit("binary", [y, _scaled(ctx, c, beta)], {"kind": "add", **NO_ACT})
    return [y]


def _gemm_bias(c: Value | None, n: int, beta: float) -> Const | None:
    """``beta`` times C as [N], where C is constant and the same for each row."""
    if not isinstance(c, Const) or prod(c.shape[:-1]) != 1 or c.shape[-1:] not in ((n,), (1,), ()):
        return None
    return c.mapped(
        (n,), lambda v: np.broadcast_to(v.reshape(-1) * np.float32(beta), (n,)).astype(np.float32), f"row{n}times{beta}"
    )


def _few_batches(ctx: Context, a: Value, b: Value) -> tuple[Value, Value]:
    """The operands, expanded if they broadcast in more alternating runs of dimensions than the core walks (2)."""
    batches = ctx.shape(a)[:-2], ctx.shape(b)[:-2]
    batch = broadcast(*batches)
    if batch is None or len(batch) < 3:  # two dimensions are two runs at most, whatever their sizes are
        return a, b
    own = [(1,) * (len(batch) - len(s)) + s for s in batches]
    kinds = [(x == 1, y == 1) for x, y, d in zip(*own, batch, strict=True) if d > 1]
    if sum(k != before for k, before in zip(kinds[1:], kinds, strict=False)) < 2:
        return a, b
    return expanded(ctx, a, batch + ctx.shape(a)[-2:]), expanded(ctx, b, batch + ctx.shape(b)[-2:])


@lowers("MatMul")
def matmul(ctx: Context) -> list[Value]:
    """numpy.matmul; https://onnx.ai/onnx/operators/onnx__MatMul.html."""
    return [multiply(ctx, ctx.input(0), ctx.input(1))]


@lowers("flexnn.RoundedMatMul")
def matmul_of_rounded_rows(ctx: Context) -> list[Value]:
    """MatMul whose rows may be rounded to 8 bits, in blocks of 32 with a scale each, where the weights have such
    blocks.
    """
    return [multiply(ctx, ctx.input(0), ctx.input(1), "i8")]


@lowers("flexnn.MatMul")
def matmul_of_views(ctx: Context) -> list[Value]:
    """Onnxruntime's FusedMatMul, of operands whose ranks importing does not know."""
    operands = []
    for i, side in enumerate("AB"):
        value = ctx.input(i)
        perm = list(range(len(ctx.shape(value))))
        behind, swapped = ctx.integer(f"transBatch{side}", 0), ctx.integer(f"trans{side}", 0)
        if behind and len(perm) > 2:
            perm = [*perm[1:-1], 0, perm[-1]]
        if swapped and len(perm) > 1:
            perm = [*perm[:-2], perm[-1], perm[-2]]
        operands.append(ctx.transpose(value, perm))
    return [_scaled(ctx, multiply(ctx, operands[0], operands[1]), ctx.number("alpha", 1.0))]


def multiply(ctx: Context, a: Value, b: Value, sums: str = "f32") -> Value:
    """numpy.matmul of float32. ``sums``: i32 of integers, exact; i8 of rows rounded to 8 bits, where the core can."""
    shape_a, shape_b = ctx.shape(a), ctx.shape(b)
    if not shape_a or not shape_b or {ctx.dtype(a), ctx.dtype(b)} != {"f32"}:
        raise ctx.error(f"operands {shape_a} and {shape_b} of {ctx.dtype(a)}, {ctx.dtype(b)} do not multiply")
    if len(shape_a) == 1:
        a = ctx.reshape(a, (1, *shape_a))
    if len(shape_b) == 1:
        b = ctx.reshape(b, (*shape_b, 1))
    if ctx.shape(a)[-1] != ctx.shape(b)[-2]:
        raise ctx.error(f"operands {shape_a} and {shape_b} do not multiply")
    if isinstance(b, Const) and len(b.shape) == 2 and not isinstance(a, Const):
        y: Value = rows_by_constant(ctx, a, b, False, 1.0, None, sums)
        y = ctx.reshape(y, (*ctx.shape(a)[:-1], b.shape[1]))
    elif isinstance(a, Const) and not isinstance(b, Const) and sums == "f32" and ctx.shape(b)[1:] == (1,):
        rows, k = prod(a.shape[:-1]), a.shape[-1]
        row = ctx.reshape(b, (1, k))  # A x is the transposed x' A', in which the rows of A are columns of weights
        y = rows_by_constant(ctx, row, a.reshaped((rows, k)), transposed=True, scale=1.0, bias=None)
        y = ctx.reshape(y, (*a.shape[:-1], 1))
    else:
        own = "f32" if sums == "i8" else sums
        y = ctx.emit("matmul", list(_few_batches(ctx, a, b)), {**NO_ACT, "sums": own})
    shape = list(ctx.shape(y))
    if len(shape_b) == 1:
        del shape[-1]
    if len(shape_a) == 1:
        del shape[-1 if len(shape_b) == 1 else -2]
    return ctx.reshape(y, tuple(shape))
