"""Attention whose keys and values are state: rows appended in place, and attention over all of them."""

from __future__ import annotations

import math

import numpy as np

from ..build import NO_ACT, add_node
from ..ir import Attr
from ..operators.attention import STATE_DTYPES, WHOLE
from ..sources import SizesSource
from ..state import CAPACITY, CROSS, LENGTHS, ONCE, are_shapes_made_up
from .attention import HEADS, heads_of
from .constant import Const, sizes_const
from .context import Context, Value, lowers


@lowers("flexnn.CachedAttention")
def cached_attention(ctx: Context) -> list[Value]:
    """Queries, keys and values of new tokens, rotated already, the length of the state, int64 [1], and sinks [heads],
    or what is added to scores [heads, capacity], by how far a key is behind, the furthest first. The others are
    [1, tokens, heads * dim], or [1, heads, tokens, dim]. The outputs are alike, and the state.
    """
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
    added = ctx.optional(4)
    inputs = [q, state, length] if added is None else [q, state, length, added]
    y: Value = ctx.emit("state_attention", inputs, attrs)
    return [_as_queries(ctx, y), state]


def _as_queries(ctx: Context, y: Value) -> Value:
    """Return what attention made in the layout of the queries."""
    if len(ctx.shape(ctx.input(0))) == 3:
        _, tokens, heads, dim = ctx.shape(y)
        return ctx.reshape(y, (1, tokens, heads * dim))
    return ctx.transpose(y, HEADS)


@lowers(CROSS)
def cross_attention(ctx: Context) -> list[Value]:
    """Queries as of CachedAttention, keys and values that a KeptOnce made, and how many rows of them there are."""
    q = heads_of(ctx, ctx.input(0), "num_heads")
    ctx.integer("num_heads", 0)
    if ctx.dtype(q) != "f32" or ctx.shape(q)[0] != 1:
        raise ctx.error(f"queries {ctx.dtype(q)}{list(ctx.shape(q))}: float32 and a batch of one are supported")
    scale = ctx.number("scale", 0.0) or 1 / math.sqrt(ctx.shape(q)[3])
    attrs: dict[str, Attr] = {"scale": scale, "softcap": ctx.number("softcap", 0.0), "window": 0}
    return [
        _as_queries(
            ctx, ctx.emit("state_attention", [q, ctx.input(1), ctx.reshape(ctx.tensor(ctx.input(2)), WHOLE)], attrs)
        )
    ]


@lowers(ONCE)
def kept_once(ctx: Context) -> list[Value]:
    """Keys and values [1, groups, rows, dim] as state, whose first rows they are; and the length 0, int64 [1]."""
    k, v = (heads_of(ctx, ctx.input(i), "kv_heads") for i in (0, 1))
    ctx.integer("kv_heads", 0)
    if {ctx.dtype(x) for x in (k, v)} != {"f32"} or ctx.shape(k)[0] != 1:
        raise ctx.error(f"keys {ctx.dtype(k)}{list(ctx.shape(k))}: float32 and a batch of one are supported")
    dtype = ctx.text("dtype", STATE_DTYPES[0])
    return [ctx.emit("state_append", [k, v, ctx.tensor(ctx.input(2))], {"capacity": _capacity(ctx), "dtype": dtype})]


@lowers(LENGTHS)
def past_lengths(ctx: Context) -> list[Value]:
    """Queries [batch, tokens, hidden], past keys, the last position of each sequence, and how long the longest is with
    its new tokens. The output are the queries; a past that is not as long as these say is refused: a buffer with room
    for more tokens, or sequences of several lengths.
    """
    q, keys, ends = ctx.input(0), ctx.optional(1), ctx.input(2)
    batch, tokens = ctx.shape(q)[:2]
    past = 0 if keys is None else ctx.shape(keys)[2]
    wanted = past + tokens
    if are_shapes_made_up():
        return [_checked(ctx, q, ends, wanted) if batch == 1 and not isinstance(ends, Const) else q]
    ends, total = ctx.input(2), ctx.constant_ints(3, "the total length of the sequences")
    if any(length != wanted for length in total or ()):
        raise ctx.error(
            f"GroupQueryAttention's total_sequence_length is {(total or [0])[0]} for a past of {past} and {tokens} "
            "new tokens: a past with room for more is not supported; open the session with kv_capacity, so that it "
            "keeps keys and values itself"
        )
    if batch == 1 and not isinstance(ends, Const):
        return [_checked(ctx, q, ends, wanted)]
    known = ctx.known(ends, "the lengths of the sequences")
    flat = known.source.numbers if isinstance(known.source, SizesSource) else known.load()
    if any(end + 1 != wanted for end in flat.reshape(-1)):
        raise ctx.error(
            f"GroupQueryAttention's seqlens_k are not all {wanted - 1}: sequences of several lengths in a batch "
            "are not supported; run each by itself"
        )
    return [q]


def _checked(ctx: Context, q: Value, ends: Value, wanted: int) -> Value:
    """Return the queries, where a run finds the one last position to be that of the past and the new tokens; else it
    fails: an index that is 0 then is out of range, in the first layer that reads the position.
    """
    name = f"seqlens_k, of a mask with zeros or a past with room for more, which are not supported ({ends})"
    if not all(ctx.shape(q)) or any(node.name == name for node in ctx.graph.nodes):
        return q
    own = ctx.emit("cast", [ctx.reshape(ends, (1,))], {"to": "i64"}) if ctx.dtype(ends) != "i64" else ends
    behind = np.empty(1, object)
    behind[0] = 1 - wanted
    lack = ctx.emit("pointwise", [own, sizes_const(f"{ctx.name}.behind", behind)], {"kind": "add"})
    twice = ctx.emit("pointwise", [lack, lack], {"kind": "add"})  # -1 would be the last index
    zero = add_node(
        ctx.graph, name, "gather", [ctx.tensor(ctx.array(np.zeros(1, np.float32), "zero")), twice], {"axis": 0}
    )
    return ctx.emit("binary", [q, ctx.reshape(zero, (1, 1, 1))], {"kind": "add", **NO_ACT})


def _capacity(ctx: Context) -> int:
    capacity = ctx.integer("capacity", CAPACITY)
    if not 1 <= capacity <= np.iinfo(np.int32).max:
        raise ctx.error(f"a capacity of {capacity} rows is not supported")
    return capacity
