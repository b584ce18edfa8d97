"""Profiles of models whose shapes are open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.artifact import open_artifact
from flexnn.measure import cache, kept_machine

F32 = onnx.TensorProto.FLOAT


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Convolutions of open height and width; where they fire, a softmax, else a product with itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = [
        numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32) / 24, "w"),
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
    ]
    branch = helper.make_tensor_value_info("b", F32, None)
    bodies = {
        "then_branch": helper.make_graph([helper.make_node("Softmax", ["c"], ["b"], axis=1)], "then", [], [branch]),
        "else_branch": helper.make_graph([helper.make_node("Mul", ["c", "c"], ["b"])], "else", [], [branch]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y"], **bodies),
    ]
    x, y = (helper.make_tensor_value_info(name, F32, [1, 64, "h", "w"]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(flexnn.compile(path))


def run(session: flexnn.Session, side: int, sign: float) -> np.ndarray:
    return session.run(None, {"x": np.full((1, 64, side, side), sign, np.float32)})[0]


def test_each_operator_is_measured_once(artifact: str) -> None:
    """With the first program that has it; other shapes, budgets and sessions go by what was found."""
    told: list[str] = []
    with flexnn.Session(artifact, threads=2, profile="measure", progress=told.append) as session:
        quiet = run(session, 40, -1.0)
        first = len(told)
        assert first >= 1
        for side in (40, 48, 24):
            run(session, side, -1.0)
        session.memory = "64MiB"
        np.testing.assert_array_equal(run(session, 40, -1.0), quiet)
        assert len(told) == first
        fires = run(session, 40, 1.0)
        assert len(told) == first  # both branches were planned with the first run
        np.testing.assert_allclose(fires.sum(axis=1), 1.0, rtol=1e-5)
        assert run(session, 48, 1.0).shape == (1, 64, 48, 48)
    with open_artifact(artifact) as opened:
        machine = kept_machine(opened, 2, direct=False)
    assert machine
    assert machine.times
    assert {"softmax", "binary"} & set(machine.scales)
    before = len(told)
    with flexnn.Session(artifact, threads=2, profile="measure", progress=told.append) as session:
        np.testing.assert_array_equal(run(session, 40, -1.0), quiet)
        np.testing.assert_array_equal(run(session, 40, 1.0), fires)
    assert len(told) <= before + 2  # of weights too small to time the storage by


def test_measuring_keeps_to_the_budget(artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring takes no more memory than the plan; nothing else is open meanwhile."""
    with flexnn.Session(artifact, threads=2, profile="analytic") as session:
        run(session, 64, -1.0)
        minimum = session.plan.minimum_memory
    rooms: list[int] = []
    store = cache.store
    monkeypatch.setattr(cache, "store", lambda key, kept: (rooms.append(kept.arena_bytes), store(key, kept)))
    with flexnn.Session(artifact, minimum, threads=2, profile="measure") as session:
        run(session, 64, -1.0)
        assert session.session_bytes <= minimum
        assert rooms
        assert max(rooms) <= session.plan.arena_bytes
