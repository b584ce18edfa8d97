"""Different elements."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, work_bytes
from .call import Call, copied, evaluates

_INT64 = np.dtype(np.int64)


def _starts(ordered: Array) -> Array:
    """Which elements of a sorted list begin a run of equal ones; all that are no number are one run."""
    begins = np.ones(ordered.shape, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    if ordered.dtype.kind == "f" and ordered.size and np.isnan(ordered[-1]):
        begins[np.searchsorted(ordered, np.nan) + 1 :] = False
    return begins


def _listed(call: Call, x: Array, outputs: int, more: int) -> list[Array]:
    """The outputs for all elements of ``x``, as a list."""
    n = x.size
    if outputs < 2 and call.integer("sorted", 1):
        call.reserve(((n,), x.dtype), workspace=n * (x.itemsize + 1))
        ordered = x.flatten()
        ordered.sort()
        return [ordered[_starts(ordered)]]
    call.reserve(((n,), x.dtype), *[((n,), _INT64)] * 3, workspace=n * (x.itemsize + 33) + copied(x) + more)
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


def _unique(call: Call, outputs: int, more: int = 0) -> list[Array]:
    """The outputs of Unique, ``outputs`` of them or all. ``more``: bytes that the caller takes beside them."""
    x = call.x(0)
    if call.has("axis"):
        axis = call.axis(call.integer("axis", 0), x.ndim)
        n = x.shape[axis]
        ints = [((n,), _INT64)] * 3
        work = 4 * x.nbytes + 64 * n + 512 * x.size // max(n, 1)
        call.reserve((x.shape, x.dtype), *ints, workspace=work + more)
        found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        results = [found[0], found[1], found[2].reshape(-1), found[3]]
    else:
        axis = 0
        results = _listed(call, x, outputs, more)
    if not call.integer("sorted", 1):
        values, first, inverse, counts = results
        order = np.argsort(first, kind="stable")
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        for i in range(0, inverse.size, ELEMENTS):
            inverse[i : i + ELEMENTS] = rank[inverse[i : i + ELEMENTS]]
        results = [values.take(order, axis), first[order], inverse, counts[order]]
    return [results[0], *(r.astype(np.int64, copy=False) for r in results[1:])]


@evaluates("Unique")
def unique(call: Call) -> list[Array]:
    """Different elements (or slices of an axis), where each is first, which one each is, and how many of each."""
    return _unique(call, call.outputs)


@evaluates("Unique.groups")
def unique_groups(call: Call) -> list[Array]:
    """Which element, or slice, is in which group of equal ones; and the number of groups."""
    _, _, inverse, counts = _unique(call, 4, 8 * (call.x(0).size + 1))
    return [np.append(inverse, np.int64(counts.size))]


@evaluates("Unique.first", "Unique.members")
def unique_tally(call: Call) -> list[Array]:
    """The first of each group, or how many are in it."""
    numbers, count = call.x(0)[:-1], call.scalar(1)
    groups = -1 if count is None else int(count)
    if numbers.dtype != _INT64 or not 0 <= groups <= numbers.size:
        raise call.error(f"{groups} groups of {numbers.size} {numbers.dtype}")
    call.reserve(((groups,), _INT64), workspace=8 * groups + work_bytes(numbers.size))
    if numbers.size and (numbers.min() < 0 or numbers.max() >= groups):
        raise call.error(f"the number of a group is outside [0, {groups - 1}]")
    members = np.bincount(numbers, minlength=groups)
    if not members.all():
        raise call.error(f"one of {groups} groups has no members")
    if call.op == "Unique.members":
        return [members.astype(np.int64, copy=False)]
    first = np.empty(groups, np.int64)
    for at in reversed(range(0, numbers.size, ELEMENTS)):
        part = numbers[at : at + ELEMENTS][::-1]
        first[part] = np.arange(at + part.size - 1, at - 1, -1)  # of equal numbers the last one stays, the first of all
    return [first]
