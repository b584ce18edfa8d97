"""A GGUF file: what it says about its model, and where its tensors lie. Nothing in it is trusted: every length, count
and offset is checked before anything is made of it, and strings stay bytes until somebody asks for text.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import field
from math import prod
from typing import NamedTuple

import numpy as np

from flexnn.graph.descriptor import Descriptor
from flexnn.graph.stated import NAME_MAX, TENSOR_BYTES_MAX, GraphError
from flexnn.model_files import GGUF_MAGIC
from flexnn.quick_dataclass import quick_dataclass

_VERSIONS = (2, 3)
KEYS_MAX = 4096
TENSORS_MAX = 1 << 16
ITEMS_MAX = 1 << 21
"""Elements of an array in the metadata, and strings of all arrays: the largest vocabularies have 262,144 tokens and
514,906 merges. So many strings take 0.1 GiB as Python's objects beside their bytes.
"""
HEAD_BYTES_MAX = 128 << 20
"""Bytes of metadata and names in all."""
_ALIGNMENT_MAX = 1 << 20
_DIMENSIONS_MAX = 4
_PART_BYTES = 1 << 20

_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8"}
_NUMBERS |= {12: "<f8"}
_STRING, _ARRAY = 8, 9

Value = int | float | bool | bytes | np.ndarray | list[bytes]


class Kind(NamedTuple):
    """How numbers of a tensor are stored: ``block`` of them take ``nbytes`` bytes."""

    name: str
    block: int
    nbytes: int


KINDS = {
    0: Kind("F32", 1, 4),
    1: Kind("F16", 1, 2),
    2: Kind("Q4_0", 32, 18),
    3: Kind("Q4_1", 32, 20),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34),
    12: Kind("Q4_K", 256, 144),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210),
    30: Kind("BF16", 1, 2),
}
"""By the number of ggml_type."""
_OTHERS = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"}
_OTHERS |= {20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64"}
_OTHERS |= {28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4"}


class GgufTensor(NamedTuple):
    """A tensor: ``shape`` has the fastest dimension last, as numpy has it."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    offset: int
    """In the file."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) // self.kind.block * self.kind.nbytes


@quick_dataclass(slots=True)
class GgufFile:
    """An open file."""

    file: Descriptor
    about: dict[str, Value] = field(default_factory=dict)
    """The metadata, by key."""
    tensors: dict[str, GgufTensor] = field(default_factory=dict)

    def number(self, key: str, default: int | None = None) -> int:
        """The whole number at ``key``. Raises GraphError where it is none, or lacks."""
        value = self.about.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise GraphError(f"metadata: {key} is {'missing' if value is None else 'no whole number'}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """The finite number at ``key``. Raises GraphError where it is none, or lacks."""
        value = self.about.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise GraphError(f"metadata: {key} is {'missing' if value is None else 'no finite number'}")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """The text at ``key``. Raises GraphError where it is none, or lacks."""
        value = self.about.get(key, None if default is None else default.encode())
        if not isinstance(value, bytes):
            raise GraphError(f"metadata: {key} is {'missing' if value is None else 'no text'}")
        return value.decode("utf-8", "replace")

    def texts(self, key: str) -> list[bytes]:
        """The strings at ``key``. Raises GraphError where they are none, or lack."""
        value = self.about.get(key)
        if not isinstance(value, list):
            raise GraphError(f"metadata: {key} is {'missing' if value is None else 'no list of texts'}")
        return value

    def numbers(self, key: str) -> np.ndarray | None:
        """The array of numbers at ``key``; None where it lacks. Raises GraphError where it is something else."""
        value = self.about.get(key)
        if value is not None and not isinstance(value, np.ndarray):
            raise GraphError(f"metadata: {key} is no list of numbers")
        return value


def open_gguf(path: str) -> GgufFile:
    """Open the file at ``path``. Raises OSError, or GraphError with one line saying what is malformed."""
    opened = GgufFile(Descriptor(path, os.O_NONBLOCK))  # a FIFO must not make us wait
    try:
        if not stat.S_ISREG(os.fstat(opened.file.fd).st_mode):
            raise GraphError("not a regular file")
        _read_head(opened)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    return opened


def _read_head(opened: GgufFile) -> None:
    cursor = _Cursor(opened.file)
    if opened.file.size < len(GGUF_MAGIC) or cursor.take(len(GGUF_MAGIC)) != GGUF_MAGIC:
        raise GraphError("not a GGUF file: text needs its tokenizer")
    version = cursor.whole("<I")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        what = "big-endian numbers" if swapped in _VERSIONS else f"version {version} of GGUF"
        raise GraphError(f"{what} are not supported; versions 2 and 3, little-endian, are")
    tensors, keys = cursor.whole("<Q"), cursor.whole("<Q")
    if tensors > TENSORS_MAX or keys > KEYS_MAX:
        raise GraphError(f"{tensors} tensors and {keys} keys; at most {TENSORS_MAX} and {KEYS_MAX} are supported")
    for _ in range(keys):
        key = cursor.name("a key")
        if key in opened.about:
            raise GraphError(f"metadata: {key} is there twice")
        opened.about[key] = cursor.value(cursor.whole("<I"), f"metadata: {key}")
    found = [_tensor(cursor) for _ in range(tensors)]
    alignment = opened.number("general.alignment", 32)
    if not 0 < alignment <= _ALIGNMENT_MAX or alignment & (alignment - 1):
        raise GraphError(f"metadata: general.alignment {alignment} is not supported")
    start, left = -(-cursor.at // alignment) * alignment, opened.file.size
    for tensor in found:
        left -= tensor.nbytes
        place = start + tensor.offset
        if tensor.name in opened.tensors or tensor.offset % alignment:
            raise GraphError(f"tensor {tensor.name!r}: it is there twice, or its place is not aligned")
        if place + tensor.nbytes > opened.file.size or left < 0:
            raise GraphError(f"tensor {tensor.name!r}: {tensor.nbytes} bytes at {place} of {opened.file.size}")
        opened.tensors[tensor.name] = tensor._replace(offset=place)


def _tensor(cursor: _Cursor) -> GgufTensor:
    name = cursor.name("a tensor's name")
    rank = cursor.whole("<I")
    if not 0 < rank <= _DIMENSIONS_MAX:
        raise GraphError(f"tensor {name!r}: {rank} dimensions")
    shape = tuple(cursor.whole("<Q") for _ in range(rank))[::-1]
    number, offset = cursor.whole("<I"), cursor.whole("<Q")
    kind = KINDS.get(number)
    if kind is None:
        raise GraphError(f"tensor {name!r}: type {_OTHERS.get(number, number)} is not supported")
    if min(shape) < 1 or prod(shape) * 4 > TENSOR_BYTES_MAX or shape[-1] % kind.block:
        raise GraphError(f"tensor {name!r}: shape {list(shape)} of {kind.name}")
    return GgufTensor(name, shape, kind, offset)


class _Cursor:
    """Reader of the head, front to back; every take is checked against the file's end."""

    def __init__(self, file: Descriptor) -> None:
        self.file, self.at = file, 0
        self._start, self._buffer = 0, b""
        self._strings_left = ITEMS_MAX

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > min(self.file.size, HEAD_BYTES_MAX) - self.at:
            where = f"ends within its head, at byte {self.at}" if self.file.size < HEAD_BYTES_MAX else "its head is"
            raise GraphError(where if "ends" in where else f"{where} larger than {HEAD_BYTES_MAX >> 20} MiB")
        first = self.at - self._start
        if first + count > len(self._buffer):
            self._start, first = self.at, 0
            self._buffer = self.file.read(self.at, min(max(count, _PART_BYTES), self.file.size - self.at))
        self.at += count
        return self._buffer[first : first + count]

    def whole(self, layout: str) -> int:
        """The next number."""
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def name(self, what: str) -> str:
        """The next string, as a name."""
        size = self.whole("<Q")
        if not 0 < size <= NAME_MAX:
            raise GraphError(f"{what} of {size} bytes; at most {NAME_MAX} are supported")
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise GraphError(f"{what} is not text") from None

    def value(self, kind: int, what: str) -> Value:
        """The next value of this type."""
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            number: int | float | bool = np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()
            return number
        if kind == _STRING:
            return self.take(self.whole("<Q"))
        if kind != _ARRAY:
            raise GraphError(f"{what}: type {kind} of values is not supported")
        kind, count = self.whole("<I"), self.whole("<Q")
        if count > ITEMS_MAX:
            raise GraphError(f"{what}: {count} elements; at most {ITEMS_MAX} are supported")
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if kind != _STRING:
            raise GraphError(f"{what}: lists of type {kind} are not supported")
        self._strings_left -= count
        if self._strings_left < 0:
            raise GraphError(f"{what}: more than {ITEMS_MAX} strings in lists; no more are supported")
        return list(self._strings(count))

    def _strings(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self.take(self.whole("<Q"))
