"""Whether an ONNX file states inputs of open shapes, read from the file without onnx: a session that waits for its
artifact imports meanwhile what it will need. It is a guess: what cannot be read so is said to be none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .descriptor import Descriptor

FIELDS_MAX = 4096
"""Fields that are looked at: nodes and constants come before inputs, and a large model takes long anyway."""
_WINDOW = 1 << 14
_GRAPH, _INPUT, _TYPE, _TENSOR, _SHAPE, _DIM = 7, 11, 2, 1, 2, 1
"""Numbers of the fields that lead to a dimension, from ModelProto on."""
_VALUE = 1
"""Number of the field that says how large a dimension is."""
_Span = tuple[int, int, int]
"""Number of a field, where its bytes begin and where they end; both are equal for a number."""


def has_open_inputs(path: str) -> bool:
    """Return whether an input has a dimension without a size, or no shape."""
    try:
        file = Descriptor(path)  # closes with its last user
        return _Skim(file.fd).is_open()
    except (OSError, _UnreadableError):
        return False


class _UnreadableError(Exception):
    """The file ends in a field, or has more of them than are looked at."""


class _Skim:
    """Walk over a file's fields."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begin, self._bytes = 0, b""
        self._left = FIELDS_MAX

    def is_open(self) -> bool:
        """Return whether an input is open."""
        end = os.fstat(self._fd).st_size
        for graph in self._inside((0, 0, end), _GRAPH):
            for port in self._inside(graph, _INPUT):
                for kind in self._inside(port, _TYPE):
                    for tensor in self._inside(kind, _TENSOR):
                        if self._is_open(tensor):
                            return True
        return False

    def _is_open(self, tensor: _Span) -> bool:
        shapes = list(self._inside(tensor, _SHAPE))
        dims = [dim for shape in shapes for dim in self._inside(shape, _DIM)]
        return not shapes or any(not list(self._inside(dim, _VALUE)) for dim in dims)

    def _inside(self, field: _Span, wanted: int) -> Iterator[_Span]:
        """Yield the fields of this number inside another one."""
        _, at, end = field
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _UnreadableError
            tag, at = self._varint(at)
            begin, kind = at, tag & 7
            if kind == 2:
                length, begin = self._varint(at)
                at = begin + length
            elif kind == 0:
                _, begin = self._varint(at)
                at = begin
            elif kind in (1, 5):
                begin = at = at + (8 if kind == 1 else 4)
            else:
                raise _UnreadableError
            if tag >> 3 == wanted:
                yield wanted, begin, at

    def _varint(self, at: int) -> tuple[int, int]:
        """Return a number, and where it ends."""
        number = 0
        for i in range(10):
            if not 0 <= at + i - self._begin < len(self._bytes):
                self._begin, self._bytes = at + i, os.pread(self._fd, _WINDOW, at + i)
                if not self._bytes:
                    raise _UnreadableError
            byte = self._bytes[at + i - self._begin]
            number |= (byte & 127) << 7 * i
            if byte < 128:
                return number, at + i + 1
        raise _UnreadableError
