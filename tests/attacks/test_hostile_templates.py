"""Attack: an artifact whose stored templates are hostile, under checksums that fit them.

Answer: GraphError, and no more memory than the budget and 1 MiB; all templates together cannot name more than a few
times the bytes that they have.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn._core import crc32c
from flexnn.artifact.format import HEADER_BYTES, PAGE, Header, page_up
from flexnn.artifact.model_section import TEMPLATES_BYTES_MAX
from tests.support.sessions import write_branched_model

BUDGET = 48 << 20
MOST = TEMPLATES_BYTES_MAX - 64
SCRIPT = """
import sys
import numpy as np
import flexnn, flexnn.run.open_shapes, flexnn.artifact.model_section, flexnn.regions.walk
import flexnn.regions.template_reader, flexnn.graph.passes
from flexnn.graph.lower import convolution, elementwise, indexing, linear, logic, pooling, reduction, resizing
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
feeds = [{"x": np.ones((n, 128, 8, 8), np.float32)} for n in (2, 3)]
before, said = peak(), "taken"
try:
    with flexnn.Session(sys.argv[1], int(sys.argv[2]), 2, profile="analytic") as session:
        for feed in feeds:
            session.run(None, feed)
except flexnn.FlexNNError as error:
    said = str(error)
print(said)
print(peak() - before)
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_branched_model(tmp_path_factory.mktemp("open") / "open.onnx", 3, batch="n")))


def parts(raw: bytes) -> tuple[Header, dict[str, Any], bytes]:
    """Return header, section and templates of an artifact."""
    header = Header.unpack(raw[:HEADER_BYTES], len(raw))
    section = json.loads(raw[HEADER_BYTES : HEADER_BYTES + header.graph_bytes])
    _, _, nbytes, _, offset, _ = section["weights"][section["templates"]]
    return header, section, raw[offset : offset + nbytes]


