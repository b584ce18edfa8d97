"""Element by element: activations, arithmetic, normalisation by constants, casts."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from ..build import NO_ACT
from ..ir import Attr
from ..model import dtype_name
from .constant import Const, of_integers, rescaled
from .context import Context, Value, lowers

_PLAIN = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "HardSwish": "hardswish",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Abs": "abs",
    "Neg": "neg",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sign": "sign",
    "Erf": "erf",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Mish": "mish",
    "Sin": "sin",
    "Cos": "cos",
}
_WITH_ALPHA = {
    "LeakyRelu": ("leaky_relu", 0.01),
    "Elu": ("elu", 1.0),
    "Celu": ("celu", 1.0),
    "ThresholdedRelu": ("thresholded_relu", 1.0),
}
_WITH_BOTH = {
    "HardSigmoid": ("hardsigmoid", 0.2, "beta", 0.5),
    "Selu": ("selu", 1.67326319217681884765625, "gamma", 1.05070102214813232421875),
}
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow"}
_VARIADIC = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}


def emit_unary(ctx: Context, x: Value, kind: str, alpha: float = 0.0, beta: float = 0.0) -> Value:
    """A unary node over float32."""
    if ctx.dtype(x) != "f32":
        raise ctx.error(f"input has type {ctx.dtype(x)}; at run time only float32 is computed")
    return ctx.emit("unary", [x], {"kind": kind, "alpha": alpha, "beta": beta})


_INTEGER = ("add", "sub", "mul", "div", "max", "min")


def emit_binary(ctx: Context, a: Value, b: Value, kind: str) -> Value:
    """A binary node over float32, or over integers of one type; broadcasting."""
    if ctx.dtype(a) == ctx.dtype(b) in ("i64", "i32", "u8", "i8") and kind in _INTEGER:
        return ctx.emit("pointwise", [a, b], {"kind": kind})
    if {ctx.dtype(a), ctx.dtype(b)} != {"f32"}:
        raise ctx.error(f"inputs have types {ctx.dtype(a)}, {ctx.dtype(b)}; at run time only float32 is computed")
    attrs: dict[str, Attr] = {"kind": kind, **NO_ACT}
    return ctx.emit("binary", [a, b], attrs)


@lowers(*_PLAIN, *_WITH_ALPHA, *_WITH_BOTH)
def unary(ctx: Context) -> list[Value]:
    """Operators of one input; their attributes are ONNX's."""
    operator, x = ctx.node.op_type, ctx.input(0)
    if operator in _PLAIN:
        return [emit_unary(ctx, x, _PLAIN[operator])]
    if operator in _WITH_ALPHA:
        kind, default = _WITH_ALPHA[operator]
        return [emit_unary(ctx, x, kind, ctx.number("alpha", default))]
    kind, alpha, second, beta = _WITH_BOTH[operator]
    return [emit_unary(ctx, x, kind, ctx.number("alpha", alpha), ctx.number(second, beta))]


