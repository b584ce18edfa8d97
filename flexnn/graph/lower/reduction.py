"""Reductions, softmax, and normalisation over neighbours or instances."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import DTYPES, Attr
from ..operators import reduces
from ..strided import broadcast
from .context import Context, Value, lowers
from .elementwise import emit_binary, emit_cast, emit_choice, emit_unary, number
from .shape import expanded
from .spatial import from_image, to_image

POSITIONS_MAX = 256
"""Positions on an axis that 8 bits number."""
_KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}


@lowers(*_KINDS)
def reduce(ctx: Context) -> list[Value]:
    """Axes are an attribute at first, an input since opset 18 (ReduceSum: 13)."""
    x, kind = ctx.input(0), _KINDS[ctx.node.op_type]
    as_input = ctx.opset >= (13 if ctx.node.op_type == "ReduceSum" else 18)
    axes = (ctx.constant_ints(1, "its axes") or []) if as_input else ctx.integers("axes")
    nothing = ctx.integer("noop_with_empty_axes", 0)
    keepdims = ctx.integer("keepdims", 1)
    rank = len(ctx.shape(x))
    if not axes and (nothing or not rank):  # over no axis: what is not the reduction itself stays to be done
        alone = ctx.reshape(x, (*ctx.shape(x), 1))
        return [_reduced(ctx, alone, kind, [rank], 0)]
    axes = sorted({ctx.axis(a, rank) for a in axes}) if axes else list(range(rank))
    return [_reduced(ctx, x, kind, axes, keepdims)]


def _reduced(ctx: Context, x: Value, kind: str, axes: list[int], keepdims: int) -> Value:
    """Reduce numbers of any type; roots and logarithms of integers go through float64."""
    dtype = ctx.dtype(x)
    is_mean = kind == "mean" and dtype not in ("f32", "f64") and len(axes) > 1  # their means cannot be taken in turn
    via = ("u64" if dtype == "u64" else "i64") if is_mean else dtype if reduces(kind, dtype) else "f64"
    if dtype == "bool" and via != dtype:
        raise ctx.error(f"{kind} of {dtype} is not computed at run time")
    attrs: dict[str, Attr] = {"kind": "sum" if is_mean else kind, "axes": axes, "keepdims": keepdims}
    y: Value = ctx.emit("reduction", [emit_cast(ctx, x, via)], attrs)
    if is_mean:
        y = emit_binary(ctx, y, number(ctx, y, prod(ctx.shape(x)[a] for a in axes), "count"), "div")
    return emit_cast(ctx, y, dtype)


@lowers("ArgMax", "ArgMin")
def argmax(ctx: Context) -> list[Value]:
    """Position of the largest or smallest element of an axis."""
    x = ctx.input(0)
    axis = ctx.axis(ctx.integer("axis", 0), len(ctx.shape(x)))
    y = _argmax(ctx, x, axis, int(ctx.node.op_type == "ArgMin"), int(bool(ctx.integer("select_last_index", 0))))
    return [y if ctx.integer("keepdims", 1) else _without(ctx, y, axis)]


@lowers("ArgMax.u8")
def few_positions(ctx: Context) -> list[Value]:
    """Position of the largest element of an axis, without that axis, in 8 bits (graph/reductions.py)."""
    x = ctx.input(0)
    axis = ctx.axis(ctx.integer("axis", 0), len(ctx.shape(x)))
    if ctx.shape(x)[axis] > POSITIONS_MAX:
        raise ctx.error(f"{ctx.shape(x)[axis]} positions on axis {axis}: the model declares at most {POSITIONS_MAX}")
    return [emit_cast(ctx, _without(ctx, _argmax(ctx, x, axis), axis), "u8")]


def _argmax(ctx: Context, x: Value, axis: int, is_min: int = 0, is_last: int = 0) -> Value:
    return ctx.emit("argmax", [x], {"axis": axis, "is_min": is_min, "is_last": is_last})


def _without(ctx: Context, x: Value, axis: int) -> Value:
    shape = ctx.shape(x)
    return ctx.reshape(x, shape[:axis] + shape[axis + 1 :])


@lowers("Hardmax")
def hardmax(ctx: Context) -> list[Value]:
    """One at the first of the largest; over one axis, before opset 13 over that axis and all behind it."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    axis = ctx.axis(ctx.integer("axis", -1 if ctx.opset >= 13 else 1), len(shape))
    if ctx.opset < 13:
        x = ctx.reshape(x, (prod(shape[:axis]), prod(shape[axis:])))
        axis = 1
    values = ctx.array(np.array([0, 1], DTYPES[ctx.dtype(x)]), "values")
    top = _without(ctx, _argmax(ctx, x, axis), axis)
    return [ctx.reshape(ctx.emit("one_hot", [top, values], {"axis": axis, "depth": ctx.shape(x)[axis]}), shape)]