def with_templates(raw: bytes, templates: bytes) -> bytes:
    """Return an artifact with other templates, behind its other weights, and right checksums."""
    header, section, _ = parts(raw)
    crcs = list(struct.unpack_from(f"<{header.crc_count}I", raw, header.crc_offset))
    row = section["weights"][section["templates"]]
    row[2], row[4], row[5] = len(templates), len(raw), len(crcs)
    crcs += [crc32c(templates[at : at + row[3]]) for at in range(0, len(templates), row[3])]
    text, table = json.dumps(section, separators=(",", ":")).encode(), struct.pack(f"<{len(crcs)}I", *crcs)
    header.graph_bytes, header.crc_offset, header.crc_count = (
        len(text),
        -(-(HEADER_BYTES + len(text)) // 4) * 4,
        len(crcs),
    )
    assert page_up(header.crc_offset + len(table)) == header.data_offset
    data = raw[header.data_offset :] + templates.ljust(-(-len(templates) // PAGE) * PAGE, b"\0")
    header.data_bytes, header.file_bytes = len(data), header.data_offset + len(data)
    header.graph_crc, header.crcs_crc = crc32c(text), crc32c(table)
    head = header.pack() + text
    return (head.ljust(header.crc_offset, b"\0") + table).ljust(header.data_offset, b"\0") + data


def measured(path: Path, templates: bytes, raw: bytes, memory: int = BUDGET) -> tuple[str, int]:
    """Return what a session says, and the bytes that it takes."""
    path.write_bytes(with_templates(raw, templates))
    command = [sys.executable, "-P", "-c", SCRIPT, str(path), str(memory)]
    said, added = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return said, int(added)


def packed(head: bytes, arrays: bytes = b"") -> bytes:
    text = len(head).to_bytes(8, "little") + head
    return text.ljust(-(-len(text) // 8) * 8, b"\0") + arrays


def filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
    return begin + unit * ((MOST - len(begin) - len(end)) // len(unit)) + end


HEADS = {
    "lists": filled(b'{"arrays":[', b"[],", b'[]],"templates":[]}'),
    "tables": filled(b'{"arrays":[],"templates":[', b"{},", b"{}]}"),
    "texts": filled(b'{"arrays":[],"templates":[', b'"ab",', b'""]}'),
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_of_small_values(artifact: Path, tmp_path: Path, kind: str) -> None:
    """Took 110 MiB of 48."""
    said, added = measured(tmp_path / "hostile.flexnn", packed(HEADS[kind]), artifact.read_bytes())
    assert "JSON that would take" in said
    assert added <= BUDGET + (1 << 20)


def changed(change: Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]], raw: bytes) -> bytes:
    templates = parts(raw)[2]
    size = int.from_bytes(templates[:8], "little")
    arrays = templates[8 + -(-size // 8) * 8 :]
    head, arrays = change(json.loads(templates[8 : 8 + size]), arrays)
    return packed(json.dumps(head, separators=(",", ":")).encode(), arrays)


def with_body(body: bytes, times: int) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    """Give all templates one body, and list them many times."""

    def change(head: dict[str, Any], arrays: bytes) -> tuple[dict[str, Any], bytes]:
        arrays = arrays.ljust(-(-len(arrays) // 8) * 8, b"\0")
        head["arrays"].append(["|u1", [len(body)]])
        for row in head["templates"]:
            row["body"] = len(head["arrays"]) - 1
        head["templates"] *= times
        return head, arrays + body

    return change


def test_many_templates_of_one_body(artifact: Path, tmp_path: Path) -> None:
    """Each of them took a copy of it: 128 MiB."""
    raw = artifact.read_bytes()
    said, added = measured(tmp_path / "hostile.flexnn", changed(with_body(bytes(1 << 20), 128), raw), raw)
    assert "use arrays too often" in said
    assert added <= BUDGET + (1 << 20)


def test_a_body_of_small_values(artifact: Path, tmp_path: Path) -> None:
    raw = artifact.read_bytes()
    body = filled(b"[", b"[],", b"[]]")[: MOST // 2] + b"]"
    said, added = measured(tmp_path / "hostile.flexnn", changed(with_body(body, 1), raw), raw)
    assert "JSON that would take" in said
    assert added <= BUDGET + (1 << 20)


def test_what_is_whole_is_taken(artifact: Path, tmp_path: Path) -> None:
    raw = artifact.read_bytes()
    said, added = measured(tmp_path / "whole.flexnn", changed(lambda head, arrays: (head, arrays), raw), raw)
    assert said == "taken"
    assert added <= BUDGET


@pytest.mark.parametrize("part", ["head", "body"])
def test_what_a_budget_counts_for_reading(artifact: Path, tmp_path: Path, part: str) -> None:
    """A budget leaves room for reading templates by their bytes: small values took twelve times as much."""
    raw, lists = artifact.read_bytes(), [[]] * 50_000  # type: ignore[var-annotated]
    with flexnn.Session(artifact, BUDGET, 2, profile="analytic") as session:
        session.run(None, {"x": np.ones((3, 128, 8, 8), np.float32)})
        memory = session.plan.minimum_memory + (800 << 10)

    def with_lists(head: dict[str, Any], arrays: bytes) -> tuple[dict[str, Any], bytes]:
        if part == "head":
            return head | {"lists": lists}, arrays
        row = head["templates"][0]
        at = 0
        for dtype, shape in head["arrays"][: row["body"]]:
            at += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 8) * 8
        (size,) = head["arrays"][row["body"]][1]
        body = json.loads(arrays[at : at + size]) | {"lists": lists}
        return with_body(json.dumps(body, separators=(",", ":")).encode(), 1)(head, arrays)

    _, whole = measured(tmp_path / "whole.flexnn", parts(raw)[2], raw, memory)
    _, added = measured(tmp_path / "hostile.flexnn", changed(with_lists, raw), raw, memory)
    assert added <= whole + (1 << 20)
