"""Opening an ONNX file without holding its weights.

``open_onnx`` walks the protobuf wire format of the file (https://protobuf.dev/programming-guides/encoding) and hands
onnx a copy without the large tensor data: each is replaced by the place where it lies, kept in a table beside the
model. Only lengths and tags are interpreted here; everything else stays onnx's work.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from flexnn._core import OpenFile
from flexnn.quick_dataclass import quick_dataclass

from .allowance import allowance
from .descriptor import Descriptor
from .ports import Port
from .stated import NAME_MAX, NESTING_MAX, TENSOR_BYTES_MAX, GraphError, dtype_name

if TYPE_CHECKING:
    from .about import About
    from .ir import WeightSource

BULK_BYTES = 64 << 10
"""Tensor data from this size on stay in the file."""
KEPT_BYTES_MAX = 256 << 20
"""Most bytes of everything else; a file with more is not a sane model."""

PARSED_TIMES = 4
"""Bytes that a byte of these takes until the model is made of it."""

_MODEL: dict[int, str] = {7: "graph"}
_MESSAGES: dict[str, dict[int, str]] = {
    "model": _MODEL,
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
"""Fields of onnx.proto that lead to tensors, by message."""
_BULK_FIELDS = {4: 1, 9: 13, 10: 11}
"""TensorProto's data of fixed width: float_data, raw_data, double_data -> TensorProto.DataType (raw: any)."""
_RAW_DATA = 9
_DOC_STRING = 12
_DROPPED = {"model": {6, 14}, "graph": {10, 16}, "node": {6, 9}, "attribute": {13}, "tensor": {12, 16}}
"""doc_string and metadata_props: computing needs none; a tensor's doc_string becomes the mark of its place."""
_SAID = {"doc_string", "metadata_props"}
_ABOUT = {("model", 6), ("model", 14), ("graph", 10)}
"""Those of them that say what the whole model is: apps read them."""
ABOUT_BYTES_MAX = 1 << 20
"""Most bytes of these; a field that would be beyond is left out."""


_BODIES = {
    0: rb"[\x80-\xff]{0,9}[\x00-\x7f]",
    1: rb".{8}",
    2: b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(32)),
    5: rb".{4}",
}
"""Bodies of fields by their wire type; with lengths, the short ones."""
_SWITCH = "if you trust the model, compile it with --follow-links (follow_links=True)"


@quick_dataclass(slots=True)
class OnnxFile:
    """An open model: ``model`` without the large data, ``bulk`` the places of those, (offset, bytes, field)."""

    path: str
    file: Descriptor
    model: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    bulk: list[tuple[int, int, int]] = field(default_factory=list)
    about: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """Fields that say what the model is, by message and number, as they lie in the file."""
    externals: set[str] = field(default_factory=set)
    """Names of files beside the model that hold weights of it."""
    follow_links: bool = False
    """Whether external data may be links."""

    def source(self, tensor: onnx.TensorProto) -> tuple[tuple[int, ...], str, WeightSource]:
        """Shape, dtype and source of a tensor of ``model``. Raises GraphError."""
        import numpy as np  # opening and checking a file do without, and what needs it

        from .ir import DTYPES
        from .sources import ArraySource, FileSource
        from .tensors import numbers_of

        what = f"tensor {tensor.name!r}"
        shape = tuple(tensor.dims)
        dtype = dtype_name(tensor.data_type, what)
        nbytes = prod(shape) * DTYPES[dtype].itemsize
        if any(d < 0 for d in shape) or nbytes > TENSOR_BYTES_MAX:
            raise GraphError(f"{what}: invalid shape {shape}")
        if (place := self.place(tensor, nbytes)) is not None:
            return shape, dtype, FileSource(*place, DTYPES[dtype], shape)
        try:
            values = numbers_of(tensor)
        except (ValueError, TypeError) as error:
            raise GraphError(f"{what}: {error}") from None
        if values.shape != shape:
            raise GraphError(f"{what}: data do not fit shape {shape}")
        return shape, dtype, ArraySource(np.ascontiguousarray(values, DTYPES[dtype]).reshape(shape))

    def place(self, tensor: onnx.TensorProto, nbytes: int) -> tuple[Descriptor, int] | None:
        """The file that holds the ``nbytes`` bytes of a tensor, and where in it they lie; None: the model has them.
        Raises GraphError if there are not as many.
        """
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return self._external(tensor, nbytes)
        if not tensor.doc_string:
            return None
        offset, size, number = self.bulk[int(tensor.doc_string)]
        if size != nbytes or (number != _RAW_DATA and _BULK_FIELDS[number] != tensor.data_type):
            said = f"shape {tuple(tensor.dims)} needs {nbytes}"
            raise GraphError(f"tensor {tensor.name!r}: has {size} bytes of data, {said}")
        return self.file, offset

    def says(self) -> About:
        """Return what the model says about itself; what is no text is left out."""
        from .about import About

        said = onnx.ModelProto()
        with contextlib.suppress(DecodeError, UnicodeDecodeError):
            said.MergeFromString(b"".join(self.about.get(("model", 6), [])))
            said.graph.MergeFromString(b"".join(self.about.get(("graph", 10), [])))
            said.MergeFromString(b"".join(self.about.get(("model", 14), [])))
        return About(
            producer_name=self.model.producer_name,
            graph_name=self.model.graph.name,
            domain=self.model.domain,
            description=_text(said.doc_string),
            graph_description=_text(said.graph.doc_string),
            version=self.model.model_version,
            custom_metadata_map={_text(entry.key): _text(entry.value) for entry in said.metadata_props},
        )

    def _external(self, tensor: onnx.TensorProto, nbytes: int) -> tuple[Descriptor, int]:
        """Return the open file that holds a tensor's data, and where in it they lie."""
        what = f"tensor {tensor.name!r}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(nbytes)))
        except ValueError:
            raise GraphError(f"{what}: offset or length of its external data is not a number") from None
        folder = os.path.dirname(os.path.abspath(self.path))
        file = open_external(folder, entries.get("location", ""), what, follow_links=self.follow_links)
        self.externals.add(entries["location"])
        if length != nbytes or offset < 0 or offset + length > file.size:
            raise GraphError(f"{what}: {length} bytes at {offset} of {file.path} ({file.size} bytes), needs {nbytes}")
        return file, offset


