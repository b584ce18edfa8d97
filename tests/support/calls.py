"""Calls of evaluators: for every operator that numpy computes, inputs of about a given number of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

F32, F64, F16, I64, I32, U8, I8 = (np.dtype(t) for t in ("f4", "f8", "f2", "i8", "i4", "u1", "i1"))
RANDOM = np.random.default_rng(7)


def _words(text: str) -> list[str]:
    return text.split()


PLAIN = _words(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log"
    " Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh"
    " ThresholdedRelu Clip IsNaN IsInf Identity Dropout Flatten Size Shape RandomNormalLike"
)
PAIRS = _words("Add Sub Mul Div Pow Mod Equal Less LessOrEqual Greater GreaterOrEqual PRelu Sum Mean Max Min")
REDUCED = _words("Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare")


@dataclass(frozen=True)
class Called:
    """One call of an evaluator."""

    op: str
    inputs: list[Any]
    attrs: dict[str, Any]
    outputs: int = 1
    opset: int = 22
    wide: bool = False
    """Whether what it needs beside inputs and outputs may be a multiple of them."""

    def __str__(self) -> str:
        shapes = " ".join(f"{i.dtype}{list(i.shape)}" for i in self.inputs if i is not None)
        return f"{self.op}-{self.opset} {shapes} {self.attrs} {self.outputs}"


def x(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    """Return random numbers, some of them zero."""
    if dtype.kind == "f":
        return (RANDOM.standard_normal(shape) * (RANDOM.random(shape) < 0.9)).astype(dtype)
    if dtype.kind == "b":
        return RANDOM.random(shape) < 0.5
    return RANDOM.integers(0, 100, shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def index(size: int, *shape: int) -> np.ndarray:
    """Return indices into ``size`` elements, from both ends."""
    return RANDOM.integers(-size, size, shape)


def scalar(value: float, dtype: np.dtype = I64) -> np.ndarray:
    return np.array(value, dtype)


Make = Callable[..., Called]


def called(op: str, *inputs: Any, outputs: int = 1, opset: int = 22, wide: bool = False, **attrs: Any) -> Called:
    return Called(op, list(inputs), attrs, outputs, opset, wide)


def elementwise(n: int) -> Iterator[Called]:
    side = isqrt(n)
    for op in PLAIN:
        yield called(op, x(n), outputs=2 if op == "Dropout" else 1)
    for op in ("Relu", "Gelu", "Exp", "Sign", "RandomNormalLike"):
        yield called(op, x(side, side, dtype=F16))
        yield called(op, x(side, side, dtype=F64))
    yield called("Gelu", x(n), approximate="tanh")
    yield called("Clip", x(n, dtype=I64), scalar(3), scalar(50))
    for op in PAIRS:
        yield called(op, x(n), x(n))
        yield called(op, x(side, side), x(1, side))
        yield called(op, x(side, 1), x(side))
        yield called(op, x(side, 1, dtype=I64), x(1, side, dtype=I64))
    yield called("Pow", x(n, dtype=I32), x(n, dtype=F32))
    yield called("Mod", x(n), x(n), fmod=1)
    yield called("Sum", x(n), x(1), x(n))
    for op in ("And", "Or", "Xor"):
        yield called(op, x(side, side, dtype=np.dtype("?")), x(side, dtype=np.dtype("?")))
    yield called("Not", x(n, dtype=np.dtype("?")))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield called(op, x(n, dtype=U8), x(1, dtype=U8))
    yield called("BitwiseNot", x(n, dtype=I32))
    yield called("BitShift", x(n, dtype=np.dtype("u8")), x(1, dtype=np.dtype("u8")), direction="LEFT")
    for source in (F32, I64, U8, F16):
        for number in (1, 2, 7, 9, 10, 11):
            yield called("Cast", x(side, side, dtype=source), to=number)
    yield called("CastLike", x(n), x(1, dtype=I8))
    yield called("BitCast", x(n), to=6)
    yield called("Where", x(side, side, dtype=np.dtype("?")), x(side), x(1))
    yield called("Where", x(n, dtype=np.dtype("?")), x(n, dtype=I64), x(n, dtype=I64))


def reductions(n: int) -> Iterator[Called]:
    side = isqrt(n)
    for kind in REDUCED:
        for axes in ([0], [1], [0, 1], []):
            yield called(f"Reduce{kind}", x(side, side), ints(*axes))
        yield called(f"Reduce{kind}", x(2, n // 2, dtype=I64), ints(0), keepdims=0)
        yield called(f"Reduce{kind}", x(n, 1), ints(1))
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1):
            yield called(op, x(side, side), axis=axis)
        yield called(op, x(1, n), axis=-1)
        yield called(op, x(4, side, side // 4), axis=1, opset=11)
    for op in ("CumSum", "CumProd"):
        for flags in ({}, {"reverse": 1}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}):
            yield called(op, x(side, side), scalar(0), **flags)
            yield called(op, x(n, dtype=I64), scalar(0), **flags)
    for p in (1, 2):
        yield called("LpNormalization", x(side, side), p=p)
        yield called("LpNormalization", x(n), p=p)
    yield called("MeanVarianceNormalization", x(4, 4, 4, n // 64))
    yield called("Det", x(max(n // 16, 1), 4, 4))
    yield called("Det", x(side, side))


def shapes(n: int) -> Iterator[Called]:
    side = isqrt(n)
    for target in ([-1], [side, -1], [1, side, side]):
        yield called("Reshape", x(side, side), ints(*target))
    yield called("Squeeze", x(1, side, side), ints(0))
    yield called("Unsqueeze", x(side, side), ints(0, 3))
    yield called("Constant", value_floats=[1.0, 2.0])
    yield called("Transpose", x(side, side))
    yield called("Transpose", x(2, side, side // 2, dtype=U8), perm=[1, 0, 2])
    yield called("Expand", x(1, side), ints(side, 1))
    yield called("Expand", x(1, dtype=U8), ints(n))
    yield called("Tile", x(side), ints(side))
    yield called("Tile", x(2, 3, max(n // 24, 1)), ints(2, 1, 2))
    yield called("Concat", x(n), x(n), x(1), axis=0)
    yield called("Concat", x(side, side), x(side, 2), axis=1)
    yield called("Split", x(side, side), axis=1, outputs=2)
    yield called("ConstantOfShape", ints(side, side))
    yield called("ConstantOfShape", ints(n), value=np.array([3], np.int64))
    for dtype in (F32, I64, I8, F64):
        yield called("Range", scalar(0, dtype), scalar(min(n, 100), dtype), scalar(1, dtype))
    yield called("Range", scalar(0), scalar(n), scalar(1))
    yield called("Range", scalar(0, F32), scalar(n / 4, F32), scalar(0.25, F32))
    yield called("EyeLike", x(side, side, dtype=U8), dtype=1, k=1)
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield called("Pad", x(side, side), ints(1, side // 2, 2, 1), mode=mode)
        yield called("Pad", x(side, side), ints(0, 1, 0, 1), mode=mode)
    yield called("Pad", x(side, side), ints(-1, 2, 1, -1))
    yield called("DepthToSpace", x(1, 4, side // 2, side // 2), blocksize=2)
    yield called("DepthToSpace", x(1, 4, side // 2, side // 2), blocksize=2, mode="CRD")
    yield called("SpaceToDepth", x(1, 1, side // 2 * 2, side // 2 * 2), blocksize=2)
    yield called("CenterCropPad", x(side, side), ints(side + 5, side - 1))
    yield called("ReverseSequence", x(side, side), np.full(side, side // 2))


def picking(n: int) -> Iterator[Called]:
    side = isqrt(n)
    yield called("Slice", x(side, side), ints(1), ints(side), ints(1), ints(2))
    yield called("Slice", x(n), ints(-1), ints(-(1 << 40)), ints(0), ints(-1))
    for axis in (0, 1):
        yield called("Gather", x(side, side), index(side, side), axis=axis)
        yield called("GatherElements", x(side, side), index(side, side, side), axis=axis)
        for dtype in (I64, I32):
            yield called(
                "ScatterElements", x(side, side), index(side, side, side).astype(dtype), x(side, side), axis=axis
            )
    yield called("Gather", x(16), index(16, n).astype(I32))
    yield called("Gather", x(n), scalar(0))
    yield called("Scatter", x(side, side), index(side, side, side), x(side, side), opset=10)
    for reduction in ("add", "max", "mul", "min"):
        yield called("ScatterElements", x(n), index(n, n), x(n), reduction=reduction)
        yield called("ScatterND", x(side, side), index(side, side, 1), x(side, side), reduction=reduction)
    yield called("GatherND", x(side, side), index(side, n // 2, 2))
    yield called("GatherND", x(side, side), index(side, side, 1))
    yield called("GatherND", x(4, side, side), index(side, 4, side // 4, 1), batch_dims=1)
    yield called("ScatterND", x(side, side), index(side, n // 2, 2), x(n // 2))
    yield called("ScatterND", x(side, side), np.zeros((2, 0), np.int64), x(2, side, side))
    yield called("TensorScatter", x(2, 4, side, side // 8 + 1), x(2, 4, side, side // 8 + 1), mode="circular")
    yield called("OneHot", index(16, n // 16), scalar(16), x(2))
    yield called("OneHot", index(side, side).astype(U8), scalar(side), x(2), axis=0)
    for dtype in (F32, U8, np.dtype("?"), I64):
        yield called("NonZero", x(n, dtype=dtype))
        yield called("NonZero", x(2, side, side // 2, dtype=dtype))
    yield called("NonZero", np.zeros(n, F32))
    yield called("NonZero.count", x(side, side))
    yield called("NonZero.indices", x(n), scalar(n))
    yield called("Compress.count", x(n), x(n, dtype=np.dtype("?")))
    yield called("Compress.slices", x(n), x(n, dtype=np.dtype("?")), scalar(n))
    yield called("Compress", x(n), x(n, dtype=np.dtype("?")))
    for axis in (0, 1):
        yield called("Compress", x(side, side), x(side, dtype=np.dtype("?")), axis=axis)
        yield called("ArgMax", x(side, side), axis=axis)
        yield called("ArgMin", x(side, side, dtype=I64), axis=axis, select_last_index=1)
        for k in (1, side):
            yield called("TopK", x(side, side), ints(k), axis=axis, outputs=2)
            yield called("TopK", x(side, side), ints(k), axis=axis, outputs=2, largest=0)
    yield called("ArgMax", x(n), axis=0)
    for k in (3, n // 2, n):
        yield called("TopK", x(n), ints(k), outputs=2, wide=k > 3)
    for upper in (0, 1):
        yield called("Trilu", x(side, side), scalar(1), upper=upper)
    for values in (x(n), x(n, dtype=I64), x(n, dtype=U8), RANDOM.permutation(n)):
        for outputs in (1, 4):
            for ordered in (0, 1):
                yield called("Unique", values, outputs=outputs, sorted=ordered, wide=True)
            yield called("Unique.groups", values, sorted=ordered, wide=True)
    groups = np.append(RANDOM.permutation(np.arange(n) % side), side)
    for part in ("first", "members"):
        yield called(f"Unique.{part}", groups, scalar(side))
    yield called("Unique", x(side, side), outputs=4, axis=0)
    yield called("Unique", x(side, 4), outputs=4, axis=1, sorted=0, wide=True)


def windows(n: int) -> Iterator[Called]:
    side = max(isqrt(n // 4), 4)
    plane = x(1, 4, side, side)
    for attrs in ({}, {"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}):
        for outputs in (1, 2):
            yield called("MaxPool", plane, kernel_shape=[3, 3], outputs=outputs, **attrs)
        yield called("AveragePool", plane, kernel_shape=[3, 3], count_include_pad=len(attrs) % 2, **attrs)
        yield called("LpPool", plane, kernel_shape=[3, 3], **attrs)
        yield called("Conv", plane, x(8, 4, 3, 3), x(8), **attrs)
        yield called("ConvTranspose", plane, x(4, 2, 3, 3), x(2), **attrs)
    yield called("Conv", plane.astype(F16), x(4, 1, 3, 3, dtype=F16), group=4)
    yield called("MaxPool", x(1, 4, side, side, dtype=U8), kernel_shape=[2, 2])
    for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"):
        yield called(op, plane)
    half = x(1, 4, side // 2, side // 2)
    places = np.arange(half.size, dtype=np.int64).reshape(half.shape) * 4
    yield called("MaxUnpool", half, places, kernel_shape=[2, 2], strides=[2, 2])
    yield called("MaxUnpool", half, places, ints(1, 4, side + 2, side + 2), kernel_shape=[2, 2], strides=[2, 2])
    yield called("CausalConvWithState", x(1, 4, n // 4), x(4, 1, 4), x(4), x(1, 4, 3), outputs=2, activation="silu")
    yield called("Col2Im", x(1, 4 * 4, (side // 2) ** 2), ints(side // 2 + 1, side // 2 + 1), ints(2, 2))
    deformed = x(1, 18, side - 2, side - 2)
    yield called("DeformConv", plane, x(4, 4, 3, 3), deformed, x(4), kernel_shape=[3, 3], wide=True)
    yield called("ConvInteger", x(1, 4, side, side, dtype=U8), x(8, 4, 3, 3, dtype=I8), scalar(3, U8), wide=True)
    a, w = x(1, 4, side, side, dtype=U8), x(8, 4, 3, 3, dtype=I8)
    s, z = scalar(0.1, F32), scalar(0, I8)
    yield called("QLinearConv", a, s, scalar(3, U8), w, s, z, s, scalar(0, U8), x(8, dtype=I32), wide=True)


def normalised(n: int) -> Iterator[Called]:
    side = max(isqrt(n // 4), 4)
    plane, four = x(1, 4, side, side), [x(4) for _ in range(3)]
    yield called("BatchNormalization", plane, *four, np.abs(x(4)))
    yield called("BatchNormalization", plane, *four, np.abs(x(4)), training_mode=1, outputs=3)
    yield called("InstanceNormalization", plane, *four[:2])
    yield called("GroupNormalization", plane, *four[:2], num_groups=2)
    yield called("LayerNormalization", x(n // 64, 64), x(64), x(64), outputs=3)
    yield called("LayerNormalization", x(n // 64, 64), x(64))
    yield called("LayerNormalization", x(2, n // 2, dtype=F16), x(n // 2, dtype=F16))
    yield called("RMSNormalization", x(n // 64, 64), x(64))
    yield called("RMSNormalization", x(1, n, dtype=F16), x(n, dtype=F16))
    yield called("LRN", x(2, 8, n // 16), size=3)
    labels = RANDOM.integers(0, 8, n // 8)
    for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        for reduction in ("mean", "none"):
            yield called(op, x(n // 8, 8), labels, x(8), reduction=reduction, ignore_index=2)
    for op in ("QuantizeLinear", "DequantizeLinear"):
        source = F32 if op == "QuantizeLinear" else U8
        side = isqrt(n)
        yield called(op, x(n, dtype=source), scalar(0.1, F32), scalar(3, U8))
        yield called(op, x(side, side, dtype=source), np.full(side, 0.1, F32), x(side, dtype=U8), axis=0)
        blocks = np.full((side, -(-side // 16)), 0.1, F32), x(side, -(-side // 16), dtype=U8)
        yield called(op, x(side, side, dtype=source), *blocks, axis=1, block_size=16)
    yield called("DequantizeLinear", x(n, dtype=I32), scalar(0.1, F32))
    yield called("DynamicQuantizeLinear", x(n), outputs=3)


def products(n: int) -> Iterator[Called]:
    side = isqrt(n)
    thin = max(min(side, 64), 2)
    for dtype in (F32, F64, F16, I32):
        yield called("MatMul", x(side, thin, dtype=dtype), x(thin, side, dtype=dtype))
    yield called("MatMul", x(2, 1, side, 2), x(3, 2, side // 4 + 1))
    yield called("Gemm", x(side, thin), x(side, thin), x(side), transB=1, alpha=0.5, beta=2.0)
    yield called("Gemm", x(side, thin), x(thin, side))
    a, b = x(side, thin), x(thin, side)
    for equation in ("ij,jk->ik", "ij,jk", "...j,jk->...k", "ij,jk->"):
        yield called("Einsum", a, b, equation=equation)
    yield called("Einsum", a, b, x(side, thin), equation="ij,jk,kl->il", wide=True)
    yield called("Einsum", x(side, side), equation="ij->ji")
    u, i = x(side, thin, dtype=U8), x(thin, side, dtype=I8)
    yield called("MatMulInteger", u, i, scalar(3, U8), x(side, dtype=I8), wide=True)
    s, z = scalar(0.1, F32), scalar(3, U8)
    yield called("QLinearMatMul", u, s, z, i, s, scalar(0, I8), s, z, wide=True)
    heads, tokens = 4, max(isqrt(n // 8), 2)
    q = [x(1, heads, tokens, 16) for _ in range(3)]
    for attrs in ({}, {"is_causal": 1}, {"softcap": 2.0}):
        yield called("Attention", *q, wide=True, **attrs)
    past = [x(1, heads, tokens, 16) for _ in range(2)]
    yield called("Attention", *q, x(tokens, 2 * tokens), *past, outputs=4, wide=True)
    yield called("Attention", *q, x(tokens, tokens - 1, dtype=np.dtype("?")), wide=True)
    grouped = x(1, 8, tokens, 16), x(1, 2, tokens, 16), x(1, 2, tokens, 16)
    yield called("Attention", *grouped, softmax_precision=11, wide=True)
    steps = max(n // 256, 1)
    cache = x(steps, 8), x(steps, 8)
    for extra in ({}, {"interleaved": 1}):
        places = np.arange(steps)[None]
        yield called("RotaryEmbedding", x(1, 4, steps, 64), *cache, places, rotary_embedding_dim=16, **extra)
    yield called("SwiGLU", x(n), x(n))
    state = x(1, 2, 16, 32)
    yield called(
        "LinearAttention",
        *(x(1, steps, 64), x(1, steps, 32), x(1, steps, 64), state, x(1, steps, 2), x(1, steps, 2)),
        q_num_heads=4,
        kv_num_heads=2,
        wide=True,
        outputs=2,
    )
    hidden, width = 16, max(n // 1024, 2)
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, d in (("forward", 1), ("bidirectional", 2)):
            weights = x(d, gates * hidden, 8), x(d, gates * hidden, hidden), x(d, 2 * gates * hidden)
            outputs = 3 if op == "LSTM" else 2
            yield called(op, x(8, width, 8), *weights, outputs=outputs, direction=direction, wide=True)


def pictures(n: int) -> Iterator[Called]:
    side = max(isqrt(n // 4), 4)
    plane = x(1, 4, side, side)
    for mode in ("nearest", "linear", "cubic"):
        for scale in (2.0, 0.5, 1.5):
            yield called("Resize", plane, None, np.array([1, 1, scale, scale], F32), mode=mode)
            yield called("Resize", plane, None, np.array([1, 1, 1, scale], F32), mode=mode, antialias=1)
    yield called("Resize", x(n), None, np.array([2], F32), mode="linear")
    yield called("Resize", x(8, n // 8), None, None, ints(16, n // 8), mode="linear")
    yield called("Resize", x(1, 1, side, side, dtype=U8), None, None, ints(1, 1, side, side + 1), mode="cubic")
    yield called("Upsample", plane, np.array([1, 1, 2, 2], F32), mode="linear", opset=9)
    theta = x(2, 2, 3)
    yield called("AffineGrid", theta, ints(2, 3, side, side))
    yield called("AffineGrid", x(1, 3, 4), ints(1, 3, 4, 4, max(n // 16, 1)), align_corners=1)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            yield called("GridSample", plane, x(1, side, side, 2), mode=mode, padding_mode=padding)
    rois = np.array([[0, 0, side, side], [1, 1, 3, 3]], F32)
    for mode in ("avg", "max"):
        size = {"output_height": side // 2, "output_width": side // 2}
        yield called("RoiAlign", plane, rois, ints(0, 0), mode=mode, **size)
    regions = np.array([[0, 0, 0, side, side], [0, 1, 1, 3, 3]], F32)
    yield called("MaxRoiPool", plane, regions, pooled_shape=[side // 2, side // 2])
    boxes = np.sort(np.abs(x(1, n // 16, 4)), -1)
    for most in (3, min(n // 16, 1500)):
        for centred in (0, 1):
            scores = np.abs(x(1, 2, n // 16))
            limits = scalar(most), scalar(0.5, F32), scalar(1.5, F32)
            yield called("NonMaxSuppression", boxes, scores, *limits, center_point_box=centred, wide=True)
            yield called("NonMaxSuppression.rows", boxes, scores, *limits, center_point_box=centred, wide=True)


def signals(n: int) -> Iterator[Called]:
    side = isqrt(n)
    for parts in (1, 2):
        yield called("DFT", x(4, n // 4, parts), None, scalar(1), wide=True)
        yield called("DFT", x(side, side, parts), None, scalar(0))
    yield called("DFT", x(side, side, 1), None, scalar(1), onesided=1)
    yield called("DFT", x(side, side, 2), None, scalar(1), onesided=1, inverse=1)
    yield called("DFT", x(side, side, 2), scalar(side + 3), scalar(1), inverse=1)
    yield called("STFT", x(2, n // 2, 1), scalar(8), x(min(n // 4, 512)), scalar(min(n // 4, 512)))
    yield called("STFT", x(1, n // 2, 2), scalar(max(n // 8, 1)), None, scalar(max(n // 8, 1)), onesided=0, wide=True)
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield called(op, scalar(n))
    bins, length = min(max(n // 2048, 2), 64), max(min(n // 16, 2048), 16)
    yield called("MelWeightMatrix", *(scalar(v) for v in (bins, length, 16000, 0, 8000)))


def chances(n: int) -> Iterator[Called]:
    side = isqrt(n)
    for dtype in (1, 10, 11):
        for op in ("RandomNormal", "RandomUniform"):
            yield called(op, shape=[side, side], dtype=dtype)
            yield called(f"{op}Like", x(side, side), dtype=dtype, seed=1.0)
    for dtype in (1, 7, 9):
        yield called("Bernoulli", np.abs(x(side, side)), dtype=dtype)
    yield called("Multinomial", x(4, 16), sample_size=n // 4)
    yield called("Multinomial", x(4, n // 4), sample_size=3, wide=True)


GROUPS = elementwise, reductions, shapes, picking, windows, normalised, products, pictures, signals, chances


def all_calls(n: int) -> list[Called]:
    """Return calls of every operator, whose inputs or outputs have about ``n`` elements."""
    return [call for group in GROUPS for call in group(n)]
