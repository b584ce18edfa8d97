"""Explanations of a plan agree with its program."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from flexnn.graph.ir import Graph
from flexnn.planning import Plan, Planner, Setting, make_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.explain import Explanation, explain, smallest_of
from tests.support.plan_graphs import random_graph, vgg19
from tests.support.plans import FAST_DISK, PI, minimum_of


def _explained(graph: Graph, memory: int | None, io_align: int = 64) -> tuple[Plan, Explanation]:
    planner = Planner(graph, Setting(FAST_DISK, 2, io_align))
    plan = planner.plan(memory)
    return plan, explain(planner, plan, FAST_DISK)


@pytest.mark.parametrize("io_align", [64, 4096])
@pytest.mark.parametrize("seed", range(12))
def test_peak_is_what_the_program_holds(seed: int, io_align: int) -> None:
    """Counted again load by load and tensor by tensor; nothing is held twice, so it fits the arena."""
    graph = random_graph(seed)
    minimum = minimum_of(graph, io_align=io_align)
    for extra in (0, 40_000, 1_000_000):
        plan, told = _explained(graph, minimum + extra, io_align)
        costs = graph_costs(plan.graph, Setting(FAST_DISK, 2, io_align))
        steps, loads = plan.steps, plan.loads
        held = []
        for step, node in enumerate(steps["node"].tolist()):
            alive = sum(
                size
                for size, first, last in zip(costs.root_bytes, costs.first_node, costs.last_node, strict=True)
                if first <= node <= last
            )
            streamed = 0
            for load, wait in enumerate(loads["wait_steps"].tolist()):
                use = next(s for s in range(len(steps)) if steps["wait_loads"][s] > load)
                streamed += int(loads["bytes"][load]) * ((wait <= step <= use) + (wait + len(steps) <= step))
            held.append(alive + int(plan.program.nodes["workspace_bytes"][node]) * 2 + streamed)
        pinned = int(plan.program.pinned["bytes"].sum()) + costs.zeros_bytes
        assert told.peak.nbytes == max(held) + pinned <= plan.arena_bytes
        assert told.peak.step == int(np.argmax(held))
        assert told.peak.node == plan.graph.nodes[int(steps["node"][told.peak.step])].name


def test_the_smallest_budget_has_one_culprit() -> None:
    """Halving what VGG's first layers keep would bring it down to what the next node needs."""
    graph = vgg19()
    plan, told = _explained(graph, minimum_of(graph))
    assert told.floor.moment.workspace + told.floor.moment.weights < 0.1 * sum(told.floor.moment.activations.values())
    assert plan.arena_bytes - told.floor.moment.nbytes < 1 << 19
    assert plan.minimum_memory < 8 << 20
    assert told.floor.moment.nbytes < plan.minimum_memory
    assert told.floor.without <= plan.minimum_memory


def test_more_memory_is_offered_with_its_time() -> None:
    graph = vgg19()
    minimum = minimum_of(graph)
    plan, told = _explained(graph, minimum)
    assert told.offers[-1].predicted_ms == pytest.approx(make_plan(graph, Setting(FAST_DISK, threads=2)).predicted_ms)
    offered = [(plan.memory or 0, plan.predicted_ms), *((o.memory, o.predicted_ms) for o in told.offers)]
    assert len(offered) == 5
    assert all(a[0] < b[0] and a[1] >= b[1] for a, b in pairwise(offered))
    assert "ruled by reading" in told.summary(plan)
    assert "everything pinned" in told.summary(plan)
    assert set(told.describe()) == {
        "peak",
        "smallest",
        "smallest_nodes",
        "smallest_without",
        "compute_ms",
        "read_ms",
        "offers",
    }


def test_nothing_is_offered_where_everything_stays() -> None:
    plan, told = _explained(vgg19(), None)
    assert (told.offers, told.read_ms) == ([], 0.0)
    assert told.peak.weights == 0
    assert told.peak.pinned >= plan.pinned_bytes
    assert "ruled by computing" in told.summary(plan)


def test_gap_is_the_time_above_the_bound() -> None:
    graph = vgg19()
    plan = make_plan(graph, Setting(PI, threads=2), minimum_of(graph, machine=PI))
    assert plan.gap == pytest.approx(plan.predicted_ms / plan.bound_ms - 1)
    assert plan.describe()["gap"] == plan.gap


@pytest.mark.parametrize("seed", range(12))
def test_without_the_neediest_nodes_less_would_do(seed: int) -> None:
    """All nodes that need the most are counted, and what is left is what the next one needs."""
    tightest = Planner(random_graph(seed), Setting(FAST_DISK, 2, 64)).tightest
    tight = sorted(tightest.placement.tight_bytes, reverse=True)
    moment, count, beyond = smallest_of(tightest.graph, tightest.costs, tightest.placement)
    assert tight[:count] == [tight[0]] * count
    assert beyond == tight[0] - (tight[count] if count < len(tight) else 0) > 0
    names = [node.name for node in tightest.graph.nodes]
    assert tightest.placement.tight_bytes[names.index(moment.node)] == tight[0]
