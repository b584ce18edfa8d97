"""Refusals of the reader beyond graphs of fixed shapes: headers, models of open shapes, values that are read
later; each with its reason. What it accepts at the edge is read.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flexnn import _core
from flexnn.artifact import ArtifactError, model_section, open_artifact
from flexnn.artifact.format import _FIELDS, ABOUT, HEADER_BYTES, LAYOUT, MAGIC, PAGE, VERSION, Header, is_onnx
from flexnn.artifact.writer import write_artifact
from flexnn.graph.ir import AbsentError, Weight
from flexnn.graph.sources import ArraySource
from flexnn.graph.stated import NESTING_MAX

from .test_artifact import SHA, forge, section_of, small_graph

MODEL = Path(__file__).resolve().parents[1] / f"data/artifacts/model-{VERSION}.flexnn"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "small.flexnn"
    write_artifact(small_graph(), str(path), SHA)
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """An artifact of a model whose shapes are open."""
    return Path(shutil.copy(MODEL, tmp_path / "copy.flexnn"))


def rewritten(path: Path, **fields: int) -> None:
    """Write other numbers into a header, whose checksum is right."""
    raw = path.read_bytes()
    values = dict(zip(LAYOUT, _FIELDS.unpack_from(raw), strict=True)) | fields
    head = _FIELDS.pack(*values.values())
    path.write_bytes(head + struct.pack("<I", _core.crc32c(head)) + raw[HEADER_BYTES:])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"graph_bytes": 1 << 31}, "larger than any model needs"),
        ({"crc_count": 1 << 31}, "larger than any model needs"),
        ({"graph_offset": HEADER_BYTES + 4}, "overlap or reach beyond"),
        ({"crc_offset": HEADER_BYTES}, "overlap or reach beyond"),
        ({"data_offset": 0}, "overlap or reach beyond"),
        ({"data_bytes": 1}, "overlap or reach beyond"),
        ({"kind": 77}, "does not know"),
        ({"file_bytes": 1}, "was cut or extended"),
    ],
)
def test_headers(artifact: Path, fields: dict[str, int], message: str) -> None:
    rewritten(artifact, **fields)
    with pytest.raises(ArtifactError, match=message):
        open_artifact(str(artifact))


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path):
        with pytest.raises((ArtifactError, OSError)):
            open_artifact(str(path))
        assert not is_onnx(str(path))


@pytest.mark.parametrize(
    ("name", "first", "expected"),
    [
        ("model.onnx", b"\x08\x08", True),
        ("model.ONNX", b"", True),
        ("model", b"\x08\x08", True),
        ("model", b"PK", False),
        ("model", b"", False),
        ("model", MAGIC, False),
        ("model.onnx", MAGIC, False),
        ("model.flexnn", b"\x08\x08", False),
    ],
)
def test_onnx_files_are_told_by_their_first_bytes(tmp_path: Path, name: str, first: bytes, expected: bool) -> None:
    path = tmp_path / name
    path.write_bytes(first)
    assert is_onnx(str(path)) == expected
    path.unlink()
    assert is_onnx(str(path)) == name.lower().endswith(".onnx")


def test_a_missing_file() -> None:
    with pytest.raises(OSError, match="No such file"):
        open_artifact("/nowhere/model.flexnn")


def nested(section: dict[str, Any], depth: int) -> None:
    """Put graphs into an attribute, each in a node of the one around it."""
    graph: dict[str, Any] = {"nodes": [], "constants": {}, "inputs": [], "outputs": []}
    for _ in range(depth):
        node = ["If", "", "n", [], [], {"then_branch": {"graph": graph}}]
        graph = {"nodes": [node], "constants": {}, "inputs": [], "outputs": []}
    section["model"]["graph"]["nodes"].append(["If", "", "n", [], [], {"then_branch": {"graph": graph}}])


def inlined(section: dict[str, Any]) -> list[Any]:
    """Return the row of a constant whose value is in the section."""
    row: list[Any] = next(row for row in section["model"]["constants"] if isinstance(row[3], str))
    return row


def stored(section: dict[str, Any]) -> list[Any]:
    """Return the row of a constant whose value is in a weight."""
    row: list[Any] = next(row for row in section["model"]["constants"] if isinstance(row[3], int))
    return row


def attributes(section: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a node that has some."""
    found: dict[str, Any] = next(node[5] for node in section["model"]["graph"]["nodes"] if node[5])
    return found


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "parts": (lambda s: s.pop("keys"), "must have the parts"),
    "keys": (lambda s: s["keys"].extend(f"key{i}" for i in range(99)), "more keys than weights"),
    "templates out of range": (lambda s: s.__setitem__("templates", 99), "out of range"),
    "templates that are panels": (
        lambda s: s.__setitem__("templates", [w[1] for w in s["weights"]].index("panels")),
        "the templates are no raw weight",
    ),
    "templates too large": (
        lambda s: (
            s.__setitem__("templates", len(s["weights"])),
            s["weights"].append(["t", "raw", model_section.TEMPLATES_BYTES_MAX + 1, 1 << 16, 1 << 12, 0]),
        ),
        "the templates are no raw weight, or too large",
    ),
    "model": (lambda s: s.__setitem__("model", []), "the model must have the parts"),
    "part of the model": (lambda s: s["model"].pop("opset"), "the model must have the parts"),
    "constants": (lambda s: s["model"].__setitem__("constants", {}), "constants are not a list"),
    "form": (lambda s: inlined(s).__setitem__(4, "q99"), "unknown form"),
    "form of another type": (lambda s: inlined(s).__setitem__(4, 5), "unknown form"),
    "dtype": (lambda s: inlined(s).__setitem__(1, "c64"), "unknown dtype"),
    "dtype of another type": (lambda s: inlined(s).__setitem__(1, 5), "unknown dtype"),
    "too large": (lambda s: inlined(s).__setitem__(2, [2**31 - 1] * 4), "is too large"),
    "base64": (lambda s: inlined(s).__setitem__(3, "*"), "is not base64"),
    "not ASCII": (lambda s: inlined(s).__setitem__(3, "\u00e9"), "is not base64"),
    "bytes": (lambda s: inlined(s).__setitem__(3, "AAAA"), "3 bytes instead of"),
    "size of a stored value": (lambda s: stored(s).__setitem__(2, [7]), "does not hold the numbers"),
    "graph": (lambda s: s["model"].__setitem__("graph", []), "a graph must have the parts"),
    "part of the graph": (lambda s: s["model"]["graph"].pop("nodes"), "a graph must have the parts"),
    "nodes": (lambda s: s["model"]["graph"].__setitem__("nodes", {}), "constants or nodes are malformed"),
    "constants of a graph": (lambda s: s["model"]["graph"].__setitem__("constants", []), "malformed"),
    "nesting": (lambda s: nested(s, NESTING_MAX), "nested too deeply"),
    "inputs": (lambda s: s["model"]["graph"].__setitem__("inputs", 3), "not a list"),
    "port without a type": (lambda s: s["model"]["graph"]["inputs"][0].__setitem__(1, None), "no known dtype"),
    "port of an unknown type": (lambda s: s["model"]["graph"]["inputs"][0].__setitem__(1, "c64"), "no known dtype"),
    "port whose type is a number": (lambda s: s["model"]["graph"]["inputs"][0].__setitem__(1, 1), "no known dtype"),
    "dimensions": (lambda s: s["model"]["graph"]["inputs"][0].__setitem__(2, [1] * 99), "too many dimensions"),
    "node": (lambda s: s["model"]["graph"]["nodes"][0].__setitem__(5, []), "a node is malformed"),
    "attribute": (lambda s: attributes(s).__setitem__("a", {}), "an attribute is malformed"),
    "mixed attribute": (lambda s: attributes(s).__setitem__("a", [1, "b"]), "attribute"),
    "attribute out of range": (lambda s: attributes(s).__setitem__("a", 1 << 63), "out of range"),
    "attribute of no type": (lambda s: attributes(s).__setitem__("a", [[]]), "neither number nor text"),
    "attribute's constant": (lambda s: attributes(s).__setitem__("a", {"constant": 999}), "out of range"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_models_are_refused_with_the_reason(copy: Path, name: str) -> None:
    change, message = FORGERIES[name]
    section = json.loads(section_of(copy))
    change(section)
    forge(copy, json.dumps(section).encode())
    with pytest.raises(ArtifactError, match=message):
        open_artifact(str(copy))


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (_core.SPILL_FROM, "lies outside the data section"),
        (_core.SPILL_FROM + PAGE, "out of range"),
        (2 * _core.SPILL_FROM, "out of range"),
    ],
)
def test_no_weight_lies_where_the_spill_file_begins(artifact: Path, offset: int, message: str) -> None:
    """The engine reads offsets from there on from the spill file."""
    section = json.loads(section_of(artifact))
    for weight in section["weights"]:
        weight[4] = offset
    forge(artifact, json.dumps(section).encode())
    with pytest.raises(ArtifactError, match=message):
        open_artifact(str(artifact))