@lowers("Gelu")
def gelu(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__Gelu.html."""
    exact = ctx.text("approximate", "none") == "none"
    return [emit_unary(ctx, ctx.input(0), "gelu" if exact else "gelu_tanh")]


@lowers("Clip")
def clip(ctx: Context) -> list[Value]:
    """Bounds are attributes before opset 11, inputs since."""
    x = ctx.input(0)
    if ctx.opset < 11:
        low, high = ctx.number("min", -math.inf), ctx.number("max", math.inf)
    else:
        given = [ctx.optional(1), ctx.optional(2)]
        if any(v is not None and (prod(ctx.shape(v)) != 1 or len(ctx.shape(v)) > len(ctx.shape(x))) for v in given):
            raise ctx.error("a bound is not a scalar")
        if ctx.dtype(x) != "f32" or any(isinstance(v, int) for v in given):
            y = x if given[0] is None else emit_binary(ctx, x, given[0], "max")
            return [y if given[1] is None else emit_binary(ctx, y, given[1], "min")]
        bounds = [ctx.constant(i, what) for i, what in ((1, "its minimum"), (2, "its maximum"))]
        low = -math.inf if bounds[0] is None else float(bounds[0].item())
        high = math.inf if bounds[1] is None else float(bounds[1].item())
    if low == 0 and high == math.inf:
        return [emit_unary(ctx, x, "relu")]
    return [emit_unary(ctx, x, "clip", low, high)]


def aligned(ctx: Context, a: Value, b: Value) -> Value:
    """Operand b of an arithmetic node. Before opset 7 it broadcasts only if told to, from attribute axis on."""
    if ctx.opset >= 7 or not ctx.integer("broadcast", 0):
        return b
    rank, own = len(ctx.shape(a)), ctx.shape(b)
    axis = ctx.axis(ctx.integer("axis", rank - len(own)), rank) if own else 0
    return ctx.reshape(b, own + (1,) * (rank - axis - len(own)))


@lowers(*_BINARY)
def binary(ctx: Context) -> list[Value]:
    """Arithmetic with numpy's broadcasting. Squares and roots are not left to pow."""
    a = ctx.input(0)
    b = aligned(ctx, a, ctx.input(1))
    kind = _BINARY[ctx.node.op_type]
    if kind == "mul" and isinstance(a, Const) and isinstance(b, Const):
        product = rescaled(a, b) or rescaled(b, a)
        if product:
            return [product]
    if kind == "pow" and isinstance(b, Const):
        exponent = float(b.load().item()) if b.shape in ((), (1,)) else math.nan
        if exponent == 2:
            return [emit_binary(ctx, a, a, "mul")]
        if exponent == 0.5:
            return [emit_unary(ctx, a, "sqrt")]
        b = ctx.array(b.load().astype(np.float32), "exponent")
    return [emit_binary(ctx, a, b, kind)]


@lowers(*_VARIADIC)
def variadic(ctx: Context) -> list[Value]:
    """Sum, Mean, Max, Min of any number of inputs."""
    values = [ctx.input(i) for i in range(len(ctx.inputs))]
    y = values[0]
    for value in values[1:]:
        y = emit_binary(ctx, y, value, _VARIADIC[ctx.node.op_type])
    if ctx.node.op_type == "Mean" and len(values) > 1:
        y = emit_binary(ctx, y, ctx.array(np.array(1 / len(values), np.float32), "factor"), "mul")
    return [y]


@lowers("PRelu")
def prelu(ctx: Context) -> list[Value]:
    """A slope for each element below zero, broadcast."""
    x, slope = ctx.input(0), ctx.input(1)
    own, rank = ctx.shape(slope), len(ctx.shape(x))
    if ctx.opset < 7 and len(own) == 1 and own[0] > 1:  # one slope for each channel
        slope = ctx.reshape(slope, own + (1,) * (rank - 2))
    return [emit_binary(ctx, x, slope, "prelu")]


@lowers("BatchNormalization")
def batch_normalization(ctx: Context) -> list[Value]:
    """Lower constant statistics to a product and a sum for each channel, which passes fold into convolutions."""
    x = ctx.input(0)
    ctx.only("training_mode", 0, "statistics must be constants")
    ctx.only("spatial", 1, "one statistic for each channel")
    for name in ("momentum", "is_test", "consumed_inputs"):
        ctx.attr(name)  # of training only
    names = ("its scale", "its bias", "its mean", "its variance")
    statistics = [ctx.known(ctx.input(i + 1), name).load().astype(np.float64) for i, name in enumerate(names)]
    scale, bias, mean, variance = statistics
    shape = ctx.shape(x)
    if len(shape) < 2 or any(v.shape != shape[1:2] for v in (scale, bias, mean, variance)):
        raise ctx.error(f"statistics of shapes {scale.shape}, {mean.shape} do not fit an input of shape {shape}")
    factor = scale / np.sqrt(variance + ctx.number("epsilon", 1e-5))
    channel = (shape[1],) + (1,) * (len(shape) - 2)
    y = emit_binary(ctx, x, ctx.array(factor.astype(np.float32).reshape(channel), "scale"), "mul")
    return [emit_binary(ctx, y, ctx.array((bias - mean * factor).astype(np.float32).reshape(channel), "bias"), "add")]


@lowers("Identity", "Dropout")
def identity(ctx: Context) -> list[Value]:
    """The input itself; Dropout does nothing at inference."""
    if ctx.node.op_type == "Dropout":
        for name in ("ratio", "seed", "is_test", "consumed_inputs"):
            ctx.attr(name)
        training = ctx.constant(2, "training_mode")
        if training is not None and training.any():
            raise ctx.error("training_mode is not supported (inference only)")
    return [ctx.input(0)]


@lowers("Cast")
def cast(ctx: Context) -> list[Value]:
    """Conversion between the types there are."""
    x, to = ctx.input(0), dtype_name(ctx.integer("to", 1), f"Cast node {ctx.name!r}")
    ctx.only("saturate", 1, "only for 8-bit floats")
    ctx.attr("round_mode")
    if to == "f16":  # as float32: binding knows that the result is a half
        to = "f32"
    if isinstance(x, Const) and to == "f32" and x.dtype in ("i8", "u8"):
        return [of_integers(x)]
    return [x if ctx.dtype(x) == to else ctx.emit("cast", [x], {"to": to})]


@lowers("CastLike")
def cast_like(ctx: Context) -> list[Value]:
    """Conversion to the type of another value."""
    x, to = ctx.input(0), ctx.dtype(ctx.input(1))
    ctx.only("saturate", 1, "only for 8-bit floats")
    return [x if ctx.dtype(x) == to else ctx.emit("cast", [x], {"to": to})]
