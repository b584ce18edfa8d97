"""Element by element: activations, arithmetic, normalisation by constants, casts."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from flexnn._core import ENUMS

from ..build import NO_ACT
from ..evaluate.elementwise import converted
from ..ir import DTYPES
from ..operators import computes
from ..stated import dtype_name
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
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
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
    """A function of each element: of float32, or one that has no alpha and beta, of another type."""
    dtype = ctx.dtype(x)
    if dtype == "f32" and kind in ENUMS["unary_kind"]:
        return ctx.emit("unary", [x], {"kind": kind, "alpha": alpha, "beta": beta})
    if kind == "relu":
        return emit_binary(ctx, x, number(ctx, x, 0, "zero"), "max")
    if not computes(kind, dtype):
        raise ctx.error(f"{kind} of {dtype} is not computed at run time")
    return ctx.emit("pointwise", [x], {"kind": kind})


def emit_binary(ctx: Context, a: Value, b: Value, kind: str) -> Value:
    """A binary node over numbers of one type; broadcasting."""
    dtype = ctx.dtype(a)
    if dtype != ctx.dtype(b):
        raise ctx.error(f"inputs have different types: {dtype}, {ctx.dtype(b)}")
    if dtype == "f32" and kind in ENUMS["binary_kind"]:
        return ctx.emit("binary", [a, b], {"kind": kind, **NO_ACT})
    if not computes(kind, dtype):
        raise ctx.error(f"{kind} of {dtype} is not computed at run time")
    return ctx.emit("pointwise", [a, b], {"kind": kind})


def emit_cast(ctx: Context, x: Value, to: str) -> Value:
    """``x`` as another type; a constant becomes one again."""
    if ctx.dtype(x) == to:
        return x
    if isinstance(x, Const):
        return x.converted(to, lambda v: converted(v, DTYPES[to]), "cast")
    return ctx.emit("cast", [x], {"to": to})


def number(ctx: Context, like: Value, value: float, suffix: str) -> Const:
    """A constant of one number, of the type of ``like``."""
    return ctx.array(np.array(value, DTYPES[ctx.dtype(like)]), suffix)


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
            return [_clipped(ctx, x, *given)]
        bounds = [ctx.constant(i, what) for i, what in ((1, "its minimum"), (2, "its maximum"))]
        low = -math.inf if bounds[0] is None else float(bounds[0].item())
        high = math.inf if bounds[1] is None else float(bounds[1].item())
    if low == 0 and high == math.inf:
        return [emit_unary(ctx, x, "relu")]
    if ctx.dtype(x) != "f32":
        return [_clipped(ctx, x, number(ctx, x, low, "low"), number(ctx, x, high, "high"))]
    return [emit_unary(ctx, x, "clip", low, high)]


def _clipped(ctx: Context, x: Value, low: Value | None, high: Value | None) -> Value:
    y = x if low is None else emit_binary(ctx, x, low, "max")
    return y if high is None else emit_binary(ctx, y, high, "min")


def aligned(ctx: Context, a: Value, b: Value) -> Value:
    """Operand b of an arithmetic node. Before opset 7 it broadcasts only if told to, from attribute axis on."""
    if ctx.opset >= 7 or not ctx.integer("broadcast", 0):
        return b
    rank, own = len(ctx.shape(a)), ctx.shape(b)
    axis = ctx.axis(ctx.integer("axis", rank - len(own)), rank) if own else 0
    return ctx.reshape(b, own + (1,) * (rank - axis - len(own)))


@lowers(*_BINARY)
def binary(ctx: Context) -> list[Value]:
    """Arithmetic with numpy's broadcasting."""
    a = ctx.input(0)
    b = aligned(ctx, a, ctx.input(1))
    kind = _BINARY[ctx.node.op_type]
    if kind == "mul" and isinstance(a, Const) and isinstance(b, Const):
        product = rescaled(a, b) or rescaled(b, a)
        if product:
            return [product]
    if kind == "pow":
        return [_power(ctx, a, b)]
    return [emit_binary(ctx, a, b, kind)]


def _power(ctx: Context, a: Value, b: Value) -> Value:
    """The power, of the type of the base. Squares and roots are not left to pow."""
    dtype, is_float = ctx.dtype(a), ctx.dtype(a) in ("f32", "f64")
    if isinstance(b, Const) and b.shape in ((), (1,)):
        exponent = float(b.load().item())
        if exponent == 2:
            return emit_binary(ctx, a, a, "mul")
        if exponent == 0.5 and is_float:
            return emit_unary(ctx, a, "sqrt")
    if isinstance(b, Const) and is_float:
        b = ctx.array(b.load().astype(DTYPES[dtype]), "exponent")
    wide = dtype
    if not is_float and ctx.dtype(b) != dtype:
        wide = "f64" if ctx.dtype(b) in ("f32", "f64") else "i64"
    return emit_cast(ctx, emit_binary(ctx, emit_cast(ctx, a, wide), emit_cast(ctx, b, wide), "pow"), dtype)


