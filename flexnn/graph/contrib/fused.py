"""Operators that onnxruntime's optimiser fuses out of several, taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..model import ModelAttr
from .expansion import Expansion, expands

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
_NEVER = -3.0e38
"""Added to scores that must not count."""


@expands("Gelu")
def gelu(e: Expansion) -> None:
    """Expand to the standard Gelu."""
    e.add("Gelu", e.input(0), output=e.output(0))


@expands("BiasGelu")
def bias_gelu(e: Expansion) -> None:
    """Expand the gelu of a sum."""
    e.add("Gelu", e.add("Add", e.input(0), e.input(1)), output=e.output(0))


@expands("FastGelu")
def fast_gelu(e: Expansion) -> None:
    """Expand the gelu by tanh, of a sum where there is a bias."""
    x = e.add("Add", e.input(0), e.input(1)) if e.optional(1) else e.input(0)
    e.add("Gelu", x, output=e.output(0), approximate="tanh")


@expands("QuickGelu")
def quick_gelu(e: Expansion) -> None:
    """X sigmoid(alpha x)."""
    factor = e.array(np.array(e.number("alpha", 1.702), np.float32))
    e.add("Mul", e.input(0), e.add("Sigmoid", e.add("Mul", e.input(0), factor)), output=e.output(0))


def _activated(e: Expansion, value: str) -> None:
    """The node's output: ``value`` through the activation that its attributes name."""
    kind = e.attr("activation", "")
    given = e.attr("activation_params", [])
    parameters = [float(v) for v in given] if isinstance(given, list) else []
    for i, name in enumerate(("activation_alpha", "activation_beta")):
        if name in e.node.attrs:
            parameters[i:] = [e.number(name, 0.0)]
    if kind == "":
        e.add("Identity", value, output=e.output(0))
    elif kind == "Clip" and len(parameters) == 2:
        e.clipped(value, parameters[0], parameters[1], e.output(0))
    elif kind in _ACTIVATIONS and len(parameters) <= 2 and kind != "Clip":
        e.split(str(kind), (value,), [e.output(0)], dict(zip(("alpha", "beta"), parameters, strict=False)))
    else:
        raise e.error(f"activation {kind} with {len(parameters)} parameters is not supported")


@expands("FusedConv")
def fused_conv(e: Expansion) -> None:
    """A convolution, a sum, an activation."""
    names = ("kernel_shape", "strides", "pads", "dilations", "group", "auto_pad")
    (y,) = e.split("Conv", [e.input(0), e.input(1), e.optional(2)], [""], e.attrs(names))
    _activated(e, e.add("Add", y, e.input(3)) if e.optional(3) else y)


@expands("FusedGemm")
def fused_gemm(e: Expansion) -> None:
    """A product and an activation."""
    inputs = [e.input(0), e.input(1), e.optional(2)]
    (y,) = e.split("Gemm", inputs, [""], e.attrs(("alpha", "beta", "transA", "transB")))
    _activated(e, y)


@expands("FusedMatMul", "TransposeMatMul")
def fused_matmul(e: Expansion) -> None:
    """Alpha A B, of operands that may be transposed, or have their first dimension behind the others."""
    names = ("transA", "transB", "transBatchA", "transBatchB")
    attrs: dict[str, ModelAttr] = {name: e.integer(name, 0) for name in names}
    attrs["alpha"] = e.number("alpha", 1.0)
    is_plain = attrs["alpha"] == 1 and not any(attrs[name] for name in names)
    e.split("MatMul" if is_plain else "flexnn.MatMul", e.node.input, [e.output(0)], {} if is_plain else attrs)