@lowers("CumSum", "CumProd")
def cumulated(ctx: Context) -> list[Value]:
    """Running sums or products along an axis."""
    x, given = ctx.input(0), ctx.constant(1, "its axis")
    if given is not None and given.size != 1:
        raise ctx.error(f"its axis of shape {given.shape} is not a scalar")
    attrs: dict[str, Attr] = {"axis": ctx.axis(0 if given is None else int(given.item()), len(ctx.shape(x)))}
    attrs["is_product"] = int(ctx.node.op_type == "CumProd")
    attrs |= {f"is_{name}": int(bool(ctx.integer(name, 0))) for name in ("exclusive", "reverse")}
    return [ctx.emit("cumulate", [x], attrs)]


@lowers("LpNormalization")
def lp_normalization(ctx: Context) -> list[Value]:
    """Divided by the 1- or 2-norm along an axis; zero where that is zero."""
    x, p = ctx.input(0), ctx.integer("p", 2)
    if p not in (1, 2):
        raise ctx.error(f"p={p} is neither 1 nor 2")
    axis = ctx.axis(ctx.integer("axis", -1), len(ctx.shape(x)))
    norm = _reduced(ctx, x, f"l{p}", [axis], 1)
    is_zero = emit_binary(ctx, norm, number(ctx, x, 0, "zero"), "equal")
    return [emit_binary(ctx, x, emit_choice(ctx, is_zero, number(ctx, x, 1, "one"), norm), "div")]


@lowers("GlobalLpPool")
def global_lp_pool(ctx: Context) -> list[Value]:
    """The p-norm over all spatial dimensions."""
    x, p = ctx.input(0), ctx.integer("p", 2)
    axes = list(range(2, len(ctx.shape(x))))
    if not axes or p < 1:
        raise ctx.error(f"p={p} of an input of shape {ctx.shape(x)} is not possible")
    if p <= 2:
        return [_reduced(ctx, x, f"l{p}", axes, 1)]
    power = emit_binary(ctx, emit_unary(ctx, x, "abs"), number(ctx, x, p, "p"), "pow")
    return [emit_binary(ctx, _reduced(ctx, power, "sum", axes, 1), number(ctx, x, 1 / p, "root"), "pow")]


@lowers("MeanVarianceNormalization")
def mean_variance(ctx: Context) -> list[Value]:
    """Zero mean and unit variance over axes."""
    x = ctx.input(0)
    rank = len(ctx.shape(x))
    axes = sorted({ctx.axis(a, rank) for a in ctx.integers("axes", [0, 2, 3])})
    apart = emit_binary(ctx, x, _reduced(ctx, x, "mean", axes, 1), "sub")
    variance = _reduced(ctx, emit_binary(ctx, apart, apart, "mul"), "mean", axes, 1)
    deviation = emit_binary(ctx, emit_unary(ctx, variance, "sqrt"), number(ctx, x, 1e-9, "epsilon"), "add")
    return [emit_binary(ctx, apart, deviation, "div")]