@lowers("Mod")
def mod(ctx: Context) -> list[Value]:
    """The remainder has the sign of the divisor, or with fmod, of the dividend."""
    kind = "fmod" if ctx.integer("fmod", 0) else "mod"
    return [emit_binary(ctx, ctx.input(0), ctx.input(1), kind)]


@lowers(*_VARIADIC)
def variadic(ctx: Context) -> list[Value]:
    """Sum, Mean, Max, Min of any number of inputs."""
    values = [ctx.input(i) for i in range(len(ctx.inputs))]
    y = values[0]
    for value in values[1:]:
        y = emit_binary(ctx, y, value, _VARIADIC[ctx.node.op_type])
    if ctx.node.op_type == "Mean" and len(values) > 1:
        y = emit_binary(ctx, y, number(ctx, y, 1 / len(values), "factor"), "mul")
    return [y]


@lowers("PRelu")
def prelu(ctx: Context) -> list[Value]:
    """A slope for each element below zero, broadcast."""
    x, slope = ctx.input(0), ctx.input(1)
    own, rank = ctx.shape(slope), len(ctx.shape(x))
    if ctx.opset < 7 and len(own) == 1 and own[0] > 1:  # one slope for each channel
        slope = ctx.reshape(slope, own + (1,) * (rank - 2))
    if ctx.dtype(x) == "f32":
        return [emit_binary(ctx, x, slope, "prelu")]
    below = emit_binary(ctx, x, number(ctx, x, 0, "zero"), "less")
    return [emit_choice(ctx, below, emit_binary(ctx, x, slope, "mul"), x)]


def emit_choice(ctx: Context, condition: Value, a: Value, b: Value) -> Value:
    """``a`` where the condition holds, elsewhere ``b``."""
    return ctx.emit("pointwise", [a, b, condition], {"kind": "where"})


@lowers("Shrink")
def shrink(ctx: Context) -> list[Value]:
    """Numbers outside [-lambd, lambd], brought nearer to zero; zero inside."""
    x, bias, edge = ctx.input(0), ctx.number("bias", 0.0), ctx.number("lambd", 0.5)
    if ctx.dtype(x) not in ("f32", "f64"):
        raise ctx.error(f"of {ctx.dtype(x)} is not computed at run time")
    amount, zero = number(ctx, x, bias, "bias"), number(ctx, x, 0, "zero")
    below = emit_binary(ctx, x, number(ctx, x, -edge, "low"), "less")
    above = emit_binary(ctx, number(ctx, x, edge, "high"), x, "less")
    y = emit_choice(ctx, above, emit_binary(ctx, x, amount, "sub"), zero)
    return [emit_choice(ctx, below, emit_binary(ctx, x, amount, "add"), y)]


def _swish(ctx: Context, x: Value) -> Value:
    alpha = ctx.number("alpha", 1.0)
    if alpha == 1 and ctx.dtype(x) == "f32":
        return emit_unary(ctx, x, "silu")
    scaled = x if alpha == 1 else emit_binary(ctx, x, number(ctx, x, alpha, "alpha"), "mul")
    return emit_binary(ctx, x, emit_unary(ctx, scaled, "sigmoid"), "mul")


@lowers("Swish")
def swish(ctx: Context) -> list[Value]:
    """X sigmoid(alpha x)."""
    return [_swish(ctx, ctx.input(0))]


@lowers("SwiGLU")
def swiglu(ctx: Context) -> list[Value]:
    """A sigmoid(alpha a) b."""
    return [emit_binary(ctx, _swish(ctx, ctx.input(0)), ctx.input(1), "mul")]


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
    """The input itself; Dropout does nothing at inference, nor with a ratio of 0, as some exporters leave it."""
    if ctx.node.op_type == "Dropout":
        for name in ("ratio", "seed", "is_test", "consumed_inputs"):
            ctx.attr(name)
        training, ratio = ctx.constant(2, "training_mode"), ctx.constant(1, "ratio")
        if training is not None and training.any() and (ratio is None or ratio.any()):
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
    return [emit_cast(ctx, x, to)]


@lowers("CastLike")
def cast_like(ctx: Context) -> list[Value]:
    """Conversion to the type of another value."""
    x, to = ctx.input(0), ctx.dtype(ctx.input(1))
    ctx.only("saturate", 1, "only for 8-bit floats")
    return [emit_cast(ctx, x, to)]
