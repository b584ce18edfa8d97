"""Picking, placing and ordering elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, fill, row_elements, rows, work_bytes
from .call import Call, copied, evaluates

_INT64 = np.dtype(np.int64)


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
    part = x[tuple(index)]
    call.reserve((part.shape, x.dtype))
    return [np.ascontiguousarray(part).reshape(part.shape)]


def _bounds(size: int, start: int, end: int, step: int) -> tuple[int | None, int | None, int]:
    """Python's slice of what ONNX means: the same, but an end below the first element is no index from the back."""
    first, last, step = slice(start, end, step).indices(size)
    return first, (None if last < 0 else last), step


def _indices(values: Array, size: int) -> Array:
    """Indices counted from the front, in a copy only where that changes them (_index_bytes)."""
    if values.dtype == _INT64 and (not values.size or values.min() >= 0):
        return values
    own = values.astype(np.int64)
    return fill(own, lambda v: np.where(v < 0, v + size, v), own) if values.dtype.kind == "i" else own


def _check_indices(call: Call, values: Array, size: int) -> None:
    """Raise GraphError for indices out of range."""
    if values.dtype.kind not in "iu":
        raise call.error(f"indices of type {values.dtype} are not integers")
    if values.size and (values.min() < -size or values.max() >= size):
        raise call.error(f"an index is outside [-{size}, {size - 1}]")


def _index_bytes(count: int) -> int:
    """Most bytes that ``_indices`` takes for so many, and numpy for a copy of them."""
    return 16 * count + work_bytes(count)


@evaluates("Gather")
def gather(call: Call) -> list[Array]:
    """Slices of an axis by index."""
    x, indices = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    _check_indices(call, indices, x.shape[axis])
    made = x.shape[:axis] + indices.shape + x.shape[axis + 1 :]
    call.reserve((made, x.dtype), workspace=copied(x) + _index_bytes(indices.size))
    return [np.asarray(np.take(x, _indices(indices, x.shape[axis]), axis))]


@evaluates("GatherElements")
def gather_elements(call: Call) -> list[Array]:
    """One element for each index, at the index's own place but for the axis."""
    x, indices = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    _check_indices(call, indices, x.shape[axis])
    call.reserve((indices.shape, x.dtype), workspace=_grid_bytes(indices))
    return [x[_grid(_indices(indices, x.shape[axis]), axis)]]


def _grid_bytes(indices: Array) -> int:
    """Most bytes that ``_grid`` of these indices takes."""
    return _index_bytes(indices.size) + 16 * sum(indices.shape)


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
    for i in range(depth):
        _check_indices(call, indices[..., i], x.shape[batch + i])
    lead, made = prod(x.shape[:batch]), indices.shape[:-1] + x.shape[batch + depth :]
    work = copied(x, indices) + _index_bytes(indices.size) + 8 * lead
    call.reserve((made, x.dtype), workspace=work)
    flat = x.reshape(lead, *x.shape[batch:])
    own = indices.reshape(lead, -1, depth)
    places = [_indices(own[:, :, i], x.shape[batch + i]) for i in range(depth)]
    if not depth:
        return [np.broadcast_to(flat[:, None], (lead, own.shape[1], *flat.shape[1:])).reshape(made)]
    picked = flat[(np.arange(lead).reshape(-1, 1), *places)]
    return [picked.reshape(made)]


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
    _check_indices(call, indices, x.shape[axis])
    call.reserve((x.shape, x.dtype), workspace=_grid_bytes(indices) + copied(updates))
    y = x.copy()
    _place(call, y, _grid(_indices(indices, x.shape[axis]), axis), updates)
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
    for i in range(depth):
        _check_indices(call, indices[..., i], x.shape[i])
    work = _index_bytes(indices.size) + copied(updates) + (0 if depth else 2 * x.nbytes)
    call.reserve((x.shape, x.dtype), workspace=work)
    y = x.copy()
    places = tuple(_indices(indices[..., i], x.shape[i]) for i in range(depth))
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
    call.reserve((past.shape, past.dtype), workspace=24 * count)
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
    shape = call.shape((*indices.shape[:axis], max(size, 0), *indices.shape[axis:]))
    call.reserve((shape, values.dtype), workspace=8 * max(size, 0) + work_bytes(prod(shape)))
    places = np.arange(size).reshape([size if i == axis else 1 for i in range(rank)])

    def hot(index: Array, place: Array) -> Array:
        own = index.astype(np.int64)
        return np.asarray(np.where(np.where(own < 0, own + size, own) == place, values[1], values[0]))

    return [fill(np.empty(shape, values.dtype), hot, np.expand_dims(indices, axis), places)]


@evaluates("NonZero.count")
def non_zero_count(call: Call) -> list[Array]:
    """The number of elements that are not zero."""
    call.reserve(((), _INT64))
    return [np.array(np.count_nonzero(call.x(0)), np.int64)]


@evaluates("NonZero", "NonZero.indices")
def non_zero(call: Call) -> list[Array]:
    """Indices of elements that are not zero, [rank, count]."""
    x = call.x(0)
    count = int(np.count_nonzero(x))
    call.reserve(((x.ndim, count), _INT64), workspace=work_bytes(x.size, 5 + x.ndim))
    found = np.empty((x.ndim, count), np.int64)
    at = 0
    for first in range(0, x.size if x.ndim else 0, ELEMENTS):
        own = np.flatnonzero(x.flat[first : first + ELEMENTS]) + first
        for line, places in zip(found, np.unravel_index(own, x.shape), strict=True):
            line[at : at + own.size] = places
        at += own.size
    return [found]


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
    condition, _ = _condition(call)
    call.reserve(((), _INT64))
    return [np.array(np.count_nonzero(condition), np.int64)]


