"""Rows of constants that lie in a file, read a few at a time: views of a whole constant, reshaped or transposed, are
followed to the places of their numbers. What is no view is loaded whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .allowance import allowance
from .ir import Array, WeightSource
from .sources import ArraySource, FileSource, KeptSource, MappedSource, ModelSource

BATCH_BYTES = 4 << 20
"""Bytes that are read at once."""
COLUMNS_PART = 4
"""Rows of a transposed constant are columns in the file, each batch of which reads all of it: a batch takes one part in
so many of what the budget leaves.
"""


class FileView(NamedTuple):
    """Numbers of a constant in a file, in another order."""

    file: FileSource
    first: int
    """Number of the element in the file that comes first."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Elements from one to the next, along each dimension."""

    @property
    def is_whole(self) -> bool:
        """Whether the numbers lie one after the other."""
        counts = [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        return all(d == 1 or s == c for d, s, c in zip(self.shape, self.strides, counts, strict=True))

    @property
    def row_size(self) -> int:
        """Elements of a row: all but the first dimension."""
        return prod(self.shape[1:])

    @property
    def is_by_rows(self) -> bool:
        """Whether each row lies in one range of the file, after the row before."""
        reach = sum(s * (d - 1) for d, s in zip(self.shape[1:], self.strides[1:], strict=True))
        return self.strides[0] == self.row_size == reach + 1 and min(self.strides, default=0) >= 0

    @property
    def is_by_columns(self) -> bool:
        """Whether it is the transposed of a matrix in the file."""
        rest = [(d, s) for d, s in zip(self.shape[1:], self.strides[1:], strict=True) if d > 1]
        return self.first == 0 and self.strides[0] == 1 and [s for _, s in rest] == [self.shape[0]]


def view_of(source: WeightSource) -> FileView | None:
    """Return where the numbers of a source lie; None: they are no view of a file's."""
    functions = []
    while not isinstance(source, FileSource):
        if isinstance(source, MappedSource) and source.is_view:
            functions.append(source.function)
        elif isinstance(source, ModelSource):
            source.used = True
        else:
            return None
        source = source.base
    whole: Array = np.empty(source.shape, np.uint8)  # untouched, it takes addresses only
    seen = whole
    for function in reversed(functions):
        seen = function(seen)
    if not seen.size or not np.may_share_memory(seen, whole):
        return None
    first = seen.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return FileView(source, first, seen.shape, seen.strides)


def batches(source: WeightSource, multiple: int, nbytes: int) -> Iterator[tuple[int, Array]]:
    """Yield the rows of a constant of so many bytes, ``multiple`` or several times as many at once, each time with the
    number of the first one. Raises CompileError where a budget does not hold them.
    """
    view = view_of(source) if _is_large(source) else None
    found = allowance()
    if view is not None and view.is_by_rows:
        count = _fitting(BATCH_BYTES, view, multiple)
    elif view is not None and view.is_by_columns and found is not None:
        count = _fitting(max(found.left // COLUMNS_PART, 1), view, multiple)
    else:
        yield 0, _loaded(source, nbytes)
        return
    for first in range(0, view.shape[0], count):
        end = min(first + count, view.shape[0])
        yield first, (_rows if view.is_by_rows else _columns)(view, first, end)


def parts(source: WeightSource, most: int, nbytes: int) -> Iterator[bytes | memoryview]:
    """Yield all bytes of a constant of so many, at most ``most`` at once. Raises CompileError as ``batches`` does."""
    view = view_of(source) if _is_large(source) else None
    if view is not None and view.is_whole:
        each = most // view.file.dtype.itemsize
        for start in range(0, prod(view.shape), each):
            yield _read(view.file, view.first + start, min(each, prod(view.shape) - start)).data.cast("B")
        return
    values = _loaded(source, nbytes).reshape(-1)  # no copy where it is one number everywhere
    each = most // values.itemsize
    for start in range(0, len(values), each):
        yield values[start : start + each].tobytes()


def _loaded(source: WeightSource, nbytes: int) -> Array:
    """Load a source of so many bytes whole. What it is made of and what is made of that are counted; what is in memory
    already is not. Raises CompileError where a budget does not hold it.
    """
    found = allowance()
    if found is not None:
        base, copies = source, 1
        while isinstance(base, MappedSource | ModelSource):
            copies += isinstance(base, MappedSource) and not base.is_view
            base = base.base
        if not isinstance(base, ArraySource | KeptSource):
            found.reserve(copies * nbytes, "a weight that is packed as a whole")
    return source.load()


def _is_large(source: WeightSource) -> bool:
    base: WeightSource | None = source
    while base is not None and not isinstance(base, FileSource):
        base = getattr(base, "base", None)
    return base is not None and prod(base.shape) * base.dtype.itemsize > BATCH_BYTES


def _fitting(nbytes: int, view: FileView, multiple: int) -> int:
    """Return how many rows are read at once."""
    return max(nbytes // (view.row_size * view.file.dtype.itemsize * multiple), 1) * multiple


def _rows(view: FileView, first: int, end: int) -> Array:
    flat = _read(view.file, view.first + first * view.row_size, (end - first) * view.row_size)
    strides = [s * flat.itemsize for s in view.strides]
    return as_strided(flat, (end - first, *view.shape[1:]), strides, writeable=False)


def _columns(view: FileView, first: int, end: int) -> Array:
    """Read the whole matrix, in blocks of its rows, and keep some columns of it."""
    height, width = view.row_size, view.shape[0]
    kept = np.empty((height, end - first), view.file.dtype)
    each = max(BATCH_BYTES // (width * kept.itemsize), 1)
    for row in range(0, height, each):
        count = min(each, height - row)
        kept[row : row + count] = _read(view.file, row * width, count * width).reshape(count, width)[:, first:end]
    return kept.T.reshape(end - first, *view.shape[1:])


def _read(file: FileSource, first: int, count: int) -> Array:
    values = np.empty(count, file.dtype)
    file.file.read_into(values.view(np.uint8).data, file.offset + first * values.itemsize)
    return values
