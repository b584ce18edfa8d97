"""Artifacts that keep state: what is refused, and that sessions find the capacity."""

from __future__ import annotations

from pathlib import Path

import pytest

import flexnn
from flexnn.artifact.kept_state import keep_state
from flexnn.errors import CompileError
from flexnn.graph.ir import Graph
from tests.support.decoders import write_grouped


@pytest.mark.parametrize("capacity", [0, -1, 1 << 40])
def test_capacities_out_of_range(capacity: int) -> None:
    with pytest.raises(ValueError, match="kv_capacity is"):
        keep_state(Graph(), capacity, "m.onnx")


def test_fixed_shapes_keep_no_state() -> None:
    with pytest.raises(CompileError, match=r"m\.onnx: its shapes are fixed"):
        keep_state(Graph(), 8, "m.onnx")


def test_sessions_find_the_capacity(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx"), tmp_path / "m.flexnn", kv_capacity=16)
    with flexnn.Session(artifact, profile="analytic") as session:
        assert session.state_capacity == 16