class Checked(NamedTuple):
    """Facts of an open model that was checked (checked.py)."""

    opset: int
    """Version of the default domain."""
    outputs: list[Port]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def open_external(folder: str, location: str, what: str, *, follow_links: bool = False) -> Descriptor:
    """Open external data, which must be a plain file below ``folder``; no link may lead to or from it, unless links are
    to be followed. Raises GraphError.
    """
    steps = location.replace("\\", "/").split("/")
    parts = [step for step in steps if step != "."]
    if not parts or "\0" in location or os.path.isabs(location) or any(step in ("", "..") for step in steps):
        raise GraphError(f"{what}: external data at {location!r} must be a file below the model's folder")
    path = os.path.join(folder, *parts)
    try:
        if follow_links:
            file = Descriptor(path, os.O_NONBLOCK)
        else:
            at = OpenFile(folder, os.O_PATH | os.O_DIRECTORY)
            for part in parts[:-1]:
                at = OpenFile(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at.fd)
            file = Descriptor(path, os.O_NOFOLLOW | os.O_NONBLOCK, name=parts[-1], folder=at)
        status = os.fstat(file.fd)
    except OSError as error:
        ways = [os.path.join(folder, *parts[:count]) for count in range(1, len(parts) + 1)]
        if not follow_links and any(map(os.path.islink, ways)):
            raise GraphError(f"{what}: external data {location!r} lead through a symbolic link: {_SWITCH}") from None
        raise GraphError(f"{what}: external data {location!r}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise GraphError(f"{what}: external data {location!r} must be a regular file")
    if status.st_nlink != 1 and not follow_links:
        raise GraphError(f"{what}: external data {location!r} must be a regular file without hard links: {_SWITCH}")
    return file


def open_onnx(path: str, *, follow_links: bool = False, file: Descriptor | None = None) -> OnnxFile:
    """Open the model at ``path``, or read ``file`` if that is open; its external data may be links only with
    ``follow_links``. Raises OSError, or GraphError with one line saying what is malformed.
    """
    file = file or Descriptor(path)
    opened = OnnxFile(path, file, follow_links=follow_links)
    try:
        skim = _Skim(file)
        opened.model = onnx.ModelProto.FromString(b"".join(skim.message("model", 0, file.size, 0)))
        opened.bulk, opened.about = skim.bulk, skim.about
    except (DecodeError, UnicodeDecodeError, GraphError) as error:
        if _is_text(file):
            raise GraphError(f"{path}: text, not an ONNX model") from None
        why = f": {error}" if isinstance(error, GraphError) else ""
        raise GraphError(f"{path}: not an ONNX model, or damaged{why}") from None
    if wrong := _wrong_text(opened.model):
        raise GraphError(f"{path}: {wrong}")
    if not opened.model.graph.node and not opened.model.graph.output:
        raise GraphError(f"{path}: not an ONNX model: it has no graph")
    return opened


def _is_text(file: Descriptor) -> bool:
    """Return whether a file begins like a text."""
    head = bytearray(256)
    count = file.read_some(memoryview(head), 0)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head[:count])  # the end may cut a character
    except UnicodeDecodeError:
        return False
    return len(text) > 0 and all(c.isprintable() or c in "\t\r\n" for c in text)


