"""Picking, placing and ordering elements."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ..ir import Array
from .call import Call, evaluates


@evaluates("Slice")
def slices(call: Call) -> list[Array]:
    """Ranges of some axes; bounds are clamped, steps may be negative."""
    x = call.x(0)
    if call.opset < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes = call.integers("axes") if call.has("axes") else None
        steps = None
    else:
        starts, ends = call.ints_at(1), call.ints_at(2)
        axes, steps = call.get_ints(3), call.get_ints(4)
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise call.error(f"starts {starts}, ends {ends}, axes {axes}, steps {steps}")
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(call.axes(axes, x.ndim), starts, ends, steps, strict=True):
        first, last, step = _bounds(x.shape[axis], start, end, step)
        index[axis] = slice(first, last, step)
    return [np.ascontiguousarray(x[tuple(index)]).reshape(x[tuple(index)].shape)]


def _bounds(size: int, start: int, end: int, step: int) -> tuple[int | None, int | None, int]:
    """Python's slice of what ONNX means: the same, but an end below the first element is no index from the back."""
    first, last, step = slice(start, end, step).indices(size)
    return first, (None if last < 0 else last), step


def _indices(call: Call, values: Array, size: int) -> Array:
    """Indices counted from the front. Raises GraphError for one out of range."""
    if values.dtype.kind not in "iu":
        raise call.error(f"indices of type {values.dtype} are not integers")
    if values.size and (values.min() < -size or values.max() >= size):
        raise call.error(f"an index is outside [-{size}, {size - 1}]")
    return np.where(values < 0, values + size, values).astype(np.int64)


@evaluates("Gather")
def gather(call: Call) -> list[Array]:
    """Slices of an axis by index."""
    x, indices = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    call.allow(x.shape[:axis] + indices.shape + x.shape[axis + 1 :], x.dtype)
    return [np.asarray(np.take(x, _indices(call, indices, x.shape[axis]), axis))]


@evaluates("GatherElements")
def gather_elements(call: Call) -> list[Array]:
    """One element for each index, at the index's own place but for the axis."""
    x, indices = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    index = _indices(call, indices, x.shape[axis])
    return [x[_grid(index, axis)]]


def _grid(index: Array, axis: int) -> tuple[Array, ...]:
    """Indices of all axes: ``index`` for ``axis``, the element's own place for others."""
    places = list(np.ogrid[tuple(slice(d) for d in index.shape)])
    places[axis] = index
    return tuple(places)


@evaluates("GatherND")
def gather_nd(call: Call) -> list[Array]:
    """Slices by index tuples, in each of the leading batches."""
    x, indices, batch = call.x(0), call.x(1), call.integer("batch_dims", 0)
    if not indices.ndim or not 0 <= batch < min(x.ndim, indices.ndim) or x.shape[:batch] != indices.shape[:batch]:
        raise call.error(f"input {x.shape}, indices {indices.shape}, batch_dims {batch} do not fit together")
    depth = indices.shape[-1]
    if depth > x.ndim - batch:
        raise call.error(f"{depth} indices are too many for shape {x.shape}")
    call.allow(indices.shape[:-1] + x.shape[batch + depth :], x.dtype)
    lead = prod(x.shape[:batch])
    flat = x.reshape(lead, *x.shape[batch:])
    own = indices.reshape(lead, -1, depth)
    places = [_indices(call, own[:, :, i], x.shape[batch + i]) for i in range(depth)]
    rows = np.arange(lead).reshape(-1, 1)
    picked = flat[(rows, *places)] if depth else np.broadcast_to(flat[:, None], (lead, own.shape[1], *flat.shape[1:]))
    return [picked.reshape(indices.shape[:-1] + x.shape[batch + depth :])]


_REDUCTIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _place(call: Call, y: Array, where: tuple[Array, ...], updates: Array) -> None:
    """Write ``updates`` into y, or combine them with what is there; repeated places count each time."""
    kind = call.text("reduction", "none")
    if kind == "none":
        y[where] = updates
    elif kind in _REDUCTIONS:
        _REDUCTIONS[kind].at(y, where, updates)
    else:
        raise call.error(f"reduction {kind!r} is not supported")


