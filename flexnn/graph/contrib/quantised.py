"""Quantised operators. Products are sums of integers; others are restored, computed in float32, quantised again."""

from __future__ import annotations

import numpy as np

from ..sources import MappedSource
from .expansion import Expansion, expands, integers, source_of
from .fused import counted
from .integers import product

FLOAT = 1
"""TensorProto.DataType."""
SOFTMAX_OF_AN_AXIS = 13
"""Opset since which Softmax is of one axis."""


def _restored(e: Expansion, first: int) -> str:
    """Inputs ``first`` to ``first + 2``: values, scale, zero point."""
    return e.add("DequantizeLinear", e.input(first), e.input(first + 1), e.optional(first + 2))


def _quantised(e: Expansion, value: str, scale: int) -> None:
    """The node's output: ``value`` by the scale and zero point at input ``scale`` and behind it."""
    e.add("QuantizeLinear", value, e.input(scale), e.optional(scale + 1), output=e.output(0))


@expands("QuantizeLinear", "DequantizeLinear")
def linear(e: Expansion) -> None:
    """Expand to the standard operators of the same names."""
    inputs = [e.optional(i) for i in range(3)]
    e.add(e.node.op_type, *inputs, output=e.output(0), axis=e.integer("axis", 1))


@expands("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(e: Expansion) -> None:
    """A, B, scale of B, its zero point, bias."""
    values, scale, zero = e.split("DynamicQuantizeLinear", (e.input(0),), ["", "", ""])
    sums = product(e, values, e.input(1), zero, e.optional(3))
    _scaled(e, sums, e.add("Mul", scale, e.input(2)), e.optional(4))


@expands("MatMulIntegerToFloat")
def matmul_integer_to_float(e: Expansion) -> None:
    """A, B, scales of both, zero points of both, bias."""
    sums = product(e, e.input(0), e.input(1), e.optional(4), e.optional(5))
    _scaled(e, sums, e.add("Mul", e.input(2), e.input(3)), e.optional(6))


def _scaled(e: Expansion, sums: str, scale: str, bias: str) -> None:
    """The node's output: int32 sums in float32, times ``scale``, plus ``bias`` where there is one."""
    _biased(e, e.add("Mul", e.add("Cast", sums, to=FLOAT), scale), bias)


def _biased(e: Expansion, value: str, bias: str) -> None:
    if bias:
        e.add("Add", value, bias, output=e.output(0))
    else:
        e.add("Identity", value, output=e.output(0))


@expands("QGemm")
def qgemm(e: Expansion) -> None:
    """A and B as three inputs each, C in steps of the product; scale and zero point of the result may be absent: then
    it is the exact sums times the steps.
    """
    alpha, turned = e.number("alpha", 1.0), [e.integer(f"trans{name}", 0) for name in "AB"]
    if e.optional(7):
        b = e.add("DequantizeLinear", e.input(3), e.input(4), e.optional(5), axis=0 if turned[1] else 1)
        operands = [_restored(e, 0), b]
        if e.optional(6):
            operands.append(e.add("Mul", e.add("Cast", e.input(6), to=FLOAT), _steps(e, alpha)))
        _quantised(e, e.add("Gemm", *operands, transA=turned[0], transB=turned[1], alpha=alpha), 7)
        return
    a, b = (
        e.add("Transpose", e.input(i), perm=[1, 0]) if is_turned else e.input(i)
        for i, is_turned in zip((0, 3), turned, strict=True)
    )
    sums = product(e, a, b, e.optional(2), e.optional(5))
    if e.optional(6):
        sums = e.add("Add", sums, e.input(6))
    _scaled(e, sums, _steps(e, alpha), "")


def _steps(e: Expansion, alpha: float) -> str:
    """The steps of a QGemm's product."""
    first = e.add("Mul", e.array(np.array(alpha, np.float32)), e.input(1)) if alpha != 1 else e.input(1)
    return e.add("Mul", first, e.input(4))


@expands("QLinearAdd", "QLinearMul")
def qlinear_binary(e: Expansion) -> None:
    """Two operands."""
    operator = e.node.op_type.removeprefix("QLinear")
    _quantised(e, e.add(operator, _restored(e, 0), _restored(e, 3)), 6)


@expands("QLinearSigmoid")
def qlinear_sigmoid(e: Expansion) -> None:
    """Expand an operator of one quantised operand."""
    _quantised(e, e.add("Sigmoid", _restored(e, 0)), 3)


@expands("QLinearLeakyRelu")
def qlinear_leaky_relu(e: Expansion) -> None:
    """Expand an operator of one quantised operand."""
    _quantised(e, e.add("LeakyRelu", _restored(e, 0), alpha=e.number("alpha", 0.01)), 3)


@expands("QLinearSoftmax")
def qlinear_softmax(e: Expansion) -> None:
    """Expand to Softmax of one axis, its meaning since opset 13; before, it was of all axes from this one on."""
    x = _restored(e, 0)
    if e.integer("opset", 13) >= SOFTMAX_OF_AN_AXIS:
        _quantised(e, e.add("Softmax", x, axis=e.integer("axis", -1)), 3)
        return
    rows = e.add("Softmax", e.add("Flatten", x, axis=e.integer("axis", -1)), axis=1)
    _quantised(e, e.add("Reshape", rows, e.add("Shape", x)), 3)


@expands("QLinearAveragePool", "QLinearGlobalAveragePool")
def qlinear_average_pool(e: Expansion) -> None:
    """Channels before the spatial dimensions, or behind them."""
    names = ("kernel_shape", "strides", "pads", "auto_pad", "ceil_mode", "count_include_pad")
    attrs, operator = e.attrs(names), e.node.op_type.removeprefix("QLinear")
    kernel = attrs.get("kernel_shape", [])
    rank = 2 + (len(kernel) if isinstance(kernel, list) and kernel else 2)
    last = e.integer("channels_last", 0) != 0
    (y,) = e.split(operator, [_channels(e, _restored(e, 0), rank, 1 if last else 0)], [""], attrs)
    _quantised(e, _channels(e, y, rank, -1 if last else 0), 3)


def _channels(e: Expansion, value: str, rank: int, way: int) -> str:
    """The value with its channels moved from the last dimension to the second one (1), or back (-1); 0: as it is."""
    if not way:
        return value
    perm = [0, rank - 1, *range(1, rank - 1)] if way > 0 else [0, *range(2, rank), 1]
    return e.add("Transpose", value, perm=perm)


@expands("QLinearConv")
def qlinear_conv(e: Expansion) -> None:
    """The standard operator of the same name, whose channels may be last; those of the weights are not."""
    attrs = e.attrs(("kernel_shape", "strides", "pads", "dilations", "group", "auto_pad"))
    rank, last = len(e.constant(3, "its weight").shape), e.integer("channels_last", 0) != 0
    inputs = [_channels(e, e.input(0), rank, 1 if last else 0), *(e.optional(i) for i in range(1, 9))]
    (y,) = e.split("QLinearConv", inputs, ["" if last else e.output(0)], attrs)
    if last:
        e.add("Transpose", y, output=e.output(0), perm=[0, *range(2, rank), 1])


@expands("NhwcMaxPool")
def nhwc_max_pool(e: Expansion) -> None:
    """A pool of a picture whose channels are last."""
    attrs = e.attrs(("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode"))
    rank = 2 + len(integers(e, "kernel_shape"))
    (y,) = e.split("MaxPool", [_channels(e, e.input(0), rank, 1)], [""], attrs)
    e.add("Transpose", y, output=e.output(0), perm=[0, *range(2, rank), 1])


@expands("QLinearWhere")
def qlinear_where(e: Expansion) -> None:
    """One of two operands, element by element."""
    _quantised(e, e.add("Where", e.input(0), _restored(e, 1), _restored(e, 4)), 7)


@expands("QEmbedLayerNormalization")
def qembed_layer_normalization(e: Expansion) -> None:
    """Words, positions and segments looked up in tables of 8 bits, summed, normalised; output 1 counts words."""
    ids = e.input(0)
    parts = [_looked_up(e, 2, 8, 13, ids)]
    count = e.add("Gather", e.add("Shape", ids), e.array(np.array(1, np.int64)))
    ends = [e.array(np.array(v, np.int64)) for v in (0, 1)]
    parts.append(_looked_up(e, 3, 9, 14, e.add("Range", ends[0], count, ends[1])))
    if e.optional(4) and e.optional(1):
        parts.append(_looked_up(e, 4, 10, 15, e.optional(1)))
    total = parts[0]
    for part in parts[1:]:
        total = e.add("Add", total, part)
    vectors = [e.add("DequantizeLinear", e.input(i), e.input(i + 6), e.optional(i + 11)) for i in (5, 6)]
    e.add("LayerNormalization", total, *vectors, output=e.output(0), epsilon=e.number("epsilon", 1e-12))
    if e.output(1):
        counted(e, e.optional(7), e.output(1))


def _looked_up(e: Expansion, table: int, scale: int, zero: int, ids: str) -> str:
    """Rows of a table of 8 bits, restored."""
    return e.add("DequantizeLinear", e.add("Gather", e.input(table), ids), e.input(scale), e.optional(zero))


@expands("QLinearConcat")
def qlinear_concat(e: Expansion) -> None:
    """Scale and zero point of the result, then three inputs for each part."""
    parts = [_restored(e, i) for i in range(2, len(e.node.input), 3)]
    _quantised(e, e.add("Concat", *parts, axis=e.integer("axis", 0)), 0)


@expands("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(e: Expansion) -> None:
    """An LSTM whose weights, [directions, inputs, 4 hidden], are quantised. What meets them is rounded to 8 bits: the
    inputs by the range of all of them, the hidden values of a step by theirs (``quantises``).
    """
    x = e.add("DequantizeLinear", *e.split("DynamicQuantizeLinear", (e.input(0),), ["", "", ""]))
    w, r = (_restored_gates(e, i, scale) for i, scale in ((1, 8), (2, 10)))
    names = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")
    attrs = e.attrs(names) | {"quantises": 1}
    e.split("LSTM", (x, w, r, *(e.optional(i) for i in range(3, 8))), e.node.output, attrs)


def _restored_gates(e: Expansion, weights: int, scale: int) -> str:
    """[directions, 4 hidden, inputs] by a scale for each direction, or for each gate of each."""
    shape = e.constant(scale, "its scale").shape
    inputs = (e.input(weights), e.input(scale), e.optional(scale + 1))
    if len(shape) == 1:
        return e.add("Transpose", e.add("DequantizeLinear", *inputs, axis=0), perm=[0, 2, 1])
    if len(shape) != 2 or not shape[0]:
        raise e.error(f"a scale of shape {shape} is not supported")
    parts = []
    for d in range(shape[0]):
        own = e.add("Gather", inputs[0], e.array(np.array([d], np.int64)), axis=0)
        steps = [name and e.add("Gather", name, e.array(np.array(d, np.int64)), axis=0) for name in inputs[1:]]
        parts.append(e.add("DequantizeLinear", own, *steps, axis=2))
    return e.add("Transpose", e.add("Concat", *parts, axis=0), perm=[0, 2, 1])


@expands("MatMulNBits")
def matmul_n_bits(e: Expansion) -> None:
    """A times the transposed of [N, K] numbers of 2, 4 or 8 bits, a scale for each block along K. Blocks of a multiple
    of 32 are stored as they are; others, and 8 bits with zero points, as halves, which round them.
    """
    k, n = e.integer("K", 0), e.integer("N", 0)
    bits, block = e.integer("bits", 4), e.integer("block_size", 0)
    for name in ("accuracy_level", "weight_prepacked"):
        e.integer(name, 0)
    e.without(4, 4, "an order of groups")
    weights = e.constant(1, "its weight")
    if bits not in (2, 4, 8) or block < 16 or k < 1 or n < 1:
        raise e.error(f"bits={bits}, block_size={block}, K={k}, N={n} are not supported")
    blocks = -(-k // block)
    if weights.shape != (n, blocks, block * bits // 8) or weights.dtype != "u8":
        raise e.error(f"weights of shape {weights.shape} and type {weights.dtype}")
    scales, zeros = e.constant(2, "its scales"), e.constant(3, "its zero points") if e.optional(3) else None
    row = -(-blocks * bits // 8)
    if (scales.dtype, scales.nbytes) != ("f32", 4 * n * blocks) or (
        zeros is not None and (zeros.dtype, zeros.nbytes) != ("u8", n * row)
    ):
        raise e.error(f"scales or zero points do not fit {n} times {blocks} blocks")
    middle = 0 if zeros else 1 << (bits - 1)

    def whole(v: np.ndarray) -> np.ndarray:
        own = _unpacked(v, bits).reshape(n, -1)[:, :k]
        return own if zeros else (own.astype(np.int16) - middle).astype(np.int8)

    of = f"{bits}/{block}of{n}x{k}"
    parts = [
        e.stored((n, k), "u8" if zeros else "i8", MappedSource(source_of(weights), whole, f"unpacked{of}")),
        e.stored((n, blocks), "f32", MappedSource(source_of(scales), lambda v: v.reshape(n, blocks), f"scales{of}")),
    ]
    if zeros:

        def zero(v: np.ndarray) -> np.ndarray:
            return _unpacked(v, bits).reshape(n, -1)[:, :blocks]

        parts.append(e.stored((n, blocks), "u8", MappedSource(source_of(zeros), zero, f"zeros{of}")))
    wide = e.add("DequantizeLinear", *parts, axis=1, block_size=block, bits=max(bits, 4))
    _biased(e, e.add("MatMul", e.input(0), e.add("Transpose", wide, perm=[1, 0])), e.optional(5))


@expands("GatherBlockQuantized")
def gather_block_quantized(e: Expansion) -> None:
    """Rows of a table of 4 or 8 bits, a scale for each block: its rows are read first, and restored then."""
    bits, block, table = e.integer("bits", 4), e.integer("block_size", 128), e.constant(0, "its table")
    scales = e.constant(2, "its scales")
    blocks, size = scales.shape[-1], table.shape[-1] * 8 // bits
    axes = e.integer("gather_axis", 0), e.integer("quantize_axis", 1) % max(len(table.shape), 1)
    if len(table.shape) != 2 or axes != (0, 1) or table.dtype != "u8" or bits not in (4, 8) or block < 1:
        raise e.error(f"bits={bits}, axes {axes} of a table of {table.dtype}{list(table.shape)} are not supported")
    if size != blocks * block or scales.shape != (table.shape[0], blocks):
        raise e.error(f"scales of shape {scales.shape} for rows of {size} numbers in blocks of {block}")
    ids = e.add("Reshape", e.input(1), e.array(np.array([-1], np.int64)))
    values = _row_numbers(e, e.add("Gather", e.input(0), ids, axis=0), bits, [-1, blocks, block])
    if e.optional(3):
        zeros = _row_numbers(e, e.add("Gather", e.input(3), ids, axis=0), bits, [-1, blocks + blocks % (8 // bits), 1])
        zero = e.cut(zeros, blocks, 1)
    else:
        zero = e.array(np.full(1, 1 << (bits - 1), np.float32))
    steps = e.add("Reshape", e.add("Gather", e.input(2), ids, axis=0), e.array(np.array([-1, blocks, 1], np.int64)))
    shift = e.add("Sub", values, zero)
    rows = e.add("Mul", e.add("CastLike", shift, steps), steps)
    shape = e.add("Concat", e.add("Shape", e.input(1)), e.array(np.array([size], np.int64)), axis=0)
    e.add("Reshape", rows, shape, output=e.output(0), allowzero=1)


def _row_numbers(e: Expansion, rows: str, bits: int, shape: list[int]) -> str:
    """Numbers of packed rows as float32, of this shape: the first of a byte is in its lowest bits."""
    wide = e.add("Cast", rows, to=FLOAT)
    if bits == 4:
        high = e.add("Floor", e.add("Mul", wide, e.array(np.full(1, 1 / 16, np.float32))))
        low = e.add("Sub", wide, e.add("Mul", high, e.array(np.full(1, 16, np.float32))))
        wide = e.add("Concat", *(e.unsqueezed(part, 2) for part in (low, high)), axis=2)
    return e.add("Reshape", wide, e.array(np.array(shape, np.int64)))


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of 2, 4 or 8 bits, the first in the lowest bits of a byte, flat."""
    flat = packed.reshape(-1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return flat if bits == 8 else (flat[:, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(-1)
