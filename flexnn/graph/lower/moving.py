"""Slice and Range whose bounds only a run knows, but binding knows how many elements lie between: one row a turn.

Where nobody reads a slice but a Squeeze (graph/single.py), it has one place along the axes that this drops, or the
model fails: the run computes the place, and one outside the axis where the bounds have more or fewer between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..element import Element
from ..ir import DTYPES
from .constant import Const, sizes_const
from .context import Context, Value
from .elementwise import emit_binary, emit_choice


def moving_slice(ctx: Context) -> Value:
    """Return the slice, gathered from its first index on. Raises GraphError where nobody knows how large it is."""
    x, given, strides = ctx.input(0), ctx.constant_ints(3, "its axes"), ctx.constant_ints(4, "its steps")
    rank, given = len(ctx.shape(x)), given or list(range(_count(ctx, 1)))
    axes = [ctx.axis(a, rank) for a in given]
    steps = strides or [1] * len(axes)
    if not _count(ctx, 1) == _count(ctx, 2) == len(axes) == len(steps) == len(set(axes)) or 0 in steps:
        raise ctx.error(f"axes {axes}, steps {steps}")
    first, last = (_elements(ctx, i, len(axes)) for i in (1, 2))
    shape = ctx.shape(x)
    single = {ctx.axis(axis, rank) for axis in ctx.integers("single")}
    windows = [_window(s, e, n, shape[axis]) for s, e, n, axis in zip(first, last, steps, axes, strict=True)]
    for axis, window, step in zip(axes, windows, steps, strict=True):
        if window is None and not (axis in single and step > 0 and shape[axis] > 0):
            raise ctx.unknown(1, 2)
    for k, (axis, window) in enumerate(zip(axes, windows, strict=True)):
        if window is None:
            x = ctx.emit("gather", [x, _place(ctx, k, shape[axis], steps[k], last[k])], {"axis": axis})
            continue
        begin, count = window
        if not begin.base or count < 1:
            starts, sizes, strides = ([n] * rank for n in (0, 0, 1))
            sizes = list(ctx.shape(x))
            starts[axis], sizes[axis], strides[axis] = begin.offset if count > 0 else 0, max(count, 0), steps[k]
            x = ctx.slice(x, starts, sizes, strides)
            continue
        start = ctx.slice(ctx.input(1), [k], [1], [1])
        x = ctx.emit("gather", [x, _from(ctx, start, int(count), steps[k], f"axis{axis}")], {"axis": axis})
    return x


def _count(ctx: Context, index: int) -> int:
    """Return the number of bounds. Raises GraphError where they are no list of integers."""
    value = ctx.input(index)
    shape = ctx.shape(value)
    if len(shape) != 1 or ctx.dtype(value) not in ("i64", "i32"):
        raise ctx.unknown(1, 2)
    return int(shape[0])


def _elements(ctx: Context, index: int, count: int) -> np.ndarray:
    """Return what is known of each bound."""
    found = ctx.elements(ctx.input(index))
    return np.empty(count, object) if found is None else found


def _window(start: object, end: object, step: int, size: int) -> tuple[Element, int] | None:
    """Return the first index of a slice, and how many elements there are; None where nobody knows."""
    if not isinstance(start, Element) or not isinstance(end, Element) or step < 1:
        return None
    begin, stop = _clamped(start, size), _clamped(end, size)
    if begin is None or stop is None:
        return None
    if begin.base == stop.base:
        return begin, -((begin.offset - stop.offset) // step)
    fewest, most = -((begin.most - stop.least) // step), -((begin.least - stop.most) // step)
    return (begin, most) if fewest == most else None


def _place(ctx: Context, k: int, size: int, step: int, end: object) -> Value:
    """Return the one index between bounds ``k``; one outside the axis if there is not one."""
    start = ctx.slice(ctx.tensor(ctx.input(1)), [k], [1], [1])
    last = _clamped(end, size) if isinstance(end, Element) else None
    if last is not None and not last.base and last.offset == size and step >= size:
        return emit_binary(ctx, start, _number(ctx, start, -size, f"front{k}"), "max")
    begin = _counted(ctx, start, size, f"begin{k}")
    stop = _counted(ctx, ctx.slice(ctx.tensor(ctx.input(2)), [k], [1], [1]), size, f"stop{k}")
    count = emit_binary(ctx, stop, begin, "sub")
    is_one = ctx.emit("pointwise", [_number(ctx, start, 0, f"none{k}"), count], {"kind": "less"})
    few = ctx.emit(
        "pointwise", [count, _number(ctx, start, size if step >= size else step, f"step{k}")], {"kind": "less_equal"}
    )
    is_one = ctx.emit("pointwise", [is_one, few], {"kind": "and"})
    return emit_choice(ctx, is_one, begin, _number(ctx, start, size, f"size{k}"))


def _counted(ctx: Context, bound: Value, size: int, name: str) -> Value:
    """Return a bound as a slice clamps it, from the front."""
    zero, end = (_number(ctx, bound, value, f"{name}.{what}") for value, what in ((0, "zero"), (size, "end")))
    is_behind = ctx.emit("pointwise", [bound, zero], {"kind": "less"})
    front = emit_choice(ctx, is_behind, emit_binary(ctx, bound, end, "add"), bound)
    return emit_binary(ctx, emit_binary(ctx, front, zero, "max"), end, "min")


def _number(ctx: Context, like: Value, value: Any, name: str) -> Const:
    dtype = ctx.dtype(like)
    if type(value) is int:
        return ctx.array(np.array([value], DTYPES[dtype]), name)
    return sizes_const(f"{ctx.name}.{name}", np.array([value], object), dtype)


def _clamped(index: Element, size: int) -> Element | None:
    """Return the place of an index from the front, as a slice clamps it; None where it depends."""
    if index.least >= 0:
        if index.most <= size:
            return index
        return Element(0, size, size, size) if index.least >= size else None
    if index.most >= 0:
        return None
    if index.least >= -size:
        return index.plus(size)
    return Element(0, 0, 0, 0) if index.most <= -size else None


def moving_range(ctx: Context) -> Value:
    """Return numbers from a start on. Raises GraphError where nobody knows how many."""
    found = [ctx.elements(ctx.input(i)) for i in range(3)]
    known = [e.item() for e in found if e is not None and e.size == 1]
    known = [e for e in known if isinstance(e, Element)]
    if len(known) < 3 or ctx.dtype(ctx.input(0)) not in ("i64", "i32"):
        raise ctx.unknown(0, 1, 2)
    start, limit, step = known
    if step.base or step.offset == 0 or start.base != limit.base:
        raise ctx.unknown(0, 1, 2)
    count = int(-((start.offset - limit.offset) // step.offset))
    if count < 1:
        return ctx.empty((0,), ctx.dtype(ctx.input(0)))
    return _from(ctx, ctx.reshape(ctx.input(0), (1,)), count, int(step.offset), "steps")


def _from(ctx: Context, start: Value, count: int, step: int, name: str) -> Value:
    """Return ``count`` numbers from a computed one on, ``step`` apart."""
    if count == 1:
        return start
    numbers = np.arange(count) * step
    if ctx.dtype(start) == "i32":
        numbers = numbers.astype(np.int32)
    return ctx.emit("pointwise", [start, ctx.array(numbers, name)], {"kind": "add"})
