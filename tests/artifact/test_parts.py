"""Sections are read row by row, like ``json.loads`` reads them, and equal rows have what they can in common."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import flexnn
from bench.planner.growth import write
from flexnn.artifact import open_artifact
from flexnn.artifact.parts import load_parts
from flexnn.artifact.section import dump_graph, load_graph
from flexnn.graph import operators
from flexnn.graph.ir import Graph, Node, Tensor

CASES = 3000


def _value(rng: random.Random, depth: int = 0) -> Any:
    plain = [None, True, False, 0, -7, 1 << 70, 1.5, 1e-300, "", 'a"\\]}', "é\n"]
    kind = rng.randrange(4) if depth < 4 else 2
    if kind == 0:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 1:
        return {f"k{rng.randrange(9)}": _value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice(plain)


def _read(how: Any, raw: bytes) -> Any:
    try:
        return repr(how(raw))
    except (ValueError, RecursionError):
        return ValueError


def test_values_are_those_of_json() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(CASES):
        spaces = rng.choice([None, 1])
        text = json.dumps(_value(rng), indent=spaces, ensure_ascii=bool(rng.randrange(2)))
        if rng.randrange(2):  # damaged
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(["", ",", "]", "}", "[", "{", '"', " ", "1", ":"]) + text[at + 1 :]
        raw = text.encode()
        assert _read(lambda given: load_parts(given, {}), raw) == _read(json.loads, raw), raw


@pytest.mark.parametrize("raw", [b"", b" ", b"[1", b'{"a":1', b'{"a"', b'{"a":', b'{"a":[1,', b"\xff", b'{"a":[1,]}'])
def test_what_is_cut_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"missing|cut|decode|Expecting"):
        load_parts(raw, {})


def test_rows_are_taken_one_by_one() -> None:
    """A row is taken before the next one is read: what comes after it may be no JSON."""
    taken = []
    with pytest.raises(ValueError, match="a value is missing"):
        load_parts(b'{"rows":[1,2,3,!', {"rows": lambda index, row: taken.append((index, row))})
    assert taken == [(0, 1), (1, 2), (2, 3)]


def _graph(*attrs: dict[str, Any]) -> Graph:
    tensors = [Tensor(f"t{i}", (2, 3)) for i in range(len(attrs) + 1)]
    nodes = [Node(f"n{i}", "relu", [i], [i + 1], given) for i, given in enumerate(attrs)]
    return Graph(tensors, nodes, [], [0], [len(attrs)])


def test_equal_rows_have_attributes_and_shapes_in_common() -> None:
    found = load_graph(dump_graph(_graph({"a": 1}, {"a": 1}, {"a": 1.0}, {"a": [1]}, {"a": [1]})))
    one, two, three, four, five = (node.attrs for node in found.nodes)
    assert one is two
    assert four is five
    assert [type(attrs["a"]) for attrs in (one, three)] == [int, float]
    assert len({id(tensor.shape) for tensor in found.tensors}) == 1


def test_equal_nodes_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    whole = operators.encode

    def encode(graph: Graph, node: Node) -> Any:
        encoded.append(node.name)
        return whole(graph, node)

    artifact = flexnn.compile(write("skips", 400, tmp_path / "m.onnx"), tmp_path / "m.flexnn")
    monkeypatch.setattr(operators, "encode", encode)
    with open_artifact(str(artifact)) as opened:
        assert len(opened.graph.nodes) >= 400
    assert len(encoded) < 10