def _wrong_text(message: Message) -> str:
    """Return the fault of the first string in ``message`` that is none, as protobuf hands out bytes for what is not
    UTF-8, or is too long for a name; "" where there is none such. What is said about values is no name, and not read.
    """
    for kind, value in message.ListFields():
        if kind.type in (kind.TYPE_STRING, kind.TYPE_MESSAGE) and kind.name not in _SAID:
            for one in (value,) if isinstance(value, (str, bytes, Message)) else value:
                if isinstance(one, bytes):
                    return "damaged: a name is not text"
                if isinstance(one, str) and len(one) > NAME_MAX:
                    return f"{kind.name} {one[:40]!r}… has {len(one)} characters; at most {NAME_MAX} are supported"
                if isinstance(one, Message) and (wrong := _wrong_text(one)):
                    return wrong
    return ""


class _Skim:
    """Copy of a message without bulk data, made by lengths and tags alone."""

    def __init__(self, file: Descriptor) -> None:
        self.file = file
        self.bulk: list[tuple[int, int, int]] = []
        self.about: dict[tuple[str, int], list[bytes]] = {}
        self.about_bytes = 0
        self.kept = 0
        self.start = 0
        self.buffer = b""
        self._patterns: dict[int, re.Pattern[bytes]] = {}

    def message(self, kind: str, start: int, end: int, depth: int) -> list[bytes]:
        """The message in [start, end) as pieces of bytes."""
        if depth > NESTING_MAX:
            raise GraphError("graphs are nested too deeply")
        pieces: list[bytes] = []
        places: list[int] = []
        at = start
        while at < end:
            tag, body = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            size, body = self._varint(body, end) if wire == 2 else self._size(wire, body, end)
            stop = body + size
            if stop > end or number == 0:
                raise GraphError(f"malformed at byte {at}: a field reaches outside its message")
            inner = _MESSAGES[kind].get(number) if wire == 2 else None
            if inner:
                child = self.message(inner, body, stop, depth + 1)
                pieces += [_tag(number), _varint_bytes(sum(map(len, child))), *child]
            elif kind == "tensor" and wire == 2 and number in _BULK_FIELDS and size >= BULK_BYTES:
                places.append(len(self.bulk))
                self.bulk.append((body, size, number))
            elif number not in _DROPPED[kind]:
                stop = self._alike(tag, stop, end)
                pieces.append(self._keep(at, stop))
            elif (kind, number) in _ABOUT and depth <= 1 and self.about_bytes + size <= ABOUT_BYTES_MAX:
                self.about.setdefault((kind, number), []).append(self._keep(at, stop))
                self.about_bytes += size
            at = stop
        if len(places) > 1:
            raise GraphError("a tensor has two fields with data")
        if places:
            mark = str(places[0]).encode()
            pieces += [_tag(_DOC_STRING), _varint_bytes(len(mark)), mark]
        return pieces

    def _size(self, wire: int, at: int, end: int) -> tuple[int, int]:
        """Bytes of the body of a field that does not say them, and where it starts."""
        if wire == 0:
            return self._varint(at, end)[1] - at, at
        if wire == 1:
            return 8, at
        if wire == 5:
            return 4, at
        raise GraphError(f"malformed at byte {at}: unknown wire type {wire}")

    def _alike(self, tag: int, at: int, end: int) -> int:
        """Return where fields of one tag end that lie in the buffer from ``at`` on: lists of numbers and of names have
        millions of them.
        """
        stop = min(end, self.start + len(self.buffer)) - self.start
        first = at - self.start
        if not (tag < 128 and 0 <= first < stop and self.buffer[first] == tag and tag & 7 in _BODIES):
            return at
        found = self._fields(tag).match(self.buffer, first, stop)
        return self.start + found.end() if found else at

    def _fields(self, tag: int) -> re.Pattern[bytes]:
        pattern = self._patterns.get(tag)
        if pattern is None:
            # Not "++": possessive repeats of alternatives end within one up to Python 3.11.4 (cpython #106052)
            source = b"(?:%s(?:%s))+" % (re.escape(bytes([tag])), _BODIES[tag & 7])
            pattern = self._patterns[tag] = re.compile(source, re.DOTALL)
        return pattern

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        first = at - self.start
        if at < end and 0 <= first < len(self.buffer) and self.buffer[first] < 128:  # as most are
            return self.buffer[first], at + 1
        value = 0
        for i in range(10):
            if at + i >= end:
                break
            byte = self._byte(at + i)
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                return value, at + i + 1
        raise GraphError(f"malformed at byte {at}: a number does not end")

    def _byte(self, at: int) -> int:
        if not self.start <= at < self.start + len(self.buffer):
            self.start = at
            self.buffer = self.file.read(at, min(1 << 12, self.file.size - at))
        return self.buffer[at - self.start]

    def _keep(self, start: int, end: int) -> bytes:
        self.kept += end - start
        found = allowance() if end - start > BULK_BYTES else None
        if found is not None:
            found.reserve(PARSED_TIMES * (end - start), "the graph's names and attributes")
        if self.kept > KEPT_BYTES_MAX:
            raise GraphError("more than 256 MiB of names and attributes")
        if self.start <= start and end <= self.start + len(self.buffer):
            return self.buffer[start - self.start : end - self.start]
        return self.file.read(start, end - start)


def _tag(number: int) -> bytes:
    return _varint_bytes(number << 3 | 2)


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