@evaluates("Compress", "Compress.slices")
def compress(call: Call) -> list[Array]:
    """Elements, or slices of an axis, where the condition holds; it may be shorter."""
    x = call.x(0)
    condition, axis = _condition(call)
    count = int(np.count_nonzero(condition))
    made = (count,) if axis is None else (*x.shape[:axis], count, *x.shape[axis + 1 :])
    call.reserve((made, x.dtype), workspace=copied(x) + condition.size * (condition.dtype != np.bool_) + 16 * count)
    return [np.compress(condition, x, axis)]


@evaluates("Trilu")
def trilu(call: Call) -> list[Array]:
    """The upper or lower triangle of matrices, the rest zero."""
    x, k = call.x(0), call.scalar(1)
    if x.ndim < 2:
        raise call.error(f"input of shape {x.shape} holds no matrices")
    height, width = x.shape[-2:]
    shift = 0 if k is None else max(-height - 1, min(width + 1, int(k)))
    call.reserve((x.shape, x.dtype))
    y = x.copy()
    for row in range(height):
        edge = max(row + shift, 0) if call.integer("upper", 1) else max(row + shift + 1, 0)
        y[..., row, slice(edge) if call.integer("upper", 1) else slice(edge, None)] = 0
    return [y]


def _ranked(x: Array, largest: bool) -> Array:
    """Indices that sort rows; among equals the lower index first."""
    if not largest:
        return np.argsort(x, -1, kind="stable")
    order = np.argsort(x[:, ::-1], -1, kind="stable")
    np.subtract(x.shape[1] - 1, order, out=order)
    return order[:, ::-1]


def _best(x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    """The first ``k`` of rows in order, and their indices: one part after the other joins the best so far."""
    step = max(k, ELEMENTS // 2 // max(len(x), 1), 1)
    values, places = x[:, :0], np.empty((len(x), 0), np.int64)
    for first in range(0, x.shape[1], step):
        part = x[:, first : first + step]
        own = np.broadcast_to(np.arange(first, first + part.shape[1]), part.shape)
        values, places = np.concatenate([values, part], 1), np.concatenate([places, own], 1)
        order = _ranked(values, largest)[:, :k]
        values, places = np.take_along_axis(values, order, 1), np.take_along_axis(places, order, 1)
    return values, places


@evaluates("TopK")
def top_k(call: Call) -> list[Array]:
    """The k largest or smallest of an axis with their indices, in order."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), x.ndim)
    given = call.scalar(1) if call.opset >= 10 else np.array(call.integer("k", 0))
    k = -1 if given is None else int(given)
    if not 0 <= k <= x.shape[axis]:
        raise call.error(f"k={k} is outside [0, {x.shape[axis]}]")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    block = (
        min(row_elements(x.shape, axis), k + max(k, ELEMENTS // 2))
        if x.shape[axis] > ELEMENTS
        else min(x.size, ELEMENTS)
    )
    moved, parts = rows(x, axis)
    work = 56 * block + (0 if moved.flags.c_contiguous else row_elements(x.shape, axis) * x.itemsize)
    call.reserve((shape, x.dtype), (shape, _INT64), workspace=work)
    values, places = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    outs = np.moveaxis(values, axis, -1), np.moveaxis(places, axis, -1)
    for part in parts if k else ():
        lead = moved[part].shape[:-1]
        found = _best(moved[part].reshape(-1, x.shape[axis]), k, bool(call.integer("largest", 1)))
        for out, own in zip(outs, found, strict=True):
            out[part] = own.reshape(*lead, k)
    return [values, places]


def extreme(x: Array, axis: int, find: Callable[..., Array], backwards: bool) -> Array:
    """Index of an extreme element of an axis, which stays with size 1."""
    moved, parts = rows(x, axis)
    y = np.empty((*moved.shape[:-1], 1), np.int64)
    for part in parts:
        own = find(moved[part][..., ::-1] if backwards else moved[part], -1, keepdims=True)
        y[part] = x.shape[axis] - 1 - own if backwards else own
    return np.moveaxis(y, -1, axis)


def extreme_bytes(shape: Sequence[int], axis: int, itemsize: int) -> int:
    """Most bytes that ``extreme`` takes beside its result: a block of rows is copied."""
    block = row_elements(shape, axis)
    return block * itemsize + 24 * (block // max(shape[axis], 1) + 1)


def _extreme(call: Call, find: Callable[..., Array]) -> list[Array]:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), x.ndim)
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    call.reserve((one, _INT64), workspace=extreme_bytes(x.shape, axis, x.itemsize))
    found = extreme(x, axis, find, bool(call.integer("select_last_index", 0)))
    return [found if call.integer("keepdims", 1) else np.squeeze(found, axis)]


@evaluates("ArgMax")
def arg_max(call: Call) -> list[Array]:
    """Index of the largest element of an axis."""
    return _extreme(call, np.argmax)


@evaluates("ArgMin")
def arg_min(call: Call) -> list[Array]:
    """Index of the smallest element of an axis."""
    return _extreme(call, np.argmin)
