"""Blocks: arrays computed some thousand elements at a time, straight into their place: temporaries stay small."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir import Array
from .call import Call, Made, broadcast_shape

ELEMENTS = 4096
"""Elements that are computed at a time."""
WORDS = 8
"""Temporaries of 8 bytes for each of them, unless told otherwise."""

Axes = tuple[int, ...]
Box = tuple[slice, ...]


def work_bytes(elements: int, words: int = WORDS) -> int:
    """Most bytes of temporaries that ``fill`` takes for an array of so many elements."""
    return 8 * words * min(elements, ELEMENTS)


def fill(y: Array, function: Callable[..., Any], *operands: Array) -> Array:
    """Write ``function`` of the broadcast operands into ``y``; return it. Values are converted to its type."""
    if y.size <= ELEMENTS:
        y[...] = function(*operands)
        return y
    access = [["writeonly"], *(["readonly"] for _ in operands)]
    turns = np.nditer([y, *operands], ["external_loop", "buffered"], access, buffersize=ELEMENTS)  # type: ignore[arg-type]
    with turns:
        for out, *values in turns:
            out[...] = function(*values)
    return y


def over(
    call: Call,
    function: Callable[..., Any],
    operands: Sequence[Array],
    dtype: np.dtype,
    words: int = WORDS,
    more: Sequence[Made] = (),
) -> Array:
    """The array of ``dtype`` that ``function`` makes of the broadcast operands, element by element. States what that
    takes, and what the call makes beside it.
    """
    shape = broadcast_shape(call, *operands)
    size = prod(shape)
    call.reserve((shape, dtype), *more, workspace=work_bytes(size, words))
    if size <= ELEMENTS:
        return np.asarray(function(*operands), dtype)
    return fill(np.empty(shape, dtype), function, *operands)


def boxes(shape: Sequence[int], elements: int = ELEMENTS) -> Iterator[Box]:
    """Indices that cut an array into parts of at most ``elements`` (at least one) elements."""
    axis = len(shape)
    inner: int = 1
    while axis and inner * shape[axis - 1] <= elements:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield (slice(None),) * len(shape)
        return
    step = max(1, elements // max(inner, 1))
    for lead in np.ndindex(*shape[: axis - 1]):
        for first in range(0, shape[axis - 1], step):
            rest = (slice(None),) * (len(shape) - axis)
            yield (*(slice(i, i + 1) for i in lead), slice(first, first + step), *rest)


def rows(x: Array, axis: int) -> tuple[Array, Iterator[Box]]:
    """``x`` with an axis moved last, and indices that cut it into blocks of whole rows (row_elements)."""
    moved = np.moveaxis(x, axis, -1)
    n = moved.shape[-1]
    return moved, ((*box, slice(None)) for box in boxes(moved.shape[:-1], max(1, ELEMENTS // max(n, 1))))


def row_elements(shape: Sequence[int], axis: int) -> int:
    """Most elements of a block of ``rows`` of an array of this shape."""
    return min(prod(shape), max(shape[axis], ELEMENTS))


def summed(x: Array, axes: Axes, function: Callable[..., Any], dtype: np.dtype, *parts: Array) -> Array:
    """The sums of ``function`` of ``x`` over axes, which stay with size 1. ``parts``: further operands of the function
    with these sizes. It takes temporaries of a block.
    """
    y = np.zeros([1 if i in axes else d for i, d in enumerate(x.shape)], dtype)
    if not x.ndim:
        return np.asarray(function(x, *parts), dtype)
    for box in boxes(x.shape):
        own = tuple(slice(None) if i in axes else part for i, part in enumerate(box))
        y[own] += np.sum(function(x[box], *(p[own] for p in parts)), axes, dtype, keepdims=True)
    return y
