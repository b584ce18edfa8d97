"""Where constants' numbers come from: arrays at hand, files, and views of either; loaded when asked for, never kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ir import GraphError, WeightSource

Array = NDArray[np.generic]


class Descriptor:
    """An open file that closes with its last user; reading by offset, so the file may be replaced meanwhile."""

    __slots__ = ("fd", "path", "size")

    def __init__(self, path: str, flags: int = 0) -> None:
        """Opens ``path`` for reading. Raises OSError."""
        self.fd = -1
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        self.size = os.fstat(self.fd).st_size

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``. Raises GraphError when the file ends before."""
        buffer = bytearray(size)
        self.read_into(memoryview(buffer), offset)
        return bytes(buffer)

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fills ``view`` from ``offset``. Raises GraphError when the file ends before."""
        done = 0
        while done < len(view):
            count = os.preadv(self.fd, [view[done:]], offset + done)
            if not count:
                raise GraphError(f"{self.path}: ends at byte {offset + done}, {len(view) - done} bytes too early")
            done += count


@dataclass(frozen=True, slots=True)
class FileSource:
    """Row-major little-endian numbers in a file."""

    file: Descriptor
    offset: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def load(self) -> Array:
        """The whole constant, read into an array of its own."""
        values = np.empty(self.shape, self.dtype)
        self.file.read_into(values.reshape(-1).view(np.uint8).data, self.offset)
        return values


@dataclass(frozen=True, slots=True)
class ArraySource:
    """Numbers already in memory."""

    values: Array

    def load(self) -> Array:
        """The array itself."""
        return self.values


@dataclass(frozen=True, slots=True)
class MappedSource:
    """What ``function`` makes of another source: a transposition, a flip, a product."""

    base: WeightSource
    function: Callable[[Array], Array]

    def load(self) -> Array:
        """Loads the base and applies the function."""
        return self.function(self.base.load())
