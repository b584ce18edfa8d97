"""The meaning of the operators over state, in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flexnn.graph.ir import DTYPES, Graph, Node
from flexnn.graph.operators.attention import BLOCK, SCALE, WHOLE

Array = np.ndarray


def _append(graph: Graph, node: Node, k: Array, v: Array, length: Array) -> Array:
    """State of NaNs, in which only the new rows are known."""
    _, groups, tokens, d = k.shape
    at = int(length.reshape(-1)[0])
    shape, dtype = (2, groups, int(node.attrs["capacity"])), DTYPES[str(node.attrs["dtype"])]
    if dtype == np.int8:
        state = np.full((*shape, d + -(-d // BLOCK) * SCALE), -1, np.int8)  # scales of such bytes are no numbers
        state[0, :, at : at + tokens], state[1, :, at : at + tokens] = _in_bytes(k[0]), _in_bytes(v[0])
        return state
    state = np.full((*shape, d), np.nan, dtype)
    state[0, :, at : at + tokens], state[1, :, at : at + tokens] = k[0], v[0]
    return state


def _in_bytes(rows: Array) -> Array:
    """Rows of state in bytes, with their scales behind them."""
    d = rows.shape[-1]
    firsts = range(0, d, BLOCK)
    scales = np.stack([np.abs(rows[..., i : i + BLOCK]).max(-1) / np.float32(127) for i in firsts], -1)
    factors = np.repeat(np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0), BLOCK, -1)[..., :d]
    numbers = np.rint(rows * factors).astype(np.int8)
    return np.concatenate([numbers, scales.astype(np.float32).view(np.int8)], -1)


def _from_bytes(state: Array, d: int) -> Array:
    scales = np.ascontiguousarray(state[..., d:]).view(np.float32)
    return state[..., :d] * np.repeat(scales, BLOCK, -1)[..., :d]


def _attention(graph: Graph, node: Node, q: Array, state: Array, length: Array, added: Array | None = None) -> Array:
    heads, tokens = q.shape[1:3]
    is_whole = length.shape == WHOLE
    keys = int(length.reshape(-1)[0]) + (0 if is_whole else tokens)
    sinks = added if added is not None and added.ndim == 1 else None
    state = _from_bytes(state, q.shape[3]) if state.dtype == np.int8 else state
    k, v = np.repeat(state[:, :, :keys].astype(np.float64), heads // state.shape[1], axis=1)
    scores = q[0].astype(np.float64) @ k.swapaxes(1, 2) * node.attrs["scale"]
    if cap := node.attrs["softcap"]:
        scores = cap * np.tanh(scores / cap)
    own, key = np.arange(keys - tokens, keys)[:, None], np.arange(keys)
    seen = (key <= own) & (key > own - (int(node.attrs["window"]) or keys)) | is_whole
    if added is not None and sinks is None:
        scores = scores + added[:, np.clip(state.shape[2] - 1 - own + key, 0, state.shape[2] - 1)]
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (heads, tokens, 1))], axis=2)
        v = np.concatenate([v, np.zeros((heads, 1, v.shape[2]))], axis=1)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    y = shares / shares.sum(axis=2, keepdims=True) @ v
    return y.swapaxes(0, 1)[None].astype(np.float32)


OPERATORS: dict[str, Callable[..., Array]] = {"state_append": _append, "state_attention": _attention}
