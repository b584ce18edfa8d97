"""Weights that many nodes read, phase by phase: their slices are read once, into memory that another phase has, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.artifact import open_artifact
from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.planning.decisions import read
from flexnn.session import open_for_tests

MACHINE = MachineProfile(1e11, 1e10, 5e9, 1e-5, compute_speed=0.5, load_speed=0.6)
WIDTH = 512
WEIGHT = 4 * WIDTH * WIDTH


def _write(path: Path, order: str, rows: int = 4) -> np.ndarray:
    """Write layers whose weights are named by letters, each as often as its letter comes; return an input."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32), name)
        for name in sorted(set(order))
    ]
    nodes, at = [], "x"
    for i, name in enumerate(order):
        nodes.append(helper.make_node("MatMul", [at, name], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"t{i}"]))
        at = f"t{i}"
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", (rows, WIDTH)), (at, None)))
    graph = helper.make_graph(nodes, "phases", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return rng.standard_normal((rows, WIDTH)).astype(np.float32)


def test_two_phases_have_the_same_memory_one_after_the_other(tmp_path: Path) -> None:
    """Each of the weights was read for each of its nodes, but for what was pinned: 12.5 MB a run, not 3.2."""
    _write(tmp_path / "m.onnx", "a" * 10 + "b" * 10 + "c")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    with open_artifact(artifact) as opened:
        planner = Planner(opened.graph, Setting(MACHINE, threads=2))
        memory = planner.minimum + WEIGHT * 6 // 5
        plan = planner.plan(memory)
        assert plan.session_bytes <= memory
        plan.check()
        assert plan.bytes_read_per_run < 3.5 * WEIGHT
        assert plan.bound_ms <= plan.predicted_ms
        assert plan.decisions is not None
        again = planner.follow(read(json.loads(json.dumps(plan.decisions.described()))), memory)
    assert again is not None
    for name in ("nodes", "steps", "loads", "pinned"):
        assert getattr(again.program, name).tobytes() == getattr(plan.program, name).tobytes()
    assert again.working_bytes == plan.working_bytes


@pytest.mark.parametrize(
    ("order", "threads"), [("aaaaaabbbbbbcccccc", 2), ("abababcccc", 1), ("caaaaacbbbbb", 2), ("abcabcabcabc", 2)]
)
def test_every_budget(order: str, threads: int, tmp_path: Path) -> None:
    x = _write(tmp_path / "m.onnx", order)
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    options = {"threads": threads, "profile": "analytic", "poison": True}
    with open_for_tests(artifact, jitter_seed=1 + threads, **options) as session:  # type: ignore[arg-type]
        whole, least = session.run(None, {"x": x})[0], session.plan.minimum_memory
        for extra in (WEIGHT // 4, WEIGHT // 2, WEIGHT * 5 // 4):
            session.memory = least + extra
            session.plan.check()
            assert session.plan.bound_ms <= session.plan.predicted_ms * (1 + 1e-9)
            for _ in range(2):
                np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, rtol=1e-4, atol=1e-5)


def test_open_shapes(tmp_path: Path) -> None:
    """Plans of other sizes are taken over from a plan with phases."""
    _write(tmp_path / "fixed.onnx", "a" * 8 + "b" * 8)
    model = onnx.load(tmp_path / "fixed.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    rng, inputs = np.random.default_rng(1), {}
    for rows in (4, 3, 7, 4, 9, 2):
        inputs[rows] = rng.standard_normal((rows, WIDTH)).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic") as session:
        whole = {rows: session.run(None, {"x": x})[0] for rows, x in inputs.items()}
        least = session.plan.minimum_memory
    for extra in (WEIGHT // 2, WEIGHT * 6 // 5):
        with open_for_tests(artifact, least + extra, threads=2, profile="analytic", poison=True) as session:
            for rows in (4, 3, 7, 4, 9, 2, 7, 4):
                got = session.run(None, {"x": inputs[rows]})[0]
                np.testing.assert_allclose(got, whole[rows], rtol=1e-4, atol=1e-5)
