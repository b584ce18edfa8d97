"""The fastest of a graph's forms: the tightest one itself, and those near it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import flexnn
from bench.models.net import Net
from bench.models.transformers import Size, vit
from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.planning.planner import ALIKE
from tests.support.plan_graphs import CLASSICS
from tests.support.plans import FAST_DISK, checked

SETTING = Setting(FAST_DISK, threads=2)


def _vit(folder: Path, layers: int, width: int, side: int) -> Graph:
    net = Net("vit", 17)
    vit(net, Size(layers, width, width // 64, 4 * width, 10, side, batch=1))
    net.write(folder / "vit.onnx")
    path = flexnn.compile(folder / "vit.onnx", folder / "vit.flexnn")
    with open_artifact(str(path)) as opened:
        return opened.graph


def test_the_smallest_budget_is_that_of_the_tightest_form(tmp_path: Path) -> None:
    """Sizes told of a form whose layers are read more often that it needs less; its steps took more than that."""
    graph = _vit(tmp_path, 2, 768, 224)
    planner = Planner(graph, SETTING)
    tight, other = planner._forms[:2]
    assert planner._told(tight) < planner._told(other) <= ALIKE * planner._told(tight)
    assert planner._minimum_of(other) < planner._minimum_of(tight)
    assert planner.minimum == planner._minimum_of(other)
    assert checked(graph, planner.minimum).session_bytes == planner.minimum


def test_more_memory_is_no_slower_where_a_form_fits_for_the_first_time(tmp_path: Path) -> None:
    """The form fits, but has no room to load ahead; the next one, which repeats more, has some."""
    planner = Planner(_vit(tmp_path, 4, 384, 320), SETTING)
    least = planner.minimum
    times = [planner.plan(least * percent // 100).predicted_ms for percent in range(112, 122)]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(times)), times
    assert min(times) < max(times)
    with pytest.raises(flexnn.BudgetError):
        planner.plan(least - 1)


def test_more_memory_is_no_slower_where_milder_forms_and_higher_rungs_come_in() -> None:
    """A form that repeats less took the place of the fastest; drafts of the rung that had been the highest were not
    changed any more.
    """
    planner = Planner(CLASSICS["squeezenet1_1"](), Setting(MachineProfile(2e11, 2e10), threads=2))
    budgets = [int(planner.minimum * (1 + 0.02 * step)) for step in (15, 16, 45, 46)]
    times = [planner.plan(memory).predicted_ms for memory in budgets]
    assert all(after <= before * 1.0005 for before, after in pairwise(times)), times
    assert times[-1] < times[0]