def test_no_file_reaches_where_the_spill_file_begins(artifact: Path) -> None:
    """No file system here has one: its header is forged."""
    raw, size = artifact.read_bytes(), _core.SPILL_FROM + PAGE
    offset = dict(zip(LAYOUT, _FIELDS.unpack_from(raw), strict=True))["data_offset"]
    rewritten(artifact, file_bytes=size, data_bytes=size - offset)
    with pytest.raises(ArtifactError, match="cut or extended"):
        Header.unpack(artifact.read_bytes(), size)
    rewritten(artifact, file_bytes=_core.SPILL_FROM, data_bytes=_core.SPILL_FROM - offset)
    assert Header.unpack(artifact.read_bytes(), _core.SPILL_FROM).file_bytes == _core.SPILL_FROM


@pytest.mark.parametrize("limit", ["TENSORS_MAX", "LIST_MAX"])
def test_a_graph_has_no_more_than_the_limit(copy: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_section, limit, 1)
    with pytest.raises(ArtifactError, match=r"too many|too long"):
        open_artifact(str(copy))
    section = json.loads(section_of(copy))
    section["model"]["constants"] = []
    forge(copy, json.dumps(section).encode())
    with pytest.raises(ArtifactError, match=r"too many|too long|out of range"):
        open_artifact(str(copy))


