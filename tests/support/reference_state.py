"""The meaning of the operators over state, in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flexnn.graph.ir import DTYPES, Graph, Node
from flexnn.graph.operators.attention import WHOLE

Array = np.ndarray


def _append(graph: Graph, node: Node, k: Array, v: Array, length: Array) -> Array:
    """State of NaNs, in which only the new rows are known."""
    _, groups, tokens, d = k.shape
    at = int(length.reshape(-1)[0])
    state = np.full((2, groups, int(node.attrs["capacity"]), d), np.nan, DTYPES[str(node.attrs["dtype"])])
    state[0, :, at : at + tokens], state[1, :, at : at + tokens] = k[0], v[0]
    return state


def _attention(graph: Graph, node: Node, q: Array, state: Array, length: Array, added: Array | None = None) -> Array:
    heads, tokens = q.shape[1:3]
    is_whole = length.shape == WHOLE
    keys = int(length.reshape(-1)[0]) + (0 if is_whole else tokens)
    sinks = added if added is not None and added.ndim == 1 else None
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
