"""bench.peers.compare: who counts as the best peer, and peers in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bench.peers.compare import best_peer
from bench.peers.converted import worst_error
from bench.peers.layers import Layer
from bench.peers.turns import Worker

ROOT = Path(__file__).resolve().parents[2]


def test_a_peer_that_is_wrong_is_not_the_best() -> None:
    row = {"a": {"p50_ms": 3.0, "error": 0.0}, "b": {"p50_ms": 2.0, "error": 1e-3}, "c": {"p50_ms": 1.0, "error": 0.04}}
    assert best_peer(row, ["a", "b", "c"]) == "b"
    assert best_peer(row, ["c"]) is None


def test_error_is_relative_and_ones_do_not_count() -> None:
    right = np.array([[4.0, -8.0]], np.float32)
    assert worst_error([np.array([4.0, -7.0], np.float32)], [right]) == pytest.approx(1 / 8)


def test_a_worker_computes_and_times(tmp_path: Path) -> None:
    layer = Layer("Gemm", 2, 16, 8)
    x = np.random.default_rng(1).standard_normal(layer.shape, np.float32)
    np.savez(tmp_path / "feed.npz", x=x)
    with Worker(Path(sys.executable), "onnxruntime", layer.make(), {}, 1, None, tmp_path / "feed.npz") as worker:
        w, b = layer.weights()
        assert worst_error(worker.outputs(), [x @ w.T + b]) < 1e-5
        times = worker.block(0.01)
    assert len(times) >= 3
    assert min(times) > 0


def test_a_worker_that_cannot_open_says_why(tmp_path: Path) -> None:
    np.savez(tmp_path / "feed.npz", x=np.zeros(1, np.float32))
    with pytest.raises(RuntimeError, match=r"onnxruntime fails: .*nothing\.onnx"):
        Worker(Path(sys.executable), "onnxruntime", tmp_path / "nothing.onnx", {}, 1, None, tmp_path / "feed.npz")