def test_graphs_nested_as_deeply_as_allowed(copy: Path) -> None:
    section = json.loads(section_of(copy))
    nested(section, NESTING_MAX - 1)
    attributes(section)["a"] = {"constant": 0}
    read = model_section.load_stored(json.dumps(section).encode())
    assert len(list(read.model.graph.walk())) >= NESTING_MAX
    again = json.loads(model_section.dump_stored(read))
    assert again["model"]["graph"] == section["model"]["graph"]


def test_two_weights_of_one_key_are_refused(copy: Path) -> None:
    """Was an IndexError in a run: the weight after the last key, which says what the model is, was one of theirs."""
    section = json.loads(section_of(copy))
    section["keys"] = [section["keys"][0]] * len(section["weights"])
    forge(copy, json.dumps(section).encode())
    with pytest.raises(ArtifactError, match="same key"):
        open_artifact(str(copy))


def test_a_model_is_written_as_it_was_read() -> None:
    with open_artifact(str(MODEL)) as read:
        contents = read.contents
        constants = list(contents.constants)
        for source in map(model_section.source_of, constants):
            source.used = not isinstance(source.base, model_section.AbsentSource)
        assert model_section.constants_of(contents.model) == constants
        section = json.loads(section_of(MODEL))
        assert section["weights"].pop()[0] == ABOUT  # which the writer adds, and the artifact reads
        assert model_section.dump_stored(contents) == json.dumps(section, separators=(",", ":")).encode()
        contents.left = "what numpy computes"  # of layers that the compiler left
        assert model_section.load_stored(model_section.dump_stored(contents)).left == contents.left
        contents.model.precision = "f16"
        assert model_section.load_stored(model_section.dump_stored(contents)).model.precision == "f16"


