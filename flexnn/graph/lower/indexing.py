"""Operators whose data say where elements come from, where they go, which ones are chosen, or how many.

An operator whose output has as many elements as the data say is two nodes of a model (graph/contrib/selection.py): one
counts, and the other must know the count when it is bound.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Attr
from ..strided import same_shape
from .constant import Const, same_number
from .context import Context, Value, lowers
from .shape import counted, expanded, whole


def _of_axis(axis: int) -> dict[str, Attr]:
    return {"axis": axis, "batch": 0}


def _of_tuples(batch: int) -> dict[str, Attr]:
    return {"axis": -1, "batch": batch}


@lowers("GatherElements")
def gather_elements(ctx: Context) -> list[Value]:
    """One element for each index."""
    x, indices = ctx.input(0), ctx.input(1)
    axis = ctx.axis(ctx.integer("axis", 0), len(ctx.shape(x)))
    return [ctx.emit("gather_at", [x, indices], _of_axis(axis))]


@lowers("GatherND")
def gather_nd(ctx: Context) -> list[Value]:
    """Slices by tuples of indices, in each of the leading batches."""
    batch = ctx.integer("batch_dims", 0)
    if not 0 <= batch < len(ctx.shape(ctx.input(0))):
        raise ctx.error(f"batch_dims {batch} of shape {ctx.shape(ctx.input(0))}")
    return [ctx.emit("gather_at", [ctx.input(0), ctx.input(1)], _of_tuples(batch))]


def _scatter(ctx: Context, where: dict[str, Attr]) -> list[Value]:
    kind = ctx.text("reduction", "none")
    if kind not in ("none", "add", "mul", "max", "min"):
        raise ctx.error(f"attribute reduction={kind} is not supported")
    return [ctx.emit("scatter_at", [ctx.input(0), ctx.input(1), ctx.input(2)], {"kind": kind, **where})]


@lowers("ScatterElements", "Scatter")
def scatter_elements(ctx: Context) -> list[Value]:
    """One update for each index."""
    return _scatter(ctx, _of_axis(ctx.axis(ctx.integer("axis", 0), len(ctx.shape(ctx.input(0))))))


@lowers("ScatterND")
def scatter_nd(ctx: Context) -> list[Value]:
    """Slices of updates by tuples of indices."""
    return _scatter(ctx, _of_tuples(0))


@lowers("ReverseSequence")
def reverse_sequence(ctx: Context) -> list[Value]:
    """Lower to a gather backwards in time where all lengths are known to be the whole; else by tuples (time, batch),
    whose times run backwards up to each length.

    A length out of range makes an index out of range.
    """
    x, lengths = ctx.input(0), ctx.input(1)
    shape = ctx.shape(x)
    time, batch = (ctx.axis(ctx.integer(f"{name}_axis", i), len(shape)) for i, name in enumerate(("time", "batch")))
    fits = {time, batch} == {0, 1} and ctx.dtype(lengths) == "i64"
    if not fits or not same_shape(ctx.shape(lengths), shape[batch : batch + 1]):
        raise ctx.error(f"time axis {time}, batch axis {batch} and lengths do not fit {len(shape)} dimensions")
    steps, count = shape[time], shape[batch]
    if not prod(shape):
        return [x]
    known = same_number(lengths)
    if known is not None and known == steps:
        return [ctx.emit("gather", [x, counted(ctx, steps - 1, steps, -1, "back")], {"axis": time})]
    along, across = ((steps, 1), (1, count)) if time == 0 else ((1, steps), (count, 1))
    at = ctx.reshape(counted(ctx, 0, steps, 1, "times"), along)
    own = ctx.reshape(counted(ctx, -1, steps, -1, "back"), along)
    length = ctx.reshape(lengths, across)
    zero = ctx.array(np.zeros((1, 1), np.int64), "zero")
    beyond = ctx.reshape(whole(ctx, steps, "beyond"), (1, 1))
    wrong = ctx.emit("pointwise", [length, zero], {"kind": "less"})
    kept = ctx.emit("pointwise", [beyond, at, wrong], {"kind": "where"})
    back = ctx.emit("pointwise", [length, own], {"kind": "add"})
    turns = ctx.emit("pointwise", [at, length], {"kind": "less"})
    pair = (*shape[:2], 1)
    times = ctx.reshape(ctx.emit("pointwise", [back, kept, turns], {"kind": "where"}), pair)
    rows = expanded(ctx, ctx.reshape(counted(ctx, 0, count, 1, "batches"), (*across, 1)), pair)
    pairs = ctx.emit("concat", [times, rows] if time == 0 else [rows, times], {"axis": 2})
    return [ctx.emit("gather_at", [x, pairs], _of_tuples(0))]


@lowers("TopK")
def top_k(ctx: Context) -> list[Value]:
    """The indices are found, and the values gathered by them. k is an input since opset 10."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    axis = ctx.axis(ctx.integer("axis", -1), len(shape))
    given = ctx.constant_ints(1, "its k") if ctx.opset >= 10 else [ctx.integer("k", -1)]
    largest = ctx.integer("largest", 1)
    ctx.integer("sorted", 1)  # any order will do where none is asked for
    if given is None or len(given) != 1 or not 0 <= given[0] <= shape[axis]:
        raise ctx.error(f"k={given} is outside [0, {shape[axis]}]")
    if not given[0]:
        none = (*shape[:axis], 0, *shape[axis + 1 :])
        return [ctx.empty(none, ctx.dtype(x)), ctx.empty(none, "i64")]
    indices = ctx.emit("top_k", [x], {"axis": axis, "k": given[0], "is_largest": int(bool(largest))})
    return [ctx.emit("gather_at", [x, indices], _of_axis(axis)), indices]


