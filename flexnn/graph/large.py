"""Arrays whose memory goes back to the system as soon as nobody uses them. The C library keeps freed heap, more of it
once large arrays were dropped, and a budget counts what the process has.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ir import Array

LARGE_BYTES = 1 << 20
"""Bytes from which an array is a mapping of its own."""


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array. Raises MemoryError if there is no memory."""
    nbytes = math.prod(shape) * dtype.itemsize
    return np.empty(shape, dtype) if nbytes < LARGE_BYTES else np.ndarray(tuple(shape), dtype, buffer=mapping(nbytes))


def stacked(rows: Sequence[Array], axis: int) -> Array:
    """Return rows of one shape and type along a new axis, as numpy.stack does."""
    place = axis if axis >= 0 else axis + rows[0].ndim + 1
    shape = (*rows[0].shape[:place], len(rows), *rows[0].shape[place:])
    return np.stack(rows, axis, out=empty(shape, rows[0].dtype))


def mapping(nbytes: int) -> Any:
    """Return memory of its own, in huge pages where the system has some. Raises MemoryError."""
    import mmap  # most models' values are small

    try:
        made = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"the system refuses {nbytes / (1 << 20):.1f} MiB: {error.strerror}") from None
    with contextlib.suppress(OSError):  # a system without huge pages
        made.madvise(mmap.MADV_HUGEPAGE)
    return made
