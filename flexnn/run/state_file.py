"""Files that hold the state of a session: a prompt that was read once is used again.

A file is a header, the rows of each state in order, and a checksum of all rows; where a decoder keeps keys and values
of an encoder's output, the same follows for these. It belongs to one model, one type of keys and values and their
sizes; the capacity may differ.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from io import SEEK_CUR, SEEK_SET, BufferedReader, RawIOBase
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from flexnn._core import crc32c
from flexnn.errors import StateError
from flexnn.files import replacing
from flexnn.graph.descriptor import Descriptor
from flexnn.graph.ir import Array

MAGIC, VERSION = b"FLXSTATE", 1
_HEADER = struct.Struct("<8sI32s4sIQ")
"""Magic, version, SHA-256 of the model, type, number of states, length. Groups and elements of each state follow, then
a checksum of all that.
"""
_PAIR, _CHECKSUM = struct.Struct("<II"), struct.Struct("<I")
_READ_BYTES = 1 << 17


def _head(model: bytes, states: Sequence[Array], length: int) -> bytes:
    kind = states[0].dtype.str[1:].encode().ljust(4)
    head = _HEADER.pack(MAGIC, VERSION, model, kind, len(states), length)
    head += b"".join(_PAIR.pack(state.shape[1], state.shape[3]) for state in states)
    return head + _CHECKSUM.pack(crc32c(head))


def _runs(states: Sequence[Array], length: int) -> Iterator[memoryview]:
    """Iterate over the memory of the first ``length`` rows."""
    for state in states:
        for part in state.reshape(-1, *state.shape[2:]):
            if length:
                yield part[:length].reshape(-1).view(np.uint8).data


def save(path: str, model: bytes, parts: Sequence[tuple[Sequence[Array], int]]) -> None:
    """Write the first rows of each state: states, and how many rows they have. Raises OSError; a file that was there
    stays then.
    """
    with replacing(path) as file:
        for states, length in parts:
            file.write(_head(model, states, length))
            checksum = 0
            for run in _runs(states, length):
                checksum = crc32c(run, checksum)
                file.write(run)
            file.write(_CHECKSUM.pack(checksum))


class _Stream(RawIOBase):
    """An open file as a stream: signals are seen while its device does not answer."""

    def __init__(self, file: Descriptor) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fd

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        self._at = {SEEK_SET: 0, SEEK_CUR: self._at}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = self._file.read_some(memoryview(buffer).cast("B"), self._at)
        self._at += count
        return count


class _Part(NamedTuple):
    """States in a file, whose header and rows are right."""

    begin: int
    """Offset of the rows."""
    states: Sequence[Array]
    length: int
    checksum: int
    """Checksum of the rows."""


class Checked(NamedTuple):
    """An open file whose headers and rows are right."""

    path: str
    file: BufferedReader[Any]
    parts: list[_Part]

    def read(self) -> list[int]:
        """Read the rows into the states; return how many each part has. Raises StateError where they have changed since
        they were checked, and OSError; the states are of no use then.
        """
        for part in self.parts:
            self.file.seek(part.begin)
            checksum = 0
            for run in _runs(part.states, part.length):
                self.file.readinto(run)
                checksum = crc32c(run, checksum)
            if checksum != part.checksum:
                raise StateError(f"{self.path}: the file was changed while it was read")
        return [part.length for part in self.parts]


@contextlib.contextmanager
def checked(path: str, model: bytes, parts: Sequence[Sequence[Array]]) -> Iterator[Checked]:
    """Open a file of these states, and check it all. Raises StateError, OSError."""
    opened = Descriptor(path, os.O_NONBLOCK)  # a FIFO must not make us wait
    with contextlib.closing(opened), BufferedReader(_Stream(opened)) as file:
        if not stat.S_ISREG(os.fstat(opened.fd).st_mode):
            raise StateError(f"{path}: not a plain file")
        found = [_checked_part(file, path, model, states) for states in parts]
        if file.read(1):
            raise StateError(f"{path}: the file was cut, or has bytes behind its end")
        yield Checked(path, file, found)


def _checked_part(file: BufferedReader[Any], path: str, model: bytes, states: Sequence[Array]) -> _Part:
    length = _read_head(file, path, model, states)
    begin = file.tell()
    left = sum(run.nbytes for run in _runs(states, length))
    if os.fstat(file.fileno()).st_size < begin + left + _CHECKSUM.size:
        raise StateError(f"{path}: the file was cut")
    checksum = 0
    while left:
        block = file.read(min(left, _READ_BYTES))
        if not block:
            raise StateError(f"{path}: the file was cut")
        checksum, left = crc32c(block, checksum), left - len(block)
    if file.read(_CHECKSUM.size) != _CHECKSUM.pack(checksum):
        raise StateError(f"{path}: the file is damaged: its checksum does not match")
    return _Part(begin, states, length, checksum)


def _read_head(file: BinaryIO, path: str, model: bytes, states: Sequence[Array]) -> int:
    """Return the length that the header states, if the file is of these states."""
    wanted = _head(model, states, 0)
    head = file.read(len(wanted))
    if len(head) < _HEADER.size or head[: len(MAGIC)] != MAGIC:
        raise StateError(f"{path}: not a file of a session's state")
    _, version, of_model, _, _, length = _HEADER.unpack_from(head)
    if version != VERSION:
        raise StateError(f"{path}: version {version} of the file, this FlexNN reads version {VERSION}")
    if of_model != model:
        raise StateError(f"{path}: the state of another model")
    if length > states[0].shape[2]:
        raise StateError(f"{path}: its {length} tokens are beyond the state's capacity of {states[0].shape[2]}")
    if head != _head(model, states, length):
        raise StateError(f"{path}: the state has another type or other sizes, or its header is damaged")
    return int(length)