@expands("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_layer_normalization(e: Expansion) -> None:
    """Input, skip, gamma, beta (not simplified), bias: the normalised sum, and as output 3 the sum."""
    simplified = e.node.op_type != "SkipLayerNormalization"
    bias = e.optional(3 if simplified else 4)
    total = e.add("Add", e.input(0), e.input(1), output="" if bias else e.output(3))
    if bias:
        total = e.add("Add", total, bias, output=e.output(3))
    kind = "RMSNormalization" if simplified else "LayerNormalization"
    vectors = [e.input(2)] if simplified else [e.input(2), e.optional(3)]
    e.add(kind, total, *vectors, output=e.output(0), axis=-1, epsilon=e.number("epsilon", 1e-12))


@expands("EmbedLayerNormalization")
def embed_layer_normalization(e: Expansion) -> None:
    """Words, positions and segments looked up, summed, normalised; output 1: how many words count, 2: the sum."""
    ids = e.input(0)
    words = e.add("Gather", e.input(2), ids)
    if e.optional(8):
        positions = e.optional(8)
    else:
        count = e.add("Gather", e.add("Shape", ids), e.array(np.array(1, np.int64)))
        zero, one = (e.array(np.array(v, np.int64)) for v in (0, 1))
        positions = e.add("Range", zero, count, one)
    total = e.add("Add", words, e.add("Gather", e.input(3), positions), output="" if e.optional(4) else e.output(2))
    if e.optional(4):
        total = e.add("Add", total, e.add("Gather", e.input(4), e.input(1)), output=e.output(2))
    if e.integer("mask_index_type", 0):
        raise e.error("attribute mask_index_type is not supported")
    e.add("LayerNormalization", total, e.input(5), e.input(6), output=e.output(0), epsilon=e.number("epsilon", 1e-12))
    if e.output(1):
        counted(e, e.optional(7), e.output(1))


def counted(e: Expansion, mask: str, output: str) -> None:
    """An output that says how many words of a mask count."""
    if not mask:
        raise e.error(f"its output {output!r} without a mask is not supported")
    axes = e.array(np.array([1], np.int64))
    wide = e.add("ReduceSum", e.add("Cast", mask, to=1), axes, keepdims=0)
    e.add("Cast", wide, output=output, to=6)
    e.shared.lengths.add(output)


def _attended(
    e: Expansion,
    parts: list[str],
    heads: int,
    masks: list[str],
    past: Sequence[str] = ("", ""),
    presents: Sequence[str] = (),
) -> list[str]:
    """The node's output: [batch, tokens, size] of queries, keys and values; masks are added to the scores. With a past,
    ``presents``: names of keys and values with the past ones before them. Return the names of all outputs.
    """
    mask = e.add("Add", *masks) if len(masks) > 1 else "".join(masks)
    attrs: dict[str, ModelAttr] = {"q_num_heads": heads, "kv_num_heads": heads}
    attrs["is_causal"] = int(e.integer("unidirectional", 0) != 0)
    scale = e.number("scale", 0.0)
    if scale:
        attrs["scale"] = scale
    return e.split("Attention", [*parts, mask, *past], [e.output(0), *(presents if past[0] else ())], attrs)


def _key_mask(e: Expansion, mask: str, is_lengths: bool, keys: str) -> str:
    """Return the numbers to add to scores [batch, heads, tokens, keys], from a mask [batch, keys] or from lengths."""
    if is_lengths:
        zero, one = (e.array(np.array(v, np.int64)) for v in (0, 1))
        count = e.add("Gather", e.add("Shape", keys), e.array(np.array(1, np.int64)))
        places = e.add("Cast", e.add("Range", zero, count, one), to=6)
        column = e.add("Reshape", mask, e.array(np.array([-1, 1], np.int64)))
        kept = e.add("Less", places, column)
    else:
        kept = e.add("Cast", mask, to=9)
    factor, shift = (e.array(np.array(v, np.float32)) for v in (-_NEVER, _NEVER))
    added = e.add("Add", e.add("Mul", e.add("Cast", kept, to=1), factor), shift)
    ends = e.add("Shape", added)
    first, last = (e.add("Gather", ends, e.array(np.array([i], np.int64))) for i in (0, 1))
    ones = e.array(np.array([1, 1], np.int64))
    return e.add("Reshape", added, e.add("Concat", first, ones, last, axis=0))


def _masks(e: Expansion, mask: int, added: int, keys: str) -> list[str]:
    """The masks at these inputs: of keys, and what is added to the scores."""
    masks = []
    if e.optional(mask):
        masks.append(_key_mask(e, e.optional(mask), e.optional(mask) in e.shared.lengths, keys))
    if e.optional(added):
        masks.append(e.optional(added))
    return masks


def _refuse(e: Expansion, *names: str) -> None:
    """Refuse attributes but zeros."""
    for name in names:
        if e.integer(name, 0):
            raise e.error(f"attribute {name} is not supported")


@expands("Attention")
def attention(e: Expansion) -> None:
    """Input, weights of queries, keys and values side by side, bias, mask, past, what is added to the scores."""
    e.without(6, 6, "a past of a given length")
    _refuse(e, "do_rotary", "past_present_share_buffer", "rotary_embedding_dim")
    e.attr("mask_filter_value", -10000.0)
    heads, weights = e.integer("num_heads", 0), e.constant(1, "its weight")
    width = weights.shape[-1] if len(weights.shape) == 2 else 0
    sizes = e.attr("qkv_hidden_sizes", [width // 3] * 3)
    each = [int(s) for s in sizes] if isinstance(sizes, list) else []
    if heads < 1 or len(each) != 3 or sum(each) != width or any(s < 1 or s % heads for s in each):
        raise e.error(f"{heads} heads, sizes {each} of weights of shape {weights.shape}")
    joined = e.add("MatMul", e.input(0), e.input(1))
    if e.optional(2):
        joined = e.add("Add", joined, e.optional(2))
    _attended_joined(e, _cut(e, joined, each, 2), heads, _masks(e, 3, 5, e.input(0)), 3, 4)


def _attended_joined(e: Expansion, parts: list[str], heads: int, masks: list[str], mask: int, past: int) -> None:
    """The outputs of a node with a mask of keys at input ``mask``, keys and values of the past in one at ``past``."""
    if not e.optional(past):
        _attended(e, parts, heads, masks)
        return
    if e.optional(mask) and e.optional(mask) in e.shared.lengths:
        raise e.error("a past with lengths of sequences is not supported")
    before = [e.add("Gather", e.optional(past), e.array(np.array(i, np.int64))) for i in (0, 1)]
    _, keys, values = _attended(e, parts, heads, masks, before, ("", ""))
    if e.output(1):
        e.add("Concat", e.unsqueezed(keys, 0), e.unsqueezed(values, 0), output=e.output(1), axis=0)


@expands("QAttention")
def quantised_attention(e: Expansion) -> None:
    """Input and weights in 8 bits, bias, their scales, mask, their zero points, past: floats come out."""
    _refuse(e, "do_rotary", "past_present_share_buffer")
    e.attr("mask_filter_value", -10000.0)
    heads, weights = e.integer("num_heads", 0), e.constant(1, "its weight")
    width = weights.shape[-1] if len(weights.shape) == 2 else 0
    if heads < 1 or not width or width % (3 * heads):
        raise e.error(f"{heads} heads of weights of shape {weights.shape}")
    sums = e.add("MatMulInteger", e.input(0), e.input(1), e.optional(6), e.optional(7))
    joined = e.add("Mul", e.add("Cast", sums, to=1), e.add("Mul", e.input(3), e.input(4)))
    if e.optional(2):
        joined = e.add("Add", joined, e.optional(2))
    _attended_joined(e, _cut(e, joined, [width // 3] * 3, 2), heads, _masks(e, 5, 9, e.input(0)), 5, 8)


def _cut(e: Expansion, value: str, sizes: list[int], axis: int) -> list[str]:
    ends = np.cumsum([0, *sizes])
    return [
        e.add("Slice", value, *(e.array(np.array([v], np.int64)) for v in (start, end, axis)))
        for start, end in pairwise(ends)
    ]


@expands("MultiHeadAttention")
def multi_head_attention(e: Expansion) -> None:
    """Queries, keys, values, their biases in one, a mask of keys, what is added to the scores, past keys and values."""
    e.without(8, 9, "a past of another length, or of beams,")
    if bool(e.optional(6)) != bool(e.optional(7)):
        raise e.error("past keys without past values")
    e.attr("mask_filter_value", -10000.0)
    heads = e.integer("num_heads", 0)
    parts = [e.input(i) for i in range(3)]
    if heads < 1:
        raise e.error(f"attribute num_heads={heads} does not fit the input")
    if e.optional(3):
        bias = e.constant(3, "its bias")
        if len(bias.shape) != 1 or bias.shape[0] % 3:
            raise e.error(f"bias of shape {bias.shape}")
        cuts = _cut(e, bias.name, [bias.shape[0] // 3] * 3, 0)
        parts = [e.add("Add", part, cut) for part, cut in zip(parts, cuts, strict=True)]
    if e.optional(6) and e.optional(4) in e.shared.lengths and e.optional(4):
        raise e.error("a past with lengths of sequences is not supported")
    _attended(e, parts, heads, _masks(e, 4, 5, parts[1]), (e.optional(6), e.optional(7)), (e.output(1), e.output(2)))


@expands("RotaryEmbedding")
def rotary_embedding(e: Expansion) -> None:
    """Input, positions (or the first one), caches of cosines and sines."""
    _refuse(e, "is_packed_batching")
    if e.number("scale", 1.0) != 1:
        raise e.error("attribute scale is not supported")
    names = ("interleaved", "num_heads", "rotary_embedding_dim")
    attrs: dict[str, ModelAttr] = {name: e.integer(name, 0) for name in names}
    e.split("flexnn.RotaryEmbedding", [e.input(i) for i in (0, 2, 3, 1)], [e.output(0)], attrs)
