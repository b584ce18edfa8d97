"""All that is open, and all values, fit into the budget at each stretch of a run of an open model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import flexnn
from bench.budgets.dynamic_graphs import random_graph
from flexnn.regions import Stretch
from flexnn.run.open_stretches import OpenStretches
from flexnn.run.recording import ReadyStretch


@pytest.mark.parametrize("seed", [4, 82])
def test_all_that_is_open_fits(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = random_graph(seed)
    onnx.save(model, tmp_path / "m.onnx")
    path = flexnn.compile(tmp_path / "m.onnx")
    with pytest.raises(flexnn.BudgetError) as refused, flexnn.Session(path, 1) as session:
        session.run(None, {"x": x})
    memory, beyond = refused.value.minimum, []
    ready = OpenStretches.ready

    def checked(self: OpenStretches, stretch: Stretch, live: dict[str, np.ndarray]) -> ReadyStretch:
        found = ready(self, stretch, live)
        beyond.append(sum(self._opened_bytes().values()) + found.values_bytes - memory)
        return found

    monkeypatch.setattr(OpenStretches, "ready", checked)
    with flexnn.Session(path, memory) as session:
        for _ in range(2):
            outputs = session.run(None, {"x": x})  # the caller holds those of the last run
    assert len(outputs) == len(model.graph.output)
    assert max(beyond) <= 0


def test_what_a_run_says_that_it_needs_is_enough(tmp_path: Path) -> None:
    """A stack of the second run takes all of the smallest budget: nothing that planning decided before is kept."""
    model, x = random_graph(2144)
    onnx.save(model, tmp_path / "m.onnx")
    path = flexnn.compile(tmp_path / "m.onnx")
    with flexnn.Session(path, 32 << 20, threads=1) as session:
        wanted = session.run(None, {"x": x})
        memory = session.plan.minimum_memory
    with flexnn.Session(path, memory, threads=1) as session:
        for _ in range(3):
            outputs = session.run(None, {"x": x})
        for got, array in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(got, array)
        assert session.plan.minimum_memory == memory
