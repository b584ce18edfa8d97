"""The writer streams weights one by one into a new file, which then replaces the old one, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from flexnn._core import crc32c
from flexnn.files import replacing
from flexnn.graph.ir import Graph, GraphError, Weight
from flexnn.graph.pack import PackedSource
from flexnn.graph.panels import NR
from flexnn.graph.rows import parts
from flexnn.quick_dataclass import quick_dataclass

from .format import GRAPH, HEADER_BYTES, MODEL, ArtifactError, Header, page_up
from .model_section import StoredModel, dump_stored, weight_key
from .reader import check_graph
from .section import dump_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

WRITE_BYTES = 512 << 10
"""Bytes that are written at once, at multiples of them. The page cache keeps a file in units of what was written at
once, which lie at multiples of their size, and runs copy weights out of large units in two thirds of the time
(docs/decisions/0096-large-writes.md, 0132).
"""


def write_artifact(
    contents: Graph | StoredModel,
    path: str,
    source_sha256: bytes | Callable[[], bytes],
    progress: Callable[[Weight], None] | None = None,
    *,
    lasting: bool = True,
) -> int:
    """Write a bound graph, or a model with open shapes, and its weights to ``path``; return the bytes of the file.

    ``source_sha256`` is called at the end if it is a function; ``progress`` after each weight. The disk has the file at
    the end if it is to be ``lasting``. Peak memory is some panels, or one weight where it is no view of a file's
    (graph/rows.py). Raises ArtifactError or GraphError if the graph is inconsistent, before anything is written;
    CompileError where a weight does not fit the budget of compiling, OSError if writing fails. In all cases a file at
    ``path`` stays as it was.
    """
    section = _section_of(contents)
    groups = _alike(contents.weights)
    _place_checksums(groups)
    with replacing(path, lasting=lasting, buffering=WRITE_BYTES) as file:
        header, raw, crcs = _lay_out(section, groups)
        file.seek(header.data_offset)
        for group in groups:
            _write_weight(file, group[0], crcs)
            if progress:
                for weight in group:
                    progress(weight)
        file.truncate(header.file_bytes)
        header.crcs_crc = crc32c(crcs)
        header.source_sha256 = source_sha256 if isinstance(source_sha256, bytes) else source_sha256()
        parts = ((header.graph_offset, raw), (header.crc_offset, crcs.tobytes()), (0, header.pack()))
        for offset, part in parts:
            file.seek(offset)
            file.write(part)
    return header.file_bytes


@quick_dataclass(frozen=True, slots=True)
class _Section:
    """The first section. ``dump`` makes its bytes, which hold the offsets of the weights."""

    kind: int
    dump: Callable[[], bytes]


def _section_of(contents: Graph | StoredModel) -> _Section:
    """Return the section that will hold ``contents``. Raises ArtifactError or GraphError if a graph is inconsistent."""
    if isinstance(contents, Graph):
        check_graph(contents)
        return _Section(GRAPH, partial(dump_graph, contents))
    return _Section(MODEL, partial(dump_stored, contents))


def _alike(weights: list[Weight]) -> list[list[Weight]]:
    """Return the weights in groups of the same numbers in the same form, so that a repeated layer is stored once."""
    groups: dict[tuple[object, ...], list[Weight]] = {}
    for index, weight in enumerate(weights):
        key = weight_key(weight) if weight.origin is not None else None
        groups.setdefault((key, weight.nbytes, weight.chunk_bytes) if key else (index,), []).append(weight)
    return list(groups.values())


def _place_checksums(groups: list[list[Weight]]) -> None:
    first = 0
    for group in groups:
        for weight in group:
            weight.crc_first = first
        first += group[0].chunks


def _lay_out(section: _Section, groups: list[list[Weight]]) -> tuple[Header, bytes, NDArray[np.uint32]]:
    """Return the header but for its checksums, the first section and an empty checksum table.

    The length of the section depends on the offsets in it, and they depend on its length, so the layout is repeated
    until nothing moves.
    """
    count = sum(group[0].chunks for group in groups)
    raw = section.dump()
    while True:
        crc_offset = -(-(HEADER_BYTES + len(raw)) // 4) * 4
        data_offset = end = page_up(crc_offset + 4 * count)
        for group in groups:
            for weight in group:
                weight.offset = page_up(end)
            end = group[0].offset + group[0].nbytes
        before, raw = raw, section.dump()
        if len(raw) == len(before):
            break
    end = page_up(end)
    header = Header(
        panel_width=NR,
        kind=section.kind,
        file_bytes=end,
        graph_offset=HEADER_BYTES,
        graph_bytes=len(raw),
        crc_offset=crc_offset,
        crc_count=count,
        data_offset=data_offset,
        data_bytes=end - data_offset,
        source_sha256=b"",
        graph_crc=crc32c(raw),
        crcs_crc=0,
    )
    return header, raw, np.zeros(count, "<u4")


def _write_weight(file: BinaryIO, weight: Weight, crcs: NDArray[np.uint32]) -> None:
    """Write a weight behind the one before it: zeros lie between, as a buffer that is moved would be written early."""
    before = file.tell()
    _write(file, bytes(weight.offset - before), before)
    written = chunk = 0
    try:
        for chunk, raw in enumerate(_chunks(weight), 1):
            crcs[weight.crc_first + chunk - 1] = crc32c(raw)
            _write(file, raw, weight.offset + written)
            written += len(raw)
    except GraphError as error:
        raise GraphError(f"weight {weight.name!r}: {error}") from None
    if written != weight.nbytes or chunk != weight.chunks:
        raise ArtifactError(f"weight {weight.name!r} has {written} bytes instead of {weight.nbytes}")


def _write(file: BinaryIO, raw: bytes | memoryview, at: int) -> None:
    """Write bytes to the place ``at``, where the file is, through its buffer of WRITE_BYTES, which is emptied where the
    file has a multiple of these.
    """
    left, room = memoryview(raw), WRITE_BYTES - at % WRITE_BYTES
    while len(left) >= room:
        file.write(left[:room])
        file.flush()
        left, room = left[room:], WRITE_BYTES
    file.write(left)


def _chunks(weight: Weight) -> Iterator[bytes | memoryview]:
    panels = weight.source.panels if isinstance(weight.source, PackedSource) else weight.panels
    if panels is not None:
        for panel in panels:
            yield panel.data.cast("B")
    elif weight.source is not None:
        yield from parts(weight.source, weight.chunk_bytes, weight.nbytes)
