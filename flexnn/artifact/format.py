"""The fixed header of a ``.flexnn`` file, byte by byte as docs/format.md states it."""

from __future__ import annotations

import os
import stat
import struct

from flexnn._core import DIRECT_ALIGN, crc32c
from flexnn.errors import FlexNNError
from flexnn.graph.descriptor import Descriptor
from flexnn.quick_dataclass import quick_dataclass

MAGIC = b"\x89FLEXNN\n"
VERSION = 11
"""Version of the format. A change raises it if this FlexNN would misread or refuse older files: an operator with other
attributes, panels with another layout. Versions 1 and 2 stood for what is ``kind`` now.
"""
_GGUF_FIRST = b"GGUF"
_ONNX_FIRST = b"\x08"
"""First byte of an ONNX model: the tag of its ir_version, which writers put first."""
KINDS = (GRAPH, MODEL) = (1, 2)
"""A bound graph; a model whose shapes are bound at run time."""
PAGE = DIRECT_ALIGN
"""Alignment of each weight in bytes, so that direct reads reach it."""
ABOUT, LABELLED = "about", "about and labels"
"""Names of the last weight, which no node reads; the second one's has what numbers of outputs stand for, too."""
"""Name of the weight that holds what the model says about itself."""
GRAPH_BYTES_MAX = 64 << 20
CHUNKS_MAX = 1 << 24
FILE_BYTES_MAX = 1 << 46

LAYOUT = {
    "magic": "8s",
    "version": "I",
    "header_bytes": "I",
    "panel_width": "I",
    "kind": "I",
    "file_bytes": "Q",
    "graph_offset": "Q",
    "graph_bytes": "Q",
    "crc_offset": "Q",
    "crc_count": "Q",
    "data_offset": "Q",
    "data_bytes": "Q",
    "source_sha256": "32s",
    "graph_crc": "I",
    "crcs_crc": "I",
    "reserved": "I",
}
"""The header's fields in order, with their types as ``struct`` names them. ``header_crc`` follows. ``magic`` and
``version`` keep their places in every version.
"""
_FIELDS = struct.Struct("<" + "".join(LAYOUT.values()))
_VERSION = struct.Struct("<8sI")
HEADER_BYTES = _FIELDS.size + 4
_FIXED = {"magic": MAGIC, "version": VERSION, "header_bytes": HEADER_BYTES, "reserved": 0}


class ArtifactError(FlexNNError, ValueError):
    """A file that is not a usable artifact. The message is one line that says what is wrong."""


def page_up(offset: int) -> int:
    """Return ``offset``, rounded up to a page."""
    return -(-offset // PAGE) * PAGE


def is_onnx(path: str) -> bool:
    """Return whether a file is a model to compile, ONNX or GGUF: told by its first bytes, else by its name."""
    if path.lower().endswith(".flexnn"):
        return False
    head = bytearray(len(MAGIC))
    try:
        file = Descriptor(path, os.O_NONBLOCK)  # a FIFO must not make us wait
        if stat.S_ISREG(os.fstat(file.fd).st_mode):
            file.read_some(memoryview(head), 0)
    except (OSError, ValueError):  # who opens it says what is wrong
        pass
    if head == MAGIC or path.lower().endswith(".onnx"):
        return head != MAGIC
    return head[:1] == _ONNX_FIRST or head[:4] == _GGUF_FIRST


def check_version(raw: bytes, path: str) -> None:
    """Check magic and version in ``raw``, the first bytes of the file at ``path``.

    Raises ArtifactError, which for another version says what to do.
    """
    if len(raw) < _VERSION.size or raw[: len(MAGIC)] != MAGIC:
        other = "" if path.lower().endswith(".flexnn") else ", and not an ONNX model"
        raise ArtifactError(f"not a .flexnn artifact{other}")
    version = _VERSION.unpack_from(raw)[1]
    this = f"format version {version}, this FlexNN reads version {VERSION}"
    if version > VERSION:
        raise ArtifactError(f"{this}: a newer FlexNN wrote it: upgrade FlexNN, or {again(path)}")
    if version < VERSION:
        raise ArtifactError(f"{this}: {again(path)}")


def again(path: str) -> str:
    """Return the advice to compile the artifact at ``path`` again, with the command."""
    from shlex import quote  # lazily: it costs memory, and most files open

    return f"compile it again: flexnn compile MODEL.onnx -o {quote(path)}"


@quick_dataclass(slots=True)
class Header:
    """The header: kind of the file, and places of its sections. Offsets count bytes from the start of the file."""

    panel_width: int
    kind: int
    """GRAPH or MODEL: contents of the first section."""
    file_bytes: int
    graph_offset: int
    graph_bytes: int
    crc_offset: int
    crc_count: int
    data_offset: int
    data_bytes: int
    source_sha256: bytes
    graph_crc: int
    crcs_crc: int

    def pack(self) -> bytes:
        """Return the header's bytes, with its checksum."""
        values = [_FIXED[name] if name in _FIXED else getattr(self, name) for name in LAYOUT]
        head = _FIELDS.pack(*values)
        return head + struct.pack("<I", crc32c(head))

    @classmethod
    def unpack(cls, raw: bytes, file_bytes: int, path: str = "OUT.flexnn") -> Header:
        """Read the header in ``raw`` and check every field.

        ``file_bytes`` is the true size of the file at ``path``. Raises ArtifactError.
        """
        check_version(raw, path)
        if len(raw) < HEADER_BYTES or struct.unpack_from("<I", raw, _FIELDS.size)[0] != crc32c(raw[: _FIELDS.size]):
            raise ArtifactError("header checksum does not match: the file is damaged")
        fields = dict(zip(LAYOUT, _FIELDS.unpack_from(raw), strict=True))
        if any(fields.pop(name) != value for name, value in _FIXED.items()) or fields["kind"] not in KINDS:
            raise ArtifactError("the header has values that this version does not know")
        header = cls(**fields)
        if header.file_bytes != file_bytes or file_bytes > FILE_BYTES_MAX:
            raise ArtifactError(
                f"the file has {file_bytes} bytes, but its header says {header.file_bytes}: it was cut or extended"
            )
        header._check_sections()
        return header

    def _check_sections(self) -> None:
        if self.graph_bytes > GRAPH_BYTES_MAX or self.crc_count > CHUNKS_MAX:
            raise ArtifactError("the graph or the checksum table is larger than any model needs")
        in_order = (
            self.graph_offset == HEADER_BYTES
            and self.crc_offset == -(-(self.graph_offset + self.graph_bytes) // 4) * 4
            and self.data_offset == page_up(self.crc_offset + 4 * self.crc_count)
            and self.data_bytes == self.file_bytes - self.data_offset
            and self.data_bytes >= 0
        )
        if not in_order:
            raise ArtifactError("sections overlap or reach beyond the file")