@evaluates("ScatterElements", "Scatter")
def scatter_elements(call: Call) -> list[Array]:
    """Elements written at the update's own place but for the axis, which the index says."""
    x, indices, updates = call.x(0), call.x(1), call.x(2)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    if indices.shape != updates.shape or indices.ndim != x.ndim or x.dtype != updates.dtype:
        raise call.error(f"shapes {x.shape}, {indices.shape}, {updates.shape} of {x.dtype}, {updates.dtype}")
    y = x.copy()
    _place(call, y, _grid(_indices(call, indices, x.shape[axis]), axis), updates)
    return [y]


@evaluates("ScatterND")
def scatter_nd(call: Call) -> list[Array]:
    """Slices written by index tuples."""
    x, indices, updates = call.x(0), call.x(1), call.x(2)
    if not indices.ndim or indices.shape[-1] > x.ndim or x.dtype != updates.dtype:
        raise call.error(f"shapes {x.shape}, {indices.shape} of {x.dtype}, {updates.dtype}")
    depth = indices.shape[-1]
    if updates.shape != indices.shape[:-1] + x.shape[depth:]:
        raise call.error(f"updates of shape {updates.shape} for indices {indices.shape} into {x.shape}")
    y = x.copy()
    places = tuple(_indices(call, indices[..., i], x.shape[i]) for i in range(depth))
    if depth:
        _place(call, y, places, updates)
    else:
        for update in updates.reshape(-1, *x.shape):
            _place(call, y, (np.array(True),), update[None])
    return [y]


@evaluates("TensorScatter")
def tensor_scatter(call: Call) -> list[Array]:
    """A cache updated from an index on, for each batch; circular ones wrap."""
    past, update, starts = call.x(0), call.x(1), call.get_ints(2)
    axis, mode = call.axis(call.integer("axis", -2), past.ndim), call.text("mode", "linear")
    starts = [0] * past.shape[0] if starts is None else starts
    size, count = past.shape[axis], update.shape[axis]
    same = update.ndim == past.ndim and all(
        a == b for i, (a, b) in enumerate(zip(past.shape, update.shape, strict=True)) if i != axis
    )
    if not axis or not same or len(starts) != past.shape[0] or past.dtype != update.dtype:
        raise call.error(f"cache {past.shape}, update {update.shape}, {len(starts)} indices, axis {axis}")
    y = past.copy()
    for row, new, start in zip(y, update, starts, strict=True):
        places = np.arange(start, start + count)
        if mode == "circular":
            places %= size
        elif start < 0 or start + count > size:
            raise call.error(f"writes [{start}, {start + count}), but there are {size} elements")
        row[(slice(None),) * (axis - 1) + (places,)] = new
    return [y]


@evaluates("OneHot")
def one_hot(call: Call) -> list[Array]:
    """The second value where the index says, the first elsewhere; indices out of range set nothing."""
    indices, depth, values = call.x(0), call.scalar(1), call.x(2)
    if depth is None or values.size != 2:
        raise call.error("depth or values are malformed")
    size, rank = int(depth), indices.ndim + 1
    axis = call.axis(call.integer("axis", -1), rank)
    call.allow((*indices.shape[:axis], max(size, 0), *indices.shape[axis:]), values.dtype)
    own = np.expand_dims(indices.astype(np.int64), axis)
    places = np.arange(size).reshape([size if i == axis else 1 for i in range(rank)])
    hot = np.where(own < 0, own + size, own) == places
    return [np.where(hot, values[1], values[0]).astype(values.dtype)]


@evaluates("NonZero.count")
def non_zero_count(call: Call) -> list[Array]:
    """The number of elements that are not zero."""
    return [np.array(np.count_nonzero(call.x(0)), np.int64)]


@evaluates("NonZero", "NonZero.indices")
def non_zero(call: Call) -> list[Array]:
    """Indices of elements that are not zero, [rank, count]."""
    x = call.x(0)
    found = np.nonzero(x.reshape(1) if not x.ndim else x)
    return [np.array(found if x.ndim else found[:0], np.int64).reshape(x.ndim, found[0].size)]


