"""Attention of decoders as onnxruntime-genai writes them: grouped queries, a past, positions turned inside."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..model import ModelAttr
from ..state import LENGTHS
from .expansion import Expansion, expands


@expands("GroupQueryAttention")
def group_query_attention(e: Expansion) -> None:
    """Queries, keys, values (or all in the first), their past, lengths, and caches of cosines and sines. All sequences
    of a batch must be as long as the past and the new tokens together, which binding checks.
    """
    e.without(10, 10, "a bias of scores")
    e.without(11, 16, "head_sink, or keys that are scaled or normed,")
    for name, usual in (("smooth_softmax", 0), ("qk_output", 0), ("sliding_window_cache", 0), ("causal", 1)):
        if e.integer(name, usual) not in (usual, -1):
            raise e.error(f"attribute {name} is not supported")
    for name in ("k_quant_type", "v_quant_type"):
        if e.attr(name, "NONE") != "NONE":
            raise e.error(f"attribute {name} is not supported")
    for name in ("kv_cache_bit_width", "q_norm_epsilon", "k_norm_epsilon", "qk_norm_epsilon"):
        e.attr(name, 0)
    heads, groups = e.integer("num_heads", 0), e.integer("kv_num_heads", 0)
    if heads < 1 or groups < 1 or heads % groups or bool(e.optional(3)) != bool(e.optional(4)):
        raise e.error(f"{heads} heads of queries, {groups} of keys, or past keys without past values")
    q, k, v = _parts(e, heads, groups)
    positions = (e.optional(9) or _positions(e, q)) if e.integer("do_rotary", 0) else ""
    (q,) = e.split(LENGTHS, [q, e.optional(3), e.input(5), e.input(6)], [""], {})
    if positions:
        turning: dict[str, ModelAttr] = {"interleaved": e.integer("rotary_interleaved", 0)}
        caches = e.input(7), e.input(8)
        (q,) = e.split("flexnn.RotaryEmbedding", [q, *caches, positions], [""], turning | {"num_heads": heads})
        (k,) = e.split("flexnn.RotaryEmbedding", [k, *caches, positions], [""], turning | {"num_heads": groups})
    else:
        e.integer("rotary_interleaved", 0)
    attrs: dict[str, ModelAttr] = {"q_num_heads": heads, "kv_num_heads": groups, "is_causal": 1}
    window = e.integer("local_window_size", -1)
    attrs |= {"left_window_size": window - 1} if window > 0 else {}
    for name in ("scale", "softcap"):
        if number := e.number(name, 0.0):
            attrs[name] = number
    e.split("Attention", [q, k, v, "", e.optional(3), e.optional(4)], [e.output(i) for i in range(3)], attrs)


def _parts(e: Expansion, heads: int, groups: int) -> list[str]:
    """Return queries, keys and values; where they lie side by side, cut apart."""
    if e.optional(1):
        return [e.input(i) for i in range(3)]
    width = e.add("Div", _dimension(e, e.input(0), 2), e.array(np.array([heads + 2 * groups], np.int64)))
    ends = [
        e.add("Mul", width, e.array(np.array([n], np.int64))) for n in (0, heads, heads + groups, heads + 2 * groups)
    ]
    axis = e.array(np.array([2], np.int64))
    return [e.add("Slice", e.input(0), start, end, axis) for start, end in pairwise(ends)]


def _dimension(e: Expansion, value: str, axis: int) -> str:
    return e.add("Shape", value, start=axis, end=axis + 1)


def _positions(e: Expansion, q: str) -> str:
    """Return the positions of the new tokens, [batch, tokens]: the past's length and on."""
    zero, one = (e.array(np.array(n, np.int64)) for n in (0, 1))
    scalar = e.array(np.zeros(0, np.int64))
    steps = e.add("Range", zero, e.add("Reshape", _dimension(e, q, 1), scalar), one)
    if e.optional(3):
        steps = e.add("Add", steps, _dimension(e, e.optional(3), 2))
    return e.add("Expand", steps, e.add("Shape", q, start=0, end=2))
