"""Predicted times of steps and loads: they end when the planner says that the run ends."""

from __future__ import annotations

import numpy as np
import pytest

from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.planning.machine import load_seconds
from flexnn.report.contents import contents
from flexnn.report.timeline import _simulated, costs_of, step_seconds, timeline
from tests.support.plan_graphs import random_graph

MACHINES = [
    MachineProfile(5e10, 1e10, 4e8),
    MachineProfile(5e10, 1e10, 4e8, compute_speed=0.8, load_speed=0.6),
    MachineProfile(2e10, 1e10, 5e7, request_s=1e-3),
    MachineProfile(5e10, 1e10, 4e8, compute_speed=0.8, load_speed=0.6, latency_s=2e-4),
]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("factor", [1.0, 1.4, 2.5, None])
def test_the_simulation_is_the_planners(seed: int, factor: float | None) -> None:
    machine = MACHINES[seed % len(MACHINES)]
    planner = Planner(random_graph(seed), Setting(machine, 2))
    plan = planner.plan(None if factor is None else int(planner.minimum * factor))
    costs = costs_of(plan, machine)
    reads = load_seconds(machine, plan.loads["bytes"])
    found = _simulated(plan, machine, step_seconds(plan, costs).tolist(), reads.tolist())
    assert found.seconds * 1e3 == pytest.approx(plan.predicted_ms, rel=0.01)
    times = timeline(plan, machine, costs)
    assert times.seconds * 1e3 == pytest.approx(plan.predicted_ms)
    for spans in (times.steps, times.loads):  # one after the other
        assert (spans[:, 1] >= spans[:, 0]).all()
        assert (spans[1:, 0] >= spans[:-1, 1] - 1e-12).all()
    ready = np.concatenate(([-np.inf], times.loads[:, 1]))
    assert (times.steps[:, 0] >= ready[plan.steps["wait_loads"]] - 1e-12).all()  # no step before its loads


@pytest.mark.parametrize("seed", range(4))
def test_blocks_that_live_together_lie_apart(seed: int) -> None:
    """The map shows what the plan's check has proven."""
    machine = MACHINES[0]
    planner = Planner(random_graph(seed), Setting(machine, 1))
    plan = planner.plan(int(planner.minimum * 1.3))
    made = contents([("", plan)], machine)
    assert made.seconds * 1e3 == pytest.approx(plan.predicted_ms)
    assert made.arena_bytes == plan.arena_bytes
    places = made.blocks.places
    assert all(address >= 0 and address + size <= plan.arena_bytes for _, _, address, size in places)
    least = 1e-9 * made.seconds
    for i, (begin, end, address, size) in enumerate(places):
        for other_begin, other_end, other, other_size in places[:i]:
            together = min(end, other_end) - max(begin, other_begin) > least
            assert not together or other + other_size <= address or address + size <= other, made.blocks.names[i]
