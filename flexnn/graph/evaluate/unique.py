"""Different elements."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS
from .call import Call, copied, evaluates


def _starts(ordered: Array) -> Array:
    """Which elements of a sorted list begin a run of equal ones; all that are no number are one run."""
    begins = np.ones(ordered.shape, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    if ordered.dtype.kind == "f" and ordered.size and np.isnan(ordered[-1]):
        begins[np.searchsorted(ordered, np.nan) + 1 :] = False
    return begins


def _listed(call: Call, x: Array) -> list[Array]:
    """The outputs for all elements of ``x``, as a list."""
    n = x.size
    if call.outputs < 2 and call.integer("sorted", 1):
        call.reserve(((n,), x.dtype), workspace=n * (x.itemsize + 1))
        ordered = x.flatten()
        ordered.sort()
        return [ordered[_starts(ordered)]]
    call.reserve(((n,), x.dtype), *[((n,), np.dtype(np.int64))] * 3, workspace=n * (x.itemsize + 33) + copied(x))
    flat = x.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    begins = _starts(ordered)
    values, first = ordered[begins], order[begins]
    del ordered
    counts = np.flatnonzero(begins)
    counts[:-1] = counts[1:] - counts[:-1]
    counts[-1:] = n - counts[-1:]
    group = np.cumsum(begins, dtype=np.int64)
    del begins
    group -= 1
    inverse = np.empty(n, np.int64)
    inverse[order] = group
    return [values, first, inverse, counts]


@evaluates("Unique")
def unique(call: Call) -> list[Array]:
    """Different elements (or slices of an axis), where each is first, which one each is, and how many of each."""
    x = call.x(0)
    if call.has("axis"):
        axis = call.axis(call.integer("axis", 0), x.ndim)
        n = x.shape[axis]
        ints = [((n,), np.dtype(np.int64))] * 3
        call.reserve((x.shape, x.dtype), *ints, workspace=4 * x.nbytes + 64 * n + 512 * x.size // max(n, 1))
        found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        results = [found[0], found[1], found[2].reshape(-1), found[3]]
    else:
        axis = 0
        results = _listed(call, x)
    if not call.integer("sorted", 1):
        values, first, inverse, counts = results
        order = np.argsort(first, kind="stable")
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        for i in range(0, inverse.size, ELEMENTS):
            inverse[i : i + ELEMENTS] = rank[inverse[i : i + ELEMENTS]]
        results = [values.take(order, axis), first[order], inverse, counts[order]]
    return [results[0], *(r.astype(np.int64, copy=False) for r in results[1:])]