@lowers("Softmax", "LogSoftmax")
def softmax(ctx: Context) -> list[Value]:
    """Over one axis; before opset 13 over that axis and all behind it."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    log = int(ctx.node.op_type == "LogSoftmax")
    if ctx.opset >= 13:
        return [ctx.emit("softmax", [x], {"axis": ctx.axis(ctx.integer("axis", -1), len(shape)), "log": log})]
    axis = ctx.axis(ctx.integer("axis", 1), len(shape))
    if prod(shape[axis + 1 :]) == 1:
        return [ctx.emit("softmax", [x], {"axis": axis, "log": log})]
    flat = ctx.reshape(x, (prod(shape[:axis]), prod(shape[axis:])))
    return [ctx.reshape(ctx.emit("softmax", [flat], {"axis": 1, "log": log}), shape)]


@lowers("LRN")
def lrn(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__LRN.html."""
    x = ctx.input(0)
    if len(ctx.shape(x)) not in (3, 4):
        raise ctx.error(f"input of shape {ctx.shape(x)}: only one or two spatial dimensions are supported")
    attrs: dict[str, Attr] = {"size": ctx.integer("size", 1), "alpha": ctx.number("alpha", 0.0001)}
    attrs |= {"beta": ctx.number("beta", 0.75), "bias": ctx.number("bias", 1.0)}
    y = ctx.emit("lrn", [to_image(ctx, x)], attrs)
    return [from_image(ctx, y, len(ctx.shape(x)) - 2)]


@lowers("InstanceNormalization")
def instance_normalization(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html."""
    x, scale, bias = ctx.input(0), ctx.input(1), ctx.input(2)
    rank = len(ctx.shape(x))
    if rank < 3:
        raise ctx.error(f"input of shape {ctx.shape(x)} has no spatial dimensions")
    ctx.attr("consumed_inputs")
    last = ctx.transpose(x, [0, *range(2, rank), 1])
    y = ctx.emit("instance_norm", [last, scale, bias], {"epsilon": ctx.number("epsilon", 1e-5)})
    return [ctx.transpose(y, [0, rank - 1, *range(1, rank - 1)])]


@lowers("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def layer_normalization(ctx: Context) -> list[Value]:
    """Over ``axis`` and all behind it; https://onnx.ai/onnx/operators/onnx__LayerNormalization.html."""
    x, scale, bias = ctx.input(0), ctx.input(1), ctx.optional(2)
    shape = ctx.shape(x)
    axis = ctx.axis(ctx.integer("axis", -1), len(shape))
    ctx.only("stash_type", 1, "at run time only float32 is computed")
    flat = (*shape[:axis], prod(shape[axis:]))
    inputs: list[Value] = [ctx.reshape(x, flat)]
    for vector in (scale, bias):
        if vector is None:
            continue
        if broadcast(ctx.shape(vector), shape[axis:]) != shape[axis:]:
            raise ctx.error(f"scale or bias of shape {ctx.shape(vector)} does not fit {shape[axis:]}")
        inputs.append(ctx.reshape(expanded(ctx, vector, shape[axis:]), flat[-1:]))
    is_rms = int(ctx.node.op_type != "LayerNormalization")
    attrs: dict[str, Attr] = {"is_rms": is_rms, "epsilon": ctx.number("epsilon", 1e-5)}
    return [ctx.reshape(ctx.emit("layer_norm", inputs, attrs), shape)]


@lowers("GroupNormalization")
def group_normalization(ctx: Context) -> list[Value]:
    """Over groups of channels; scale and bias for each channel, before opset 21 for each group."""
    x, groups = ctx.input(0), ctx.integer("num_groups", 0)
    shape = ctx.shape(x)
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise ctx.error(f"input of shape {shape} does not divide into num_groups {groups}")
    ctx.only("stash_type", 1, "at run time only float32 is computed")
    each = prod(shape[1:]) // groups
    ones = expanded(ctx, number(ctx, x, 1, "one"), (each,))
    attrs: dict[str, Attr] = {"is_rms": 0, "epsilon": ctx.number("epsilon", 1e-5)}
    y = ctx.reshape(ctx.emit("layer_norm", [ctx.reshape(x, (shape[0], groups, each)), ones], attrs), shape)
    for vector, kind in ((ctx.input(1), "mul"), (ctx.input(2), "add")):
        if ctx.opset < 21:
            vector = expanded(ctx, ctx.reshape(vector, (groups, 1)), (groups, shape[1] // groups))
        y = emit_binary(ctx, y, ctx.reshape(vector, (shape[1],) + (1,) * (len(shape) - 2)), kind)
    return [y]
