"""bench.control_flow: its models are valid, and have the nodes and turns that the tables claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import flexnn
from bench.control_flow import overhead, shapes, turns
from bench.field.double import relative
from bench.field.peer import peer_session
from bench.models import growing, loops
from flexnn.planning import Planner


def _loops(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """Return the graph and those inside it."""
    inside = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return [graph, *(g for body in inside for g in _loops(body))]


@pytest.mark.parametrize("kind", loops.KINDS)
def test_loops_compute_what_onnxruntime_does(kind: str, tmp_path: Path) -> None:
    content = loops.looped(kind, 10)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    given = {"turns": np.array(20), "x": np.ones((1, loops.WIDTH), np.float32)}
    (tmp_path / "loop.onnx").write_bytes(content)
    with flexnn.Session(tmp_path / "loop.onnx", threads=1) as session:
        got = session.run(None, given)
    assert relative(got, peer_session(content, 1).run(None, given)) < 1e-5


@pytest.mark.parametrize("count", [1, 10, 200])
def test_bodies_have_as_many_nodes(count: int) -> None:
    for content in (loops.looped("loop", count), loops.body_alone(count)):
        body = _loops(onnx.load_from_string(content).graph)[-1]
        assert sum(node.op_type != "Identity" for node in body.node) == count


def test_the_decoder_has_the_nodes_that_its_row_says() -> None:
    model = onnx.load_from_string(loops.decoder())
    onnx.checker.check_model(model, full_check=True)
    assert sum(node.op_type != "Identity" for node in _loops(model.graph)[1].node) == turns.DECODER_NODES


def test_rows_of_turns(tmp_path: Path) -> None:
    row = turns.measure(tmp_path, "nested", 1, threads=1, turns=20, seconds=0.0)
    assert row["beyond_us"] == pytest.approx(row["turn_us"] - row["body_us"])
    assert row["beyond_core_us"] > row["beyond_us"]
    assert turns.measure_decoder(tmp_path, threads=1, turns=3, seconds=0.0)["turns"] == 3


@pytest.mark.parametrize("ports", [1, 4])
def test_a_row_of_overhead_counts_ports(ports: int, tmp_path: Path) -> None:
    (tmp_path / "wide.onnx").write_bytes(overhead.wide(ports))
    given = {f"x{i}": np.ones((2, loops.WIDTH), np.float32) for i in range(ports)}
    row = overhead.measure("wide", tmp_path / "wide.onnx", given, 1, 0.01)
    assert (row["ports"], row["segments"]) == (2 * ports, 1)
    assert row["limit_us"] == pytest.approx(3 + 0.6 * ports + 1)
    assert 0 < row["beyond_us"] < row["run_us"]


def test_plans_are_counted_while_they_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = growing.write_net(tmp_path / "net.onnx")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    before = Planner.plan
    with shapes.planned() as made, flexnn.Session(path, threads=1) as session:
        session.run(None, {"x": np.ones((1, 3, growing.WIDTH), np.float32)})
        before_again = len(made)  # opening and the first run plan
        session.run(None, {"x": np.ones((1, 3, growing.WIDTH), np.float32)})
    assert len(made) == before_again > 0
    assert Planner.plan is before
    monkeypatch.setattr(shapes, "SHAPES", 3)
    row = shapes.in_turn(Path(flexnn.compile(path)), None, 1)
    assert row["runs"] == 3 * shapes.ROUNDS


def test_a_cache_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "STEPS", 3)
    found = shapes.growing(growing.write_decoder(tmp_path / "decoder.onnx"), 1)
    assert set(found) == {"own", "onnxruntime"}
    assert all(set(figures) == {"empty_ms", "first_ms", "later_ms"} for figures in found.values())
