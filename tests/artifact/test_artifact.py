"""The artifact: what is written is read; what was tampered with is refused, whatever the checksums say."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from flexnn import _core
from flexnn.artifact import ArtifactError, open_artifact, writer
from flexnn.artifact.format import HEADER_BYTES, PAGE, Header
from flexnn.artifact.section import dump_graph, load_graph
from flexnn.artifact.writer import WRITE_BYTES, write_artifact
from flexnn.files import TEMPORARY
from flexnn.graph.ir import RAW_CHUNK_BYTES, Graph, GraphError, Node, Tensor, Weight
from flexnn.graph.pack import PanelSource
from flexnn.graph.sources import ArraySource

SHA = bytes(range(32))


def small_graph() -> Graph:
    """x[1,6,5,3] -> conv 3x3 to 20 channels -> + constant -> y."""
    rng = np.random.default_rng(0)
    panels = PanelSource("conv", (20, 3, 3, 3), 1, ArraySource(rng.standard_normal((20, 3, 3, 3), np.float32)))
    shape = (1, 6, 5, 20)
    graph = Graph(
        tensors=[
            Tensor("x", (1, 6, 5, 3)),
            Tensor("c", shape),
            Tensor("k", (20,), weight=1),
            Tensor("y", shape),
        ],
        weights=[
            Weight("w", "panels", panels.nbytes, panels.panel_bytes, panels=panels),
            Weight("k", "raw", 80, RAW_CHUNK_BYTES, source=ArraySource(rng.standard_normal(20, np.float32))),
        ],
        inputs=[0],
        outputs=[3],
    )
    act = {"act": "none", "alpha": 0.0, "beta": 0.0}
    spatial = {"kernel": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1]}
    conv = {**spatial, "group": 1, "cout": 20, "cin_block": panels.cin_block, "wtype": "f32", "sums": "f32", **act}
    graph.nodes = [
        Node("conv0", "conv", [0], [1], conv, weight=0),
        Node("add0", "binary", [1, 2], [3], {"kind": "add", **act}),
    ]
    return graph


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "small.flexnn"
    write_artifact(small_graph(), str(path), SHA)
    return path


class Counted(io.FileIO):
    """A file that keeps where each write was, and how many bytes it had."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "w")
        self.places: list[int] = []
        self.sizes: list[int] = []

    def write(self, data: Any) -> int:
        self.places.append(self.tell())
        self.sizes.append(memoryview(data).nbytes)
        return super().write(data)


def test_weights_are_written_in_large_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, graph = tmp_path / "large.flexnn", small_graph()
    rng = np.random.default_rng(0)
    for name in "uvw":
        panels = PanelSource(
            "conv", (2048, 64, 3, 3), 1, ArraySource(rng.standard_normal((2048, 64, 3, 3), np.float32))
        )
        graph.weights.append(Weight(name, "panels", panels.nbytes, panels.panel_bytes, panels=panels))
    assert panels.panel_bytes < WRITE_BYTES // 8
    write_artifact(graph, str(path), SHA)
    files: list[Counted] = []

    @contextlib.contextmanager
    def counting(path: str, *, lasting: bool, buffering: int) -> Iterator[BinaryIO]:
        files.append(Counted(path))
        with io.BufferedWriter(files[0], buffering) as file:
            yield file

    monkeypatch.setattr(writer, "replacing", counting)
    write_artifact(graph, str(tmp_path / "again.flexnn"), SHA)
    assert (tmp_path / "again.flexnn").read_bytes() == path.read_bytes()
    sizes = files[0].sizes
    assert sum(sizes) > 3 * panels.nbytes
    assert sum(size for size in sizes if size == WRITE_BYTES) > 0.95 * sum(sizes)
    places = [place for place, size in zip(files[0].places, sizes, strict=True) if size == WRITE_BYTES]
    assert not any(place % WRITE_BYTES for place in places)


def test_round_trip(artifact: Path) -> None:
    with open_artifact(str(artifact)) as read:
        written = small_graph()
        assert read.header.source_sha256 == SHA
        assert [t.name for t in read.graph.tensors] == [t.name for t in written.tensors]
        assert [(n.op, n.inputs, n.outputs, n.attrs) for n in read.graph.nodes] == [
            (n.op, n.inputs, n.outputs, n.attrs) for n in written.nodes
        ]
        raw = artifact.read_bytes()
        for weight, original in zip(read.graph.weights, written.weights, strict=True):
            assert weight.offset % PAGE == 0
            data = raw[weight.offset : weight.offset + weight.nbytes]
            pieces = original.panels or [original.source.load()]
            expected = b"".join(piece.tobytes() for piece in pieces)
            assert data == expected
            for i in range(weight.chunks):
                chunk = data[i * weight.chunk_bytes : (i + 1) * weight.chunk_bytes]
                assert _core.crc32c(chunk) == read.crcs[weight.crc_first + i]


