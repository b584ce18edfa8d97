"""Constants as large as a map beside streamed weights: position embeddings that a convolution adds to its result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.artifact import open_artifact
from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.session import open_for_tests

LAYERS = 5
CONSTANT = 4 * 256 * 256 * 4
"""Bytes of an LSTM's weights of its state, one constant."""


def _write(path: Path, seed: int) -> tuple[int, ...]:
    """Convolutions, of which every other one adds a constant; the input's shape."""
    rng = np.random.default_rng(seed)
    side, channels = int(rng.integers(8, 30)), int(rng.integers(16, 80))
    shape = (1, channels, side, side)
    nodes, weights, name = [], [], "x"
    for i in range(LAYERS):
        kernel = int(rng.choice([1, 3]))
        values = rng.standard_normal((channels, channels, kernel, kernel)) / (channels * kernel * kernel) ** 0.5
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], [f"c{i}"], pads=[kernel // 2] * 4))
        name = f"c{i}"
        if i % 2 == 0:
            weights.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), f"p{i}"))
            nodes.append(helper.make_node("Add", [name, f"p{i}"], [f"a{i}"]))
            name = f"a{i}"
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", shape), (name, None)))
    graph = helper.make_graph(nodes, "constants", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return shape


@pytest.mark.parametrize("seed", range(10))
def test_every_budget(seed: int, tmp_path: Path) -> None:
    """A slice of the weights had been placed where the constant of its step was to lie: no plan at all."""
    shape = _write(tmp_path / "m.onnx", seed)
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        whole, least = session.run(None, {"x": x})[0], session.plan.minimum_memory
        for factor in (1, 1.02, 1.1, 1.3, 1.8):
            session.memory = int(factor * least)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, rtol=1e-3, atol=1e-4)


def _recurrent(path: Path) -> np.ndarray:
    """Write an LSTM before a product of 8 MiB; return its input."""
    rng, hidden, columns = np.random.default_rng(0), 256, 8192
    shapes = {"w": (1, 4 * hidden, 64), "r": (1, 4 * hidden, hidden), "m": (hidden, columns)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["h"], hidden_size=hidden),
        helper.make_node("MatMul", ["h", "m"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", (8, 1, 64)), ("y", None)))
    graph = helper.make_graph(nodes, "recurrent", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return rng.standard_normal((8, 1, 64)).astype(np.float32)


def test_what_is_pinned_needs_no_room_to_be_streamed(tmp_path: Path) -> None:
    """The working part had room for every constant, whatever was pinned: slices had all of it, and pins the rest."""
    x = _recurrent(tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    machine = MachineProfile(1e11, 1e10, 1e10, 1e-6, compute_speed=0.5, load_speed=0.5)
    with open_artifact(artifact) as opened:
        planner = Planner(opened.graph, Setting(machine, threads=2))
        assert CONSTANT in {weight.nbytes for weight in opened.graph.weights}
        plan = planner.plan(planner.minimum + CONSTANT)
    plan.check()
    assert plan.working_bytes < CONSTANT <= plan.pinned_bytes
    assert plan.predicted_ms < 1.1 * plan.bound_ms
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        whole, least = session.run(None, {"x": x})[0], session.plan.minimum_memory
        for factor in (1, 1.2, 1.5, 2):
            session.memory = int(factor * least)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, rtol=1e-3, atol=1e-4)