def _condition(call: Call) -> tuple[Array, int | None]:
    """The condition, no longer than the axis, and the axis."""
    x, condition = call.x(0), call.x(1)
    if condition.ndim != 1:
        raise call.error(f"condition of shape {condition.shape} does not have one dimension")
    axis = call.axis(call.integer("axis", 0), x.ndim) if call.has("axis") else None
    return condition[: x.size if axis is None else x.shape[axis]], axis


@evaluates("Compress.count")
def compress_count(call: Call) -> list[Array]:
    """The number of elements or slices that the condition picks."""
    return [np.array(np.count_nonzero(_condition(call)[0]), np.int64)]


@evaluates("Compress", "Compress.slices")
def compress(call: Call) -> list[Array]:
    """Elements, or slices of an axis, where the condition holds; it may be shorter."""
    condition, axis = _condition(call)
    return [np.compress(condition, call.x(0), axis)]


@evaluates("Trilu")
def trilu(call: Call) -> list[Array]:
    """The upper or lower triangle of matrices, the rest zero."""
    x, k = call.x(0), call.scalar(1)
    if x.ndim < 2:
        raise call.error(f"input of shape {x.shape} holds no matrices")
    shift = 0 if k is None else max(-x.shape[-2] - 1, min(x.shape[-1] + 1, int(k)))
    return [(np.triu if call.integer("upper", 1) else np.tril)(x, shift)]


def _ranked(x: Array, axis: int, largest: bool) -> Array:
    """Indices that sort ``x``; among equals the lower index first."""
    if not largest:
        return np.argsort(x, axis, kind="stable")
    n = x.shape[axis]
    return np.flip(n - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


@evaluates("TopK")
def top_k(call: Call) -> list[Array]:
    """The k largest or smallest of an axis with their indices, in order."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), x.ndim)
    given = call.scalar(1) if call.opset >= 10 else np.array(call.integer("k", 0))
    k = -1 if given is None else int(given)
    if not 0 <= k <= x.shape[axis]:
        raise call.error(f"k={k} is outside [0, {x.shape[axis]}]")
    order = _ranked(x, axis, bool(call.integer("largest", 1))).take(np.arange(k), axis)
    return [np.take_along_axis(x, order, axis), order.astype(np.int64)]


def _extreme(call: Call, find: Callable[..., Array]) -> list[Array]:
    x = call.x(0)
    axis, keep = call.axis(call.integer("axis", 0), x.ndim), bool(call.integer("keepdims", 1))
    if call.integer("select_last_index", 0):
        found = x.shape[axis] - 1 - find(np.flip(x, axis), axis, keepdims=keep)
    else:
        found = find(x, axis, keepdims=keep)
    return [np.asarray(found, np.int64)]


@evaluates("ArgMax")
def arg_max(call: Call) -> list[Array]:
    """Index of the largest element of an axis."""
    return _extreme(call, np.argmax)


@evaluates("ArgMin")
def arg_min(call: Call) -> list[Array]:
    """Index of the smallest element of an axis."""
    return _extreme(call, np.argmin)


@evaluates("Unique")
def unique(call: Call) -> list[Array]:
    """Different elements (or slices of an axis), where each is first, which one each is, and how many of each."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), x.ndim) if call.has("axis") else None
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call.integer("sorted", 1):
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        values = values.take(order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return [values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)]


@evaluates("Unique.groups")
def unique_groups(call: Call) -> list[Array]:
    """Which element, or slice, is in which group of equal ones; and the number of groups."""
    _, _, inverse, counts = unique(call)
    return [np.append(inverse, np.int64(counts.size))]


@evaluates("Unique.first", "Unique.members")
def unique_tally(call: Call) -> list[Array]:
    """The first of each group, or how many are in it."""
    numbers, first, members = np.unique(call.x(0)[:-1], return_index=True, return_counts=True)
    if call.scalar(1) != numbers.size:
        raise call.error(f"{numbers.size} groups")
    return [np.asarray(first if call.op == "Unique.first" else members, np.int64)]
