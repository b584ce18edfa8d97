"""Forgetting what no run can come back to: else a session would count it for ever, and its pool refuse runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import flexnn
from flexnn.run import ahead
from flexnn.run.open_shapes import VARIANTS_MAX
from tests.support.regions import F32, I64, check_run, graph_of, model_of, opened, value
from tests.support.sessions import feed, lost_segments, write_branched_model


def test_stretches_before_one_with_too_many_numbers(tmp_path: Path) -> None:
    """A value's numbers decide a shape. After VARIANTS_MAX of them the node is numpy's, and all is recorded again."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["count"], to=I64),
        helper.make_node("Unsqueeze", ["count", "axis"], ["shape"]),
        helper.make_node("Expand", ["one", "shape"], ["many"]),
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Mul", ["c", "many"], ["y"]),
    ]
    ones = {name: np.ones((1, 1, 1, width), np.float32) for name, width in (("one", 1), ("w", 4))}
    shapes = value("x", F32, [1, 1, "rows", 4]), value("y", F32, [1, 1, "rows", "columns"])
    model = model_of(graph_of(nodes, shapes[:1], shapes[1:], {"axis": np.array([0])} | ones))
    with opened(tmp_path, model) as session:
        for count in range(1, VARIANTS_MAX + 4):
            check_run(session, model, {"x": np.full((1, 1, 5, 4), count + 0.5, np.float32)})
            assert not lost_segments(session)
        assert session.statistics()["hosted_operators"] == {"Expand": 1}


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_a_look_ahead_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """A refused run looks ahead for its smallest budget. If that fails, what it looked at is gone, too."""
    path = flexnn.compile(write_branched_model(tmp_path / "m.onnx", batch="n"))

    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(ahead, "alone_bytes", fail)
    with flexnn.Session(path, memory=1 << 20, threads=1, profile="analytic") as session:
        with pytest.raises((flexnn.SessionError, KeyboardInterrupt)):
            session.run(None, feed())
        assert not lost_segments(session)
