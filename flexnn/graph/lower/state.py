"""Attention whose keys and values are state: rows appended in place, and attention over all of them."""

from __future__ import annotations

import math

import numpy as np

from ..ir import Attr
from ..operators.attention import STATE_DTYPES
from ..state import CAPACITY
from .attention import HEADS, heads_of
from .context import Context, Value, lowers


@lowers("flexnn.CachedAttention")
def cached_attention(ctx: Context) -> list[Value]:
    """Queries, keys and values of new tokens, rotated already, the length of the state, int64 [1], and sinks. They are
    [1, tokens, heads * dim], or [1, heads, tokens, dim]. The outputs are alike, and the state.
    """
    packed = len(ctx.shape(ctx.input(0))) == 3
    q = heads_of(ctx, ctx.input(0), "num_heads")
    k, v = (heads_of(ctx, ctx.input(i), "kv_heads") for i in (1, 2))
    for name in ("num_heads", "kv_heads"):
        ctx.integer(name, 0)
    if {ctx.dtype(x) for x in (q, k, v)} != {"f32"} or ctx.shape(q)[0] != 1:
        raise ctx.error(f"queries {ctx.dtype(q)}{list(ctx.shape(q))}: float32 and a batch of one are supported")
    dtype = ctx.text("dtype", STATE_DTYPES[0])
    length = ctx.tensor(ctx.input(3))
    state: Value = ctx.emit("state_append", [k, v, length], {"capacity": _capacity(ctx), "dtype": dtype})
    scale = ctx.number("scale", 0.0) or 1 / math.sqrt(ctx.shape(q)[3])
    window = ctx.integer("window", 0)
    attrs: dict[str, Attr] = {"scale": scale, "softcap": ctx.number("softcap", 0.0), "window": window}
    sinks = ctx.optional(4)
    inputs = [q, state, length] if sinks is None else [q, state, length, sinks]
    y: Value = ctx.emit("state_attention", inputs, attrs)
    if packed:
        _, tokens, heads, dim = ctx.shape(y)
        return [ctx.reshape(y, (1, tokens, heads * dim)), state]
    return [ctx.transpose(y, HEADS), state]


def _capacity(ctx: Context) -> int:
    capacity = ctx.integer("capacity", CAPACITY)
    if not 1 <= capacity <= np.iinfo(np.int32).max:
        raise ctx.error(f"a capacity of {capacity} rows is not supported")
    return capacity
