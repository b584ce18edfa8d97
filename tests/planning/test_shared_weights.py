"""A layer that a model repeats: its weights are once in the file and, pinned, once in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.session import open_for_tests

CHANNELS, TIMES = 64, 6
BYTES = CHANNELS * CHANNELS * 9 * 4
READ_BYTES = BYTES + CHANNELS * 4
"""Bytes that a run reads of a layer: panels have a bias for each channel."""


def write(path: Path, side: int | str, own: int = 0) -> Path:
    """The same convolution again and again, after ``own`` others."""
    rng = np.random.default_rng(0)
    names = [*(f"own{i}" for i in range(own)), "w"]
    weights = {name: rng.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / 40 for name in names}
    nodes = [
        helper.make_node("Conv", [f"t{i}" if i else "x", names[min(i, own)]], [f"t{i + 1}"], pads=[1, 1, 1, 1])
        for i in range(own + TIMES)
    ]
    shape = [1, CHANNELS, side, side]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", f"t{own + TIMES}")]
    held = [numpy_helper.from_array(weight, name) for name, weight in weights.items()]
    graph = helper.make_graph(nodes, "repeats", ports[:1], ports[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("side", [8, "n"])
def test_once_in_the_file_and_once_in_memory(tmp_path: Path, side: int | str) -> None:
    path = Path(flexnn.compile(write(tmp_path / "m.onnx", side), tmp_path / "m.flexnn"))
    assert BYTES < path.stat().st_size < 2 * BYTES
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, 8, 8)).astype(np.float32)
    with open_for_tests(path, threads=2, profile="analytic", poison=True) as session:
        whole = session.run(None, {"x": x})[0]
        plan = session.plan
        assert plan.bytes_read_per_run == 0
        assert plan.arena_bytes - plan.working_bytes < 2 * BYTES
        assert plan.kernels
    enough, least = plan.session_bytes, plan.minimum_memory
    for budget in (enough, (enough + least) // 2, least):
        with open_for_tests(path, memory=budget, threads=2, profile="analytic", poison=True) as session:
            np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, atol=1e-5)
            assert (session.plan.bytes_read_per_run == 0) == (budget > least)


@pytest.mark.parametrize("side", [8, "n"])
def test_pinned_before_others_and_once_for_all_uses(tmp_path: Path, side: int | str) -> None:
    """With room for less than two of five weights: the one that is used often stays, and takes memory once."""
    path = Path(flexnn.compile(write(tmp_path / "m.onnx", side, own=4), tmp_path / "m.flexnn"))
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, 8, 8)).astype(np.float32)
    with open_for_tests(path, threads=2, profile="analytic", poison=True) as session:
        whole = session.run(None, {"x": x})[0]
        least = session.plan.minimum_memory
    with open_for_tests(path, memory=least + 3 * BYTES, threads=2, profile="analytic", poison=True) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, atol=1e-5)
        plan = session.plan
        assert plan.bytes_read_per_run <= 4 * READ_BYTES
        assert plan.pinned_bytes >= BYTES
        assert plan.bound_ms <= plan.predicted_ms * (1 + 1e-9)
        assert session.session_bytes <= session.memory
