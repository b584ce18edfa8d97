"""Reductions, softmax, and normalisation over neighbours or instances."""

from __future__ import annotations

from math import prod

from ..ir import Attr
from ..strided import broadcast
from .context import Context, Value, lowers
from .shape import expanded
from .spatial import from_image, to_image

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
    x = ctx.input(0)
    if ctx.dtype(x) != "f32":
        raise ctx.error(f"input has type {ctx.dtype(x)}; at run time only float32 is computed")
    as_input = ctx.opset >= (13 if ctx.node.op_type == "ReduceSum" else 18)
    axes = (ctx.constant_ints(1, "its axes") or []) if as_input else ctx.integers("axes")
    nothing = ctx.integer("noop_with_empty_axes", 0)
    keepdims = ctx.integer("keepdims", 1)
    rank = len(ctx.shape(x))
    if not axes and (nothing or not rank):  # over no axis: what is not the reduction itself stays to be done
        alone = ctx.reshape(x, (*ctx.shape(x), 1))
        return [ctx.emit("reduction", [alone], {"kind": _KINDS[ctx.node.op_type], "axes": [rank], "keepdims": 0})]
    axes = sorted({ctx.axis(a, rank) for a in axes}) if axes else list(range(rank))
    attrs: dict[str, Attr] = {"kind": _KINDS[ctx.node.op_type], "axes": axes, "keepdims": keepdims}
    return [ctx.emit("reduction", [x], attrs)]


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