def test_the_section_is_a_fixed_point() -> None:
    graph = small_graph()
    for i, weight in enumerate(graph.weights):
        weight.offset = PAGE * (i + 1)
    graph.tensors[1].strides = (1200, 100, 20, 1)  # not those of its shape
    assert dump_graph(load_graph(dump_graph(graph))) == dump_graph(graph)


def test_every_flipped_bit_of_header_and_tables_is_refused(artifact: Path) -> None:
    raw = artifact.read_bytes()
    end = Header.unpack(raw[:HEADER_BYTES], len(raw)).data_offset
    rng = random.Random(1)
    covered = [*range(HEADER_BYTES), *rng.sample(range(HEADER_BYTES, end), 400)]
    tables = Header.unpack(raw[:HEADER_BYTES], len(raw))
    padding = set(range(tables.graph_offset + tables.graph_bytes, tables.crc_offset))
    padding |= set(range(tables.crc_offset + 4 * tables.crc_count, end))
    for position in covered:
        if position in padding:
            continue
        damaged = bytearray(raw)
        damaged[position] ^= 1 << rng.randrange(8)
        artifact.write_bytes(damaged)
        with pytest.raises(ArtifactError):
            open_artifact(str(artifact))


@pytest.mark.parametrize("keep", [0, 7, 50, HEADER_BYTES, HEADER_BYTES + 30, -PAGE, -1])
def test_truncation_is_refused(artifact: Path, keep: int) -> None:
    raw = artifact.read_bytes()
    artifact.write_bytes(raw[:keep])
    with pytest.raises(ArtifactError):
        open_artifact(str(artifact))


