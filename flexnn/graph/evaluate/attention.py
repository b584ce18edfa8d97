"""Attention and what goes with it."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from ..ir import Array
from .blocks import over
from .call import Call, copied, evaluates
from .elementwise import converted, sigmoid
from .reduction import softmax


def _heads(call: Call, x: Array, name: str) -> Array:
    """[batch, heads, tokens, dim]; of three dimensions the last holds the heads, ``name`` says how many."""
    if x.ndim == 4:
        return x
    heads = call.integer(name, 0)
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads:
        raise call.error(f"shape {x.shape} does not divide into {name}={heads}")
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _window(call: Call, tokens: int, keys: int, first: Array) -> Array:
    """Whether a query may see a key: causal, and within the sliding window; query i stands at ``first`` + i."""
    distance = first.reshape(-1, 1, 1, 1) + np.arange(tokens).reshape(-1, 1) - np.arange(keys)
    seen = np.ones(distance.shape, np.bool_)
    if call.integer("is_causal", 0):
        seen &= distance >= 0
    left, right = call.integer("left_window_size", -1), call.integer("right_window_size", -1)
    if left >= 0:
        seen &= distance <= left
    if right >= 0:
        seen &= -distance <= right
    return seen


def _bias(call: Call, mask: Array | None, q: Array, keys: int, past: int, lengths: Array | None) -> Array:
    """Return the numbers to add to the scores: the mask, and -inf where a query may not look."""
    tokens, own = q.shape[2], q.dtype.type
    before = np.array([past]) if lengths is None or past else lengths.reshape(-1) - tokens
    bias = np.where(_window(call, tokens, keys, before), own(0), own(-np.inf))
    if lengths is not None:
        real = np.arange(keys) < lengths.reshape(-1, 1, 1, 1)
        bias = bias + np.where(real, own(0), own(-np.inf))
    if mask is None:
        return np.asarray(bias)
    if mask.shape[-1] < keys:
        fill = False if mask.dtype == np.bool_ else -np.inf
        widths = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        mask = np.pad(mask, widths, constant_values=fill)
    if mask.dtype == np.bool_:
        mask = np.where(mask, own(0), own(-np.inf))
    return np.asarray(bias + mask, q.dtype)


def _reserve(call: Call, q: Array, k: Array, v: Array) -> None:
    """State what Attention takes: scores of every query for every key, some times, and keys and values repeated."""
    mask, past_k, past_v = (call.get(i) for i in (3, 4, 5))
    keys = k.shape[2] + (0 if past_k is None or past_v is None else past_k.shape[-2])
    wide = max(q.itemsize, call.dtype("softmax_precision", 1).itemsize if call.integer("softmax_precision", 0) else 0)
    scores = prod(q.shape[:3]) * keys
    window = prod((q.shape[0], q.shape[2], keys)) * (3 * 8 + 4) + (0 if mask is None else 2 * mask.size * 8)
    heads = prod((*q.shape[:2], keys, k.shape[3] + v.shape[3])) * q.itemsize
    made = prod((*q.shape[:3], q.shape[3] + 2 * v.shape[3])) * q.itemsize
    call.reserve(workspace=scores * (4 * q.itemsize + 3 * wide) + window + 3 * heads + made)


@evaluates("Attention")
def attention(call: Call) -> list[Array]:
    """https://onnx.ai/onnx/operators/onnx__Attention.html; a query that may see no key gives zeros."""
    packed = call.x(0).ndim == 3
    q, k = _heads(call, call.x(0), "q_num_heads"), _heads(call, call.x(1), "kv_num_heads")
    v, mask, past_k, past_v, lengths = _heads(call, call.x(2), "kv_num_heads"), *(call.get(i) for i in range(3, 7))
    _reserve(call, q, k, v)
    past = 0
    if past_k is not None and past_v is not None:
        past = past_k.shape[2]
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    if q.shape[1] % k.shape[1] or k.shape[1] != v.shape[1] or q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2]:
        raise call.error(f"queries {q.shape}, keys {k.shape} and values {v.shape} do not fit together")
    repeats = q.shape[1] // k.shape[1]
    present = [k, v]
    k, v = np.repeat(k, repeats, 1), np.repeat(v, repeats, 1)
    scale = q.dtype.type(math.sqrt(call.number("scale", 1 / math.sqrt(q.shape[3]))))
    raw = (q * scale) @ (k * scale).transpose(0, 1, 3, 2)
    softcap = call.number("softcap", 0.0)
    capped = np.asarray(np.tanh(raw / softcap) * softcap, q.dtype) if softcap > 0 else raw
    bias = _bias(call, mask, q, k.shape[2], past, lengths)
    scores = np.asarray(capped + bias, q.dtype)
    work = call.dtype("softmax_precision", 0) if call.integer("softmax_precision", 0) else q.dtype
    dead = np.isneginf(np.max(bias, -1, keepdims=True))
    shares = np.where(dead, 0, softmax(converted(scores, work), -1)).astype(q.dtype)
    y = shares @ v
    if packed:
        y = y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)
    shown = {0: raw, 1: capped, 2: scores, 3: shares}
    mode = call.integer("qk_matmul_output_mode", 0)
    if mode not in shown:
        raise call.error(f"qk_matmul_output_mode {mode} is not supported")
    return [y, *present, shown[mode]][: max(call.outputs, 1)]


