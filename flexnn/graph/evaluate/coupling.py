"""Probabilities of classes from those of each pair of them, as support vector machines need them."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS
from .call import Call, evaluates

_ROUNDS = 100
_LEAST = np.float32(1e-7)
"""Least probability of a pair, either way."""


@evaluates("SVMClassifier.probabilities")
def probabilities(call: Call) -> list[Array]:
    """[n, classes] from scores of pairs [n, classes (classes - 1) / 2], by two numbers of each pair.

    Method 2 of Wu, Lin and Weng, https://www.csie.ntu.edu.tw/~cjlin/papers/svmprob/svmprob.pdf, in onnxruntime's steps.
    """
    x, classes = call.x(0), call.integer("classes", 0)
    slopes, shifts = (np.array(call.numbers(name, []), np.float32) for name in ("prob_a", "prob_b"))
    first, second = np.triu_indices(classes, 1)
    if x.dtype != np.float32 or x.ndim != 2 or not x.shape[1] == len(first) == len(slopes) == len(shifts):
        raise call.error(f"scores of shape {list(x.shape)} do not fit {classes} classes")
    rows = max(1, ELEMENTS // classes**2)
    at_once = min(rows, len(x))
    call.reserve(((len(x), classes), x.dtype), workspace=at_once * (16 * classes**2 + 64 * classes))
    y = np.empty((len(x), classes), np.float32)
    for at in range(0, len(x), rows):
        scores = x[at : at + rows]
        pairs = np.zeros((len(scores), classes, classes), np.float32)
        shares = np.clip(1 - _logistic(scores * slopes + shifts), _LEAST, 1 - _LEAST)
        pairs[:, first, second] = shares
        pairs[:, second, first] = 1 - shares
        y[at : at + rows] = _coupled(pairs)
    return [y]


def _logistic(x: Array) -> Array:
    y = 1 / (1 + np.exp(-np.abs(x)))
    return np.asarray(np.where(x < 0, 1 - y, y))


def _coupled(pairs: Array) -> Array:
    """Probabilities that agree best with ``pairs``: how probable a class is against another."""
    classes = pairs.shape[1]
    own = np.arange(classes)
    weights = pairs.transpose(0, 2, 1) * -pairs
    weights[:, own, own] = np.square(pairs).sum(1)
    p = np.full(pairs.shape[:2], 1 / classes, np.float32)
    for _ in range(_ROUNDS):
        sums = np.matmul(weights, p[..., None])[..., 0]
        total = (p * sums).sum(1)
        is_open = np.abs(sums - total[:, None]).max(1) >= np.float32(0.005) / np.float32(classes)
        if not is_open.any():
            break
        for i in own:
            pivot = weights[:, i, i]
            step = np.where(is_open, (total - sums[:, i]) / pivot, np.float32(0))
            p[:, i] += step
            scale = 1 + step
            total = (total + step * (step * pivot + 2 * sums[:, i])) / scale / scale
            sums = (sums + step[:, None] * weights[:, i]) / scale[:, None]
            p /= scale[:, None]
    return p
