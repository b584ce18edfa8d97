"""Attention and RotaryEmbedding of opset 23 and later: a node of the core each, attention's scores never whole."""

from __future__ import annotations

import math

import numpy as np

from ..build import copy_attrs
from ..ir import Attr
from ..strided import broadcast
from .context import Context, Value, lowers

HEADS = [0, 2, 1, 3]


def heads_of(ctx: Context, value: Value, name: str) -> Value:
    """[batch, heads, tokens, dim]; of three dimensions the last holds the heads, ``name`` says how many."""
    shape, heads = ctx.shape(value), ctx.integer(name, 0)
    if len(shape) == 4:
        return value
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise ctx.error(f"shape {shape} does not divide into {name}={heads}")
    return ctx.transpose(ctx.reshape(value, (*shape[:2], heads, shape[2] // heads)), HEADS)


def _mask(ctx: Context, mask: Value, scores: tuple[int, ...]) -> Value:
    """Return the numbers to add to scores of this shape."""
    if broadcast(ctx.shape(mask), scores) != scores:
        raise ctx.error(f"a mask of shape {ctx.shape(mask)} does not broadcast to scores of shape {scores}")
    if ctx.dtype(mask) == "bool":
        ends: list[Value] = [ctx.array(np.array(n, np.float32), name) for n, name in ((0, "seen"), (-np.inf, "hidden"))]
        return ctx.emit("pointwise", [*ends, mask], {"kind": "where"})
    if ctx.dtype(mask) != "f32":
        raise ctx.error(f"a mask of type {ctx.dtype(mask)} is not supported (bool and f32 are)")
    return mask


def _seen(ctx: Context, past: int) -> dict[str, Attr]:
    """Return the attributes that say which keys queries see."""
    left, is_causal = ctx.integer("left_window_size", -1), ctx.integer("is_causal", 0)
    if not is_causal:
        ctx.only("left_window_size", -1, "of queries that see later keys")
        ctx.only("right_window_size", -1, "of queries that see later keys")
    ctx.integer("right_window_size", -1)
    return {"is_causal": is_causal, "past": past, "window": left + 1 if left >= 0 else 0}


@lowers("Attention")
def attention(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__Attention.html; scores that are read are left to numpy."""
    ctx.integer("qk_matmul_output_mode", 0)
    if ctx.integer("softmax_precision", 1) not in (0, 1) or ctx.optional(6) is not None or any(ctx.node.output[3:]):
        raise ctx.error("another precision of softmax, lengths of keys, or scores that are read, are not supported")
    packed = len(ctx.shape(ctx.input(0))) == 3
    q = heads_of(ctx, ctx.input(0), "q_num_heads")
    k, v = (heads_of(ctx, ctx.input(i), "kv_num_heads") for i in (1, 2))
    past = 0
    before_k, before_v = ctx.optional(4), ctx.optional(5)
    if before_k is not None and before_v is not None:
        past = ctx.shape(before_k)[2]
        k, v = (ctx.emit("concat", pair, {"axis": 2}) if past else pair[1] for pair in ([before_k, k], [before_v, v]))
    if {ctx.dtype(x) for x in (q, k, v)} != {"f32"}:
        raise ctx.error(f"{ctx.dtype(q)}, {ctx.dtype(k)}, {ctx.dtype(v)} are not all float32")
    batch, heads, tokens, dim = ctx.shape(q)
    inputs = [q, k, v]
    mask = ctx.optional(3)
    if mask is not None:
        inputs.append(_mask(ctx, mask, (batch, heads, tokens, ctx.shape(k)[2])))
    scale, softcap = ctx.number("scale", 1 / math.sqrt(dim)), max(ctx.number("softcap", 0.0), 0.0)
    y: Value = ctx.emit("attention", inputs, {"scale": scale, "softcap": softcap, **_seen(ctx, past)})
    if packed:
        return [ctx.reshape(y, (batch, tokens, heads * ctx.shape(y)[3])), k, v]
    return [ctx.transpose(y, HEADS), k, v]


@lowers("RotaryEmbedding")
def rotary(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html"""
    return [_turned(ctx, heads_of(ctx, ctx.input(0), "num_heads"), ctx.optional(3))]


@lowers("flexnn.RotaryEmbedding")
def rotary_from(ctx: Context) -> list[Value]:
    """onnxruntime's, whose positions may be the first one's alone; the caches may say how large a head is."""
    x, positions = ctx.input(0), ctx.input(3)
    shape, half = ctx.shape(x), ctx.shape(ctx.input(1))[-1]
    if len(shape) == 3 and not ctx.integer("num_heads", 0) and shape[2] % (2 * half) == 0:
        x = ctx.transpose(ctx.reshape(x, (*shape[:2], shape[2] // (2 * half), 2 * half)), HEADS)
    else:
        x = heads_of(ctx, x, "num_heads")
    batch, _, tokens, _ = ctx.shape(x)
    if len(ctx.shape(positions)) == 1 and ctx.shape(positions) == (1,) and ctx.dtype(positions) == "i64":
        steps = ctx.array(np.arange(tokens)[None], "steps")
        row = ctx.emit("pointwise", [ctx.reshape(positions, (1, 1)), steps], {"kind": "add"})
        positions = ctx.emit("copy", [row], copy_attrs(2, expand=[batch, tokens]))
    return [_turned(ctx, x, positions)]


def _turned(ctx: Context, heads: Value, positions: Value | None) -> Value:
    """[batch, heads, tokens, dim] turned by the rows of the caches at these positions, in the shape of the input."""
    shape = ctx.shape(ctx.input(0))
    ctx.integer("num_heads", 0)
    batch, _, tokens, dim = ctx.shape(heads)
    turned = ctx.integer("rotary_embedding_dim", 0) or dim
    angles = []
    for cache in (ctx.input(1), ctx.input(2)):
        if positions is not None:  # rows of the caches
            cache = ctx.emit("gather", [cache, positions], {"axis": 0})
        if ctx.shape(cache) != (batch, tokens, turned // 2):
            raise ctx.error(f"a cache of shape {ctx.shape(cache)} for {shape}, of which {turned} elements turn")
        angles.append(ctx.reshape(cache, (batch, 1, tokens, turned // 2)))
    if {ctx.dtype(value) for value in (heads, *angles)} != {"f32"}:
        raise ctx.error(f"{ctx.dtype(heads)} is not float32")
    attrs: dict[str, Attr] = {"turned": turned, "is_interleaved": int(ctx.integer("interleaved", 0) != 0)}
    y: Value = ctx.emit("rotary", [heads, *angles], attrs)
    return y if len(shape) == 4 else ctx.reshape(ctx.transpose(y, HEADS), shape)