def forge(path: Path, section: bytes) -> None:
    """Puts another graph section into the artifact, with all checksums right."""
    raw = path.read_bytes()
    old = Header.unpack(raw[:HEADER_BYTES], len(raw))
    crcs = raw[old.crc_offset : old.crc_offset + 4 * old.crc_count]
    crc_offset = -(-(HEADER_BYTES + len(section)) // 4) * 4
    data_offset = -(-(crc_offset + len(crcs)) // PAGE) * PAGE
    data = raw[old.data_offset :]
    header = Header(
        old.panel_width,
        old.kind,
        data_offset + len(data),
        HEADER_BYTES,
        len(section),
        crc_offset,
        old.crc_count,
        data_offset,
        len(data),
        SHA,
        _core.crc32c(section),
        old.crcs_crc,
    )
    body = header.pack() + section
    body += b"\0" * (crc_offset - len(body)) + crcs
    path.write_bytes(body + b"\0" * (data_offset - len(body)) + data)


FORGERIES = {
    "not json": lambda g: b"{",
    "deep": lambda g: b"[" * 100_000,
    "huge number": lambda g: json.dumps(g).replace("[1, 6, 5, 3]", "[1, 6, 5, " + "9" * 5000 + "]").encode(),
    "tables missing": lambda g: b"{}",
    "root out of range": lambda g: g["tensors"][1].__setitem__(3, 99),
    "root of itself": lambda g: g["tensors"][1].__setitem__(3, 1),
    "view outside its root": lambda g: (g["tensors"][1].__setitem__(3, 0), g["tensors"][1].__setitem__(4, 1)),
    "negative dimension": lambda g: g["tensors"][0].__setitem__(2, [1, -6, 5, 3]),
    "size overflows": lambda g: g["tensors"][0].__setitem__(2, [2**31 - 1] * 4),
    "bool for a number": lambda g: g["tensors"][0].__setitem__(3, True),
    "unknown dtype": lambda g: g["tensors"][0].__setitem__(1, "c64"),
    "unknown operator": lambda g: g["nodes"][0].__setitem__(1, "exec"),
    "attribute missing": lambda g: g["nodes"][0][4].pop("group"),
    "attribute unknown": lambda g: g["nodes"][0][4].__setitem__("__class__", 1),
    "stride of zero": lambda g: g["nodes"][0][4].__setitem__("strides", [0, 1]),
    "group of zero": lambda g: g["nodes"][0][4].__setitem__("group", 0),
    "more channels than the weight has": lambda g: g["nodes"][0][4].__setitem__("cout", 200),
    "blocks of another size": lambda g: g["nodes"][0][4].__setitem__("cin_block", 0),
    "input index out of range": lambda g: g["nodes"][0].__setitem__(2, [17]),
    "reads what comes later": lambda g: g["nodes"][0].__setitem__(2, [3]),
    "no outputs of a node": lambda g: g["nodes"][0].__setitem__(3, []),
    "output shape is a lie": lambda g: g["tensors"][3].__setitem__(2, [1, 6, 5, 10]),
    "kernel larger than the image": lambda g: g["nodes"][0][4].__setitem__("kernel", [30, 30]),
    "weight outside the file": lambda g: g["weights"][0].__setitem__(4, 1 << 40),
    "weight not on a page": lambda g: g["weights"][0].__setitem__(4, g["weights"][0][4] + 4),
    "weight in the header": lambda g: g["weights"][0].__setitem__(4, 0),
    "weight too small": lambda g: g["weights"][0].__setitem__(2, 64),
    "checksums out of range": lambda g: g["weights"][1].__setitem__(5, 1000),
    "chunk of another size": lambda g: g["weights"][0].__setitem__(3, 1),
    "constant of another size": lambda g: g["tensors"][2].__setitem__(2, [2000]),
    "nodes cut": lambda g: g["nodes"].pop(),
    "outputs empty": lambda g: g["outputs"].clear(),
    "writes its input": lambda g: g["nodes"][1].__setitem__(3, [0]),
    "a node's weight index out of range": lambda g: g["nodes"][0].__setitem__(5, 4),
    "panels for a node without": lambda g: g["nodes"][1].__setitem__(5, 0),
    "an input twice": lambda g: g["inputs"].append(0),
    "an output twice": lambda g: g["outputs"].append(3),
    "an input that is a constant": lambda g: g["inputs"].append(2),
    "a stride too few": lambda g: g["tensors"][0].__setitem__(5, [90, 15, 3]),
    "strided, and its own": lambda g: g["tensors"][0].__setitem__(5, [90, 1, 6, 30]),
    "an offset, and its own": lambda g: g["tensors"][0].__setitem__(4, 1),
    "a constant that is a view": lambda g: g["tensors"][2].__setitem__(3, 0),
    "another type than its root": lambda g: (g["tensors"][1].__setitem__(3, 0), g["tensors"][1].__setitem__(1, "i32")),
    "an output too many": lambda g: g["nodes"][0].__setitem__(3, [1, 3]),
    "an output computed twice": lambda g: g["nodes"].append(g["nodes"][1]),
    "a table that is none": lambda g: g.__setitem__("inputs", {}),
    "unknown kind of weight": lambda g: g["weights"][1].__setitem__(1, "text"),
    "attributes that are a list": lambda g: g["nodes"][1].__setitem__(4, []),
    "attribute out of range": lambda g: g["nodes"][1][4].__setitem__("alpha", 1 << 60),
    "chunks too small": lambda g: g["weights"][1].__setitem__(3, 16),
    "chunks too large": lambda g: g["weights"][1].__setitem__(3, 1 << 40),
}


def section_of(path: Path) -> bytes:
    raw = path.read_bytes()
    return raw[HEADER_BYTES : HEADER_BYTES + Header.unpack(raw[:HEADER_BYTES], len(raw)).graph_bytes]


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_graphs_with_right_checksums_are_refused(artifact: Path, name: str) -> None:
    graph = json.loads(section_of(artifact))
    forged = FORGERIES[name](graph)
    forge(artifact, forged if isinstance(forged, bytes) else json.dumps(graph).encode())
    with pytest.raises(ArtifactError):
        open_artifact(str(artifact))


def test_the_forger_can_write_a_good_file(artifact: Path) -> None:
    forge(artifact, section_of(artifact))
    open_artifact(str(artifact)).close()


def test_a_failed_write_leaves_the_old_file(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = artifact.read_bytes()
    graph = small_graph()

    def broken(_: ArraySource) -> np.ndarray:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ArraySource, "load", broken)
    with pytest.raises(OSError, match="No space"):
        write_artifact(graph, str(artifact), SHA)
    assert artifact.read_bytes() == before
    assert os.listdir(artifact.parent) == [artifact.name]


def test_temporaries_of_killed_processes_are_swept(artifact: Path) -> None:
    stale = artifact.parent / f".{artifact.name}{TEMPORARY}{'0f' * 16}"
    stale.write_bytes(b"half")
    alive = artifact.parent / f".{artifact.name}{TEMPORARY}{'1e' * 16}"
    with alive.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_artifact(small_graph(), str(artifact), SHA)
        assert not stale.exists()
        assert alive.exists()
    write_artifact(small_graph(), str(artifact), SHA)
    assert not alive.exists()


def test_an_inconsistent_graph_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    graph = small_graph()
    graph.tensors[3].shape = (1, 6, 5, 10)
    graph.tensors[3].strides = (300, 50, 10, 1)
    with pytest.raises((ArtifactError, GraphError)):
        write_artifact(graph, str(tmp_path / "bad.flexnn"), SHA)
    assert not list(tmp_path.iterdir())


def test_a_replaced_file_keeps_serving_from_the_open_descriptor(artifact: Path) -> None:
    with open_artifact(str(artifact)) as read:
        size = read.header.file_bytes
        other = artifact.with_suffix(".other")
        other.write_bytes(b"x" * 10)
        os.replace(other, artifact)
        assert len(os.pread(read.fd, size, 0)) == size