@evaluates("RotaryEmbedding")
def rotary(call: Call) -> list[Array]:
    """Pairs of elements turned by an angle for each position."""
    x, cos, sin, positions = call.x(0), call.x(1), call.x(2), call.get(3)
    heads = x.transpose(0, 2, 1, 3) if x.ndim == 4 else x.reshape(*x.shape[:2], call.integer("num_heads", 0) or 1, -1)
    turned = call.integer("rotary_embedding_dim", 0) or heads.shape[3]
    picked = 0 if positions is None else 16 * positions.size + 2 * positions.size * cos.shape[-1] * cos.itemsize
    call.reserve((x.shape, x.dtype), workspace=picked + 2 * x.nbytes + copied(x))
    if positions is not None:
        if positions.size and (positions.min() < 0 or positions.max() >= cos.shape[0]):
            raise call.error("a position is outside the caches")
        cos, sin = cos[positions], sin[positions]
    if not 0 < turned <= heads.shape[3] or cos.shape[-1] * 2 != turned or sin.shape != cos.shape:
        raise call.error(f"turns {turned} of {heads.shape[3]} elements, caches {cos.shape}, {sin.shape}")
    cos, sin = cos[:, :, None], sin[:, :, None]
    own, rest = heads[..., :turned], heads[..., turned:]
    if call.integer("interleaved", 0):
        a, b = own[..., 0::2], own[..., 1::2]
        pairs = np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(own.shape)
    else:
        a, b = own[..., : turned // 2], own[..., turned // 2 :]
        pairs = np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
    y = np.concatenate([pairs, rest], -1)
    return [np.asarray(y.transpose(0, 2, 1, 3) if x.ndim == 4 else y.reshape(x.shape), x.dtype)]


@evaluates("SwiGLU")
def swiglu(call: Call) -> list[Array]:
    """A sigmoid(alpha a) b."""
    a, b = call.x(0), call.x(1)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise call.error(f"operands {a.shape} of {a.dtype} and {b.shape} of {b.dtype} do not fit together")
    alpha = call.number("alpha", 1.0)
    return [over(call, lambda v, w: v * sigmoid(alpha * v).astype(v.dtype) * w, [a, b], a.dtype)]


@evaluates("LinearAttention")
def linear_attention(call: Call) -> list[Array]:
    """A state of keys by values, decayed, corrected and read step by step."""
    rule = call.text("update_rule", "gated_delta")
    gated, delta = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    past, decay, beta = call.get(3), call.get(4), call.get(5)
    q_heads, heads = call.integer("q_num_heads", 0), call.integer("kv_num_heads", 0)
    if rule not in ("linear", "gated", "delta", "gated_delta") or gated != (decay is not None):
        raise call.error(f"update_rule {rule!r} with{'' if decay is not None else 'out'} decay")
    if delta != (beta is not None) or heads < 1 or q_heads < 1 or q_heads % heads or call.x(0).ndim != 3:
        raise call.error(f"update_rule {rule!r}, {q_heads} query heads, {heads} key heads, input {call.x(0).shape}")
    query = call.x(0)
    sizes = [0 if v is None else v.size for v in (query, call.x(1), call.x(2), decay, beta)]
    wide = q_heads * call.x(2).shape[-1] // heads
    states = call.x(1).shape[-1] * wide * query.shape[0]  # as many as the query has heads
    call.reserve(workspace=4 * sum(sizes) + 4 * 6 * states + 12 * prod(query.shape[:2]) * wide + copied(query))
    q = _heads(call, query, "q_num_heads").astype(np.float32)
    k, v = (_heads(call, call.x(i), "kv_num_heads").astype(np.float32) for i in (1, 2))
    batch, _, steps, dim = q.shape
    state = np.zeros((batch, heads, dim, v.shape[3]), np.float32) if past is None else past.astype(np.float32)
    if decay is not None:  # one for each head, or for each of its keys
        decay = decay.astype(np.float32).reshape(batch, steps, heads, -1).transpose(0, 2, 1, 3)
    if beta is not None:
        beta = beta.astype(np.float32).reshape(batch, steps, -1, 1).transpose(0, 2, 1, 3)
    y = np.zeros((batch, q_heads, steps, v.shape[3]), np.float32)
    for t in range(steps):
        key, value = k[:, :, t], v[:, :, t]
        if decay is not None:
            state = state * np.exp(decay[:, :, t])[..., None]
        if beta is not None:
            value = beta[:, :, t] * (value - np.einsum("bhdm,bhd->bhm", state, key))
        state = state + key[..., :, None] * value[..., None, :]
        y[:, :, t] = np.einsum("bhd,bhdm->bhm", q[:, :, t], np.repeat(state, q_heads // heads, 1))
    y *= call.number("scale", 0.0) or 1 / math.sqrt(dim)
    return [
        y.transpose(0, 2, 1, 3).reshape(batch, steps, -1).astype(query.dtype),
        state.astype(query.dtype if past is None else past.dtype),
    ]