@pytest.mark.parametrize("precision", ["bf16", [], 1])
def test_an_unknown_precision_is_refused(copy: Path, precision: object) -> None:
    section = json.loads(section_of(copy))
    forge(copy, json.dumps(section | {"precision": precision}).encode())
    with pytest.raises(ArtifactError, match="unknown precision"):
        open_artifact(str(copy))


def test_ports_of_unknown_dimensions(copy: Path) -> None:
    section = json.loads(section_of(copy))
    section["model"]["graph"]["inputs"][0][2] = None
    section["model"]["graph"]["inputs"][1][2] = [None, "n", 5]
    forge(copy, json.dumps(section).encode())
    with open_artifact(str(copy)) as read:
        assert [port.dims for port in read.contents.model.graph.inputs] == [None, (None, "n", 5)]


def test_constants_that_nothing_read(copy: Path) -> None:
    section = json.loads(section_of(copy))
    row = inlined(section)
    row[3] = None
    forge(copy, json.dumps(section).encode())
    with open_artifact(str(copy)) as read:
        constant = next(c for c in read.contents.constants if c.name == row[0])
        assert model_section.source_of(constant).base.key == f"absent:{row[0]}"
        with pytest.raises(AbsentError, match="lacks the numbers"):
            constant.source.load()


def test_stored_constants_are_checked_when_they_are_read(copy: Path) -> None:
    with open_artifact(str(copy)) as read:
        index, place = next(iter(read.contents.values.items()))
        base = model_section.source_of(read.contents.constants[index]).base
        weight = read.contents.weights[place]
        assert base.key == f"stored:{weight.offset}"
        good = base.load()
        with copy.open("r+b") as file:
            file.seek(weight.offset + weight.nbytes - 1)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([last ^ 1]))
        with pytest.raises(ArtifactError, match="fails its checksum"):
            base.load()
        with copy.open("r+b") as file:
            file.seek(weight.offset + weight.nbytes - 1)
            file.write(bytes([last]))
        assert base.load().tobytes() == good.tobytes()


def test_open_shapes_are_no_graph(artifact: Path) -> None:
    with open_artifact(str(MODEL)) as read, pytest.raises(ArtifactError, match="open shapes"):
        read.graph  # noqa: B018
    with open_artifact(str(artifact)) as read:
        assert len(read.graph.nodes) == 2
        assert not read.about().producer_name  # it says nothing


def test_texts_of_a_size_that_no_compiler_writes(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_artifact(str(artifact)) as read:
        weight = Weight("about", "raw", 1 << 30, 1 << 20, offset=4096)
        monkeypatch.setattr(read, "_about", weight)
        with pytest.raises(ArtifactError, match="has 1073741824 bytes"):
            read.about()


def test_a_file_system_without_direct_reads(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_artifact(str(artifact)) as read:
        again = read.open_direct()
        assert again is None or os.fstat(again.fd).st_ino == os.fstat(read.fd).st_ino
        monkeypatch.setattr(os, "O_DIRECT", os.O_DIRECTORY)  # refused for a file
        assert read.open_direct() is None


def test_a_weight_that_is_shorter_than_it_says_is_not_written(tmp_path: Path) -> None:
    graph = small_graph()
    source = graph.weights[1].source
    assert isinstance(source, ArraySource)
    graph.weights[1].source = ArraySource(source.load()[:10])
    with pytest.raises(ArtifactError, match="has 40 bytes instead of 80"):
        write_artifact(graph, str(tmp_path / "short.flexnn"), SHA)
    graph.weights[1].source = None
    with pytest.raises(ArtifactError, match="has 0 bytes instead of 80"):
        write_artifact(graph, str(tmp_path / "short.flexnn"), SHA)
    assert not list(tmp_path.iterdir())


def test_the_header_is_read_again(artifact: Path) -> None:
    raw = artifact.read_bytes()
    header = Header.unpack(raw[:HEADER_BYTES], len(raw))
    assert header.pack() == raw[:HEADER_BYTES]
