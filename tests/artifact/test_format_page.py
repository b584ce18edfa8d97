"""docs/format.md says what the code reads and writes: each field by name and in order, the header's with its place."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from flexnn.artifact import format as fmt
from flexnn.artifact import model_section, section
from flexnn.graph.ir import DTYPES
from flexnn.graph.panels import NR
from flexnn.graph.tables import PANEL_BYTES_MIN

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "format.md").read_text()


def part(title: str) -> str:
    """The text under a heading, up to the next of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.S | re.M)
    assert found, f"docs/format.md has no part {title!r}"
    return found[1]


def tables(title: str) -> list[list[list[str]]]:
    """The tables under a heading: rows of cells, without their heads."""
    blocks = re.findall(r"(?:^\|.*\n)+", part(title), re.M)
    return [[[cell.strip() for cell in line.strip("|").split(" | ")] for line in b.splitlines()[2:]] for b in blocks]


def names(rows: list[list[str]]) -> list[str]:
    return [row[0].strip("` ") for row in rows]


def fields_of(rows: list[list[str]], name: str) -> tuple[str, ...]:
    """The fields that a table says its rows have: those between "rows:" and the full stop."""
    (meaning,) = (row[2] for row in rows if row[0].strip("` ") == name)
    listed = re.match(r"rows: (.*?)\.(?: |$)", meaning)
    assert listed, meaning
    return tuple(re.findall(r"`(\w+)`", listed[1]))


def test_header() -> None:
    types = {"8s": "8 bytes", "32s": "32 bytes", "I": "u32", "Q": "u64"}
    wanted, at = [], 0
    for name, code in {**fmt.LAYOUT, "header_crc": "I"}.items():
        wanted.append([f"`{name}`", str(at), types[code]])
        at += struct.calcsize(f"<{code}")
    (rows,) = tables("Header")
    assert [row[:3] for row in rows] == wanted
    meaning = {row[0].strip("`"): row[3] for row in rows}
    assert at == fmt.HEADER_BYTES == int(meaning["header_bytes"]) == int(meaning["graph_offset"])
    assert meaning["magic"].startswith("`" + fmt.MAGIC.hex(" ").upper() + "`")
    assert int(meaning["version"]) == fmt.VERSION
    assert meaning["kind"] == f"{fmt.GRAPH}: the section holds a graph; {fmt.MODEL}: a model"
    assert meaning["panel_width"] == f"output channels of a panel: {NR}"
    assert f"at most {fmt.GRAPH_BYTES_MAX >> 20} MiB" in meaning["graph_bytes"]
    assert "2²⁴" in meaning["crc_count"]
    assert fmt.CHUNKS_MAX == 1 << 24
    assert f"rounded up to {fmt.PAGE}" in meaning["data_offset"]
    assert f"header, {fmt.HEADER_BYTES} bytes" in PAGE


def test_graph_section() -> None:
    (parts,) = tables("Graph section")
    assert sorted(names(parts)) == sorted(section.TABLES)
    for table, fields in section.ROWS.items():
        (rows,) = tables(table.capitalize())
        assert tuple(names(rows)) == fields, table
    (tensor,) = tables("Tensors")
    assert re.findall(r"`(\w+)`", tensor[1][2]) == list(DTYPES)
    (weight,) = tables("Weights")
    assert f"from {PANEL_BYTES_MIN} to 2²⁰" in weight[3][2]


def test_model_section() -> None:
    parts, model, graph = tables("Model section")
    own = model_section.STATE, model_section.LEFT, model_section.PRECISION
    assert tuple(names(parts)) == (*model_section.PARTS, *own)
    assert tuple(names(model)) == model_section.MODEL_PARTS
    assert tuple(names(graph)) == model_section.GRAPH_PARTS
    assert fields_of(model, "constants") == model_section.ROWS["constants"]
    assert fields_of(graph, "nodes") == model_section.ROWS["nodes"]
    assert fields_of(graph, "inputs") == model_section.ROWS["inputs"]
    assert f"at most {model_section.NESTING_MAX} deep" in " ".join(part("Model section").split())


def test_compatibility() -> None:
    (rows,) = tables("Compatibility")
    assert names(rows)[-1] == str(fmt.VERSION)
    assert f"this FlexNN reads version {fmt.VERSION}: {fmt.again('out/old.flexnn')}" in part("Compatibility")
    assert f"version\n{fmt.VERSION} of the format" in PAGE