def _count(ctx: Context, index: int, most: int) -> int:
    """Return a count that another node made of the same data."""
    count = ctx.constant_ints(index, "the number of its elements")
    if count is None or len(count) != 1 or not 0 <= count[0] <= most:
        raise ctx.error(f"{count} elements of {most}")
    return count[0]


@lowers("NonZero.count")
def nonzero_count(ctx: Context) -> list[Value]:
    """The number of elements that are not zero."""
    return [ctx.emit("count_nonzero", [ctx.input(0)], {})]


@lowers("NonZero.indices")
def nonzero_indices(ctx: Context) -> list[Value]:
    """Indices of elements that are not zero, [rank, count]."""
    return [_places(ctx, ctx.input(0), _count(ctx, 1, prod(ctx.shape(ctx.input(0)))))]


def _places(ctx: Context, x: Value, count: int) -> Value:
    if isinstance(x, Const):
        return ctx.array(np.array(np.nonzero(x.load()), np.int64), "places")
    if not count:
        return ctx.empty((len(ctx.shape(x)), 0), "i64")
    return ctx.emit("nonzero", [x], {"count": count})


def _compressed(ctx: Context) -> tuple[Value, int, Value]:
    """Return what Compress picks from, along which axis, and the condition, no longer than the axis."""
    x, condition = ctx.input(0), ctx.input(1)
    if ctx.has("axis"):
        axis = ctx.axis(ctx.integer("axis", 0), len(ctx.shape(x)))
    else:
        x, axis = ctx.reshape(x, (prod(ctx.shape(x)),)), 0
    if len(ctx.shape(condition)) != 1:
        raise ctx.error(f"condition of shape {ctx.shape(condition)} does not have one dimension")
    size = min(ctx.shape(condition)[0], ctx.shape(x)[axis])
    if isinstance(condition, Const):
        return x, axis, ctx.array(condition.load()[:size], "condition")
    return x, axis, ctx.slice(condition, [0], [size], [1])


@lowers("Compress.count")
def compress_count(ctx: Context) -> list[Value]:
    """The number of slices that the condition picks."""
    condition = _compressed(ctx)[2]
    if isinstance(condition, Const):
        return [ctx.array(np.array(np.count_nonzero(condition.load()), np.int64), "count")]
    return [ctx.emit("count_nonzero", [condition], {})]


@lowers("Compress.slices")
def compress_slices(ctx: Context) -> list[Value]:
    """The slices that the condition picks."""
    x, axis, condition = _compressed(ctx)
    shape = ctx.shape(x)
    count = _count(ctx, 2, ctx.shape(condition)[0])
    if not count:
        return [ctx.empty((*shape[:axis], 0, *shape[axis + 1 :]), ctx.dtype(x))]
    places = ctx.reshape(_places(ctx, condition, count), (count,))
    return [ctx.emit("gather", [x, places], {"axis": axis})]


@lowers("Unique.groups")
def unique_groups(ctx: Context) -> list[Value]:
    """The number of each element's, or slice's, group of equal ones, and last the number of groups."""
    x = ctx.input(0)
    shape = ctx.shape(x)
    if ctx.has("axis"):
        axis = ctx.axis(ctx.integer("axis", 0), len(shape))
        x = ctx.transpose(x, [axis, *(i for i in range(len(shape)) if i != axis)])
    else:
        x = ctx.reshape(x, (prod(shape),))
    return [ctx.emit("unique", [x], {"is_sorted": int(bool(ctx.integer("sorted", 1)))})]


@lowers("Unique.first", "Unique.members")
def unique_tally(ctx: Context) -> list[Value]:
    """The first of each group, or how many are in it."""
    groups = ctx.input(0)
    size = ctx.shape(groups)[0] - 1
    count = _count(ctx, 1, size)
    numbers = ctx.slice(groups, [0], [size], [1])
    return [ctx.emit("tally", [numbers], {"kind": ctx.node.op_type.removeprefix("Unique."), "groups": count})]


@lowers("NonMaxSuppression.rows")
def non_max_suppression(ctx: Context) -> list[Value]:
    """Rows for as many boxes as can be selected, and one with the number of those that are."""
    boxes, scores, overlap = ctx.input(0), ctx.input(1), ctx.optional(3)
    most = ctx.constant_ints(2, "the most boxes of a class") or [0]
    center = ctx.integer("center_point_box", 0)
    if len(most) != 1 or center not in (0, 1) or len(ctx.shape(scores)) != 3:
        raise ctx.error(f"{most} boxes of a class, center_point_box {center}, scores of shape {ctx.shape(scores)}")
    count = min(most[0], ctx.shape(scores)[2])
    if count < 1:
        return [ctx.array(np.zeros((1, 3), np.int64), "rows")]
    inputs = [boxes, scores, ctx.array(np.zeros(1, np.float32), "overlap") if overlap is None else overlap]
    least = ctx.optional(4)
    inputs += [] if least is None else [least]
    return [ctx.emit("nms", inputs, {"most": count, "is_centered": center})]
