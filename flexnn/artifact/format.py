"""The fixed header of a ``.flexnn`` file, byte by byte as docs/format.md states it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from flexnn._core import crc32c
from flexnn.errors import FlexNNError

MAGIC = b"\x89FLEXNN\n"
VERSIONS = (GRAPH, MODEL) = (1, 2)
"""A bound graph; a model whose shapes are bound at run time."""
PAGE = 4096
"""Alignment of each weight, in bytes: what O_DIRECT asks for on every common device."""
GRAPH_BYTES_MAX = 64 << 20
CHUNKS_MAX = 1 << 24
FILE_BYTES_MAX = 1 << 46

_FIELDS = struct.Struct("<8sIIIIQQQQQQQ32sIII")
HEADER_BYTES = _FIELDS.size + 4


class ArtifactError(FlexNNError, ValueError):
    """A file that is not a usable artifact; the message is one line saying what is wrong."""


def page_up(offset: int) -> int:
    """``offset`` rounded up to a page."""
    return -(-offset // PAGE) * PAGE


@dataclass(slots=True)
class Header:
    """Where the sections are. Offsets and sizes in bytes from the start of the file."""

    version: int
    """GRAPH or MODEL: what the graph section holds."""
    panel_width: int
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
        """The header's bytes, with its checksum."""
        head = _FIELDS.pack(
            MAGIC,
            self.version,
            HEADER_BYTES,
            self.panel_width,
            0,
            self.file_bytes,
            self.graph_offset,
            self.graph_bytes,
            self.crc_offset,
            self.crc_count,
            self.data_offset,
            self.data_bytes,
            self.source_sha256,
            self.graph_crc,
            self.crcs_crc,
            0,
        )
        return head + struct.pack("<I", crc32c(head))

    @classmethod
    def unpack(cls, raw: bytes, file_bytes: int) -> Header:
        """The header in ``raw``, every field checked against ``file_bytes``, the true size. Raises ArtifactError."""
        if len(raw) < HEADER_BYTES or raw[: len(MAGIC)] != MAGIC:
            raise ArtifactError("not a .flexnn artifact")
        fields = _FIELDS.unpack(raw[: _FIELDS.size])
        version, header_bytes, width, flags, size = fields[1:6]
        if version not in VERSIONS:
            raise ArtifactError(f"artifact version {version}, this FlexNN reads {VERSIONS}: compile the model again")
        if struct.unpack_from("<I", raw, _FIELDS.size)[0] != crc32c(raw[: _FIELDS.size]):
            raise ArtifactError("header checksum does not match: the file is damaged")
        header = cls(version, width, *fields[5:-1])
        if header_bytes != HEADER_BYTES or flags or fields[-1]:
            raise ArtifactError("header has fields this version does not know")
        if size != file_bytes or size > FILE_BYTES_MAX:
            raise ArtifactError(f"file has {file_bytes} bytes, its header says {size}: truncated or appended to")
        header._check_sections()
        return header

    def _check_sections(self) -> None:
        if self.graph_bytes > GRAPH_BYTES_MAX or self.crc_count > CHUNKS_MAX:
            raise ArtifactError("graph or checksum table larger than any model needs")
        in_order = (
            self.graph_offset == HEADER_BYTES
            and self.crc_offset == -(-(self.graph_offset + self.graph_bytes) // 4) * 4
            and self.data_offset == page_up(self.crc_offset + 4 * self.crc_count)
            and self.data_bytes == self.file_bytes - self.data_offset
            and self.data_bytes >= 0
        )
        if not in_order:
            raise ArtifactError("sections overlap or leave the file")
