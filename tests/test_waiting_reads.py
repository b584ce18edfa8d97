"""A thread that waits for a load which nobody reads yet: it reads at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.median import median, quantile

NODES, WIDTH = 24, 64
RUNS, ATTEMPTS = 300, 8
SLOW_S = 2e-6
"""Time of reading a load from the page cache, from which on the machine is too slow, or emulated, to tell."""
LOOKING_S = 3.5e-6
"""Time of waiting for a load, that is less than what looking whether a reader brings it takes, which was 5 µs."""


def _chain(path: Path) -> None:
    """Writes a model whose smallest budget reads each product's weights in several loads of some KiB."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(NODES):
        weights.append(numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8, f"w{i}"))
        nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"])]
        nodes += [helper.make_node("Tanh", [f"y{i}"], [f"x{i + 1}"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDTH]) for name in ("x0", f"x{NODES}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _reading_s(path: Path) -> float:
    """Return the time of one read of 4 KiB from the page cache."""
    buffer, taken = bytearray(4 << 10), []
    with path.open("rb") as file:
        for _ in range(200):
            started = time.perf_counter()
            os.preadv(file.fileno(), [buffer], 0)
            taken.append(time.perf_counter() - started)
    return median(taken)


def test_a_load_that_nobody_reads_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one CPU no reader runs while the caller looks for what it brings."""
    monkeypatch.setenv("FLEXNN_PROFILE", "analytic")
    path, artifact = tmp_path / "chain.onnx", tmp_path / "chain.flexnn"
    _chain(path)
    flexnn.compile(path, artifact)
    if _reading_s(artifact) > SLOW_S:
        pytest.skip("reading takes too long here")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        waited = [_waited_s(artifact) for _ in range(ATTEMPTS)]
    finally:
        os.sched_setaffinity(0, allowed)
    assert min(waited) < LOOKING_S


def _waited_s(artifact: Path) -> float:
    """Return what a load is waited for in three of four runs, at most: in some the system lets a reader go on first."""
    feed = {"x0": np.zeros((1, WIDTH), np.float32)}
    with flexnn.Session(artifact, flexnn.plan(artifact).minimum_memory, threads=1) as session:
        loads, stalls = len(session.plan.program.loads), []
        for _ in range(RUNS):
            session.run(None, feed)
            stalls.append(float(session.last_run["stall_ns"]))
    assert loads >= 2 * NODES
    return quantile(stalls, 0.75) / loads * 1e-9
