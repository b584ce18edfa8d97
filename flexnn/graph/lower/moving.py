"""Slice and Range whose bounds only a run knows, but binding knows how many elements lie between: one row a turn."""

from __future__ import annotations

import numpy as np

from ..element import Element
from .context import Context, Value


def moving_slice(ctx: Context) -> Value:
    """Return the slice, gathered from its first index on. Raises GraphError where nobody knows how large it is."""
    x, given, strides = ctx.input(0), ctx.constant_ints(3, "its axes"), ctx.constant_ints(4, "its steps")
    first, last = (ctx.elements(ctx.input(i)) for i in (1, 2))
    if first is None or last is None or first.ndim != 1 or first.shape != last.shape:
        raise ctx.unknown(1, 2)
    rank = len(ctx.shape(x))
    axes = [ctx.axis(a, rank) for a in given or range(len(first))]
    steps = strides or [1] * len(axes)
    if not len(first) == len(axes) == len(steps) == len(set(axes)) or 0 in steps:
        raise ctx.error(f"axes {axes}, steps {steps}")
    shape = ctx.shape(x)
    windows = [_window(s, e, n, shape[axis]) for s, e, n, axis in zip(first, last, steps, axes, strict=True)]
    for k, (axis, window) in enumerate(zip(axes, windows, strict=True)):
        if window is None:
            raise ctx.unknown(1, 2)
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


def _window(start: object, end: object, step: int, size: int) -> tuple[Element, int] | None:
    """Return the first index of a slice, and how many elements there are; None where nobody knows."""
    if not isinstance(start, Element) or not isinstance(end, Element) or step < 1:
        return None
    begin, stop = _clamped(start, size), _clamped(end, size)
    if begin is None or stop is None or (begin.base != stop.base):
        return None
    return begin, -((begin.offset - stop.offset) // step)


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
