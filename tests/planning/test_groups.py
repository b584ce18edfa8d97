"""Groups of independent nodes: layers, the order they give, and plans that keep what runs together apart."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from flexnn.graph.ir import Graph
from flexnn.planning import BudgetError, PlanError, Planner, Setting, make_plan
from flexnn.planning.check import check_plan
from flexnn.planning.explain import explain
from flexnn.planning.grouping import WORTH, Grouping
from flexnn.planning.groups import group_sizes, layers
from tests.support.plan_graphs import CLASSICS, Builder, random_graph
from tests.support.plans import FAST_DISK, PI


def _branches(count: int) -> Graph:
    """A convolution, ``count`` more of its output side by side in one tensor, and one of that."""
    b = Builder()
    x = b.conv(b.input(1, 8, 8, 16), 16, 1)
    whole = b.tensor((1, 8, 8, 16 * count))
    for i in range(count):
        part = b.view(whole, (1, 8, 8, 16), 16 * i, (64 * 16 * count, 8 * 16 * count, 16 * count, 1))
        b.conv(x, 16, 3, out=part)
    b.graph.outputs.append(b.conv(whole, 16, 1))
    return b.graph


def test_branches_are_one_layer() -> None:
    graph = _branches(5)
    assert layers(graph) == [[0], [1, 2, 3, 4, 5], [6]]
    assert [group_sizes(list(map(len, layers(graph))), k) for k in (1, 2, 4, 5, 99)] == [
        [1, 5, 1], [1, 3, 2, 1], [1, 2, 2, 1, 1], [1] * 7, [1] * 7,
    ]  # fmt: skip


def test_overlapping_views_are_not_independent() -> None:
    graph = _branches(3)
    graph.tensors[graph.nodes[2].outputs[0]].offset -= 1
    assert layers(graph)[1:3] == [[1, 3], [2]]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("k", [1, 2])
def test_random_graphs_in_groups_are_legal(seed: int, k: int) -> None:
    graph = random_graph(seed)
    plan = make_plan(graph, Setting(FAST_DISK, threads=2), groups=k)
    check_plan(plan.graph, plan.program)
    assert plan.program.groups.sum() == len(plan.program.steps)
    assert not len(plan.program.loads)
    assert sorted(map(id, plan.graph.nodes)) == sorted(map(id, graph.nodes))


@pytest.mark.parametrize("name", CLASSICS)
def test_fewer_barriers_never_cost_less_memory(name: str) -> None:
    graph = CLASSICS[name]()
    plans = [make_plan(graph, Setting(FAST_DISK, threads=2), groups=k) for k in (1, 2, 99)]
    barriers = [len(plan.program.groups) for plan in plans]
    assert barriers == sorted(barriers)
    assert barriers[-1] == len(graph.nodes)
    live = [plan.activation_bytes for plan in plans]
    assert live == sorted(live, reverse=True)


def test_predicted_times_of_groups() -> None:
    graph = _branches(6)
    off = make_plan(graph, Setting(FAST_DISK, threads=2))
    grouping = Grouping(graph, Setting(FAST_DISK, threads=2))
    assert grouping.ks == [1, 2, 4]
    assert grouping.predicted_ms(6) == pytest.approx(off.predicted_ms)  # each node alone: as measured
    times = [grouping.predicted_ms(k) for k in (1, 2, 3, 6)]
    assert times == sorted(times)
    assert grouping.bound_ms <= times[0]
    saved = FAST_DISK.step_s * 1e3 * 5  # barriers, and what the threads wait for in units that do not divide by them
    assert times[0] <= off.predicted_ms - saved * (1 - 1e-9)
    plan = make_plan(graph, Setting(FAST_DISK, threads=2), groups=1)
    assert (plan.groups, plan.predicted_ms, plan.bound_ms) == (1, times[0], grouping.bound_ms)


def test_one_thread_gains_nothing() -> None:
    graph = _branches(6)
    off = make_plan(graph, Setting(FAST_DISK))
    assert Grouping(graph, Setting(FAST_DISK)).predicted_ms(1) == pytest.approx(off.predicted_ms)
    assert make_plan(graph, Setting(FAST_DISK), groups="auto").groups is None


def test_auto_takes_what_is_worth_it_and_fits() -> None:
    graph = _branches(6)
    dear = replace(FAST_DISK, step_s=1e-4)
    taken = make_plan(graph, Setting(dear, threads=2), groups="auto")
    assert taken.groups == 1
    assert set(taken.forecasts_ms) == {None, 1, 2, 4}
    assert taken.predicted_ms == min(taken.forecasts_ms.values()) < WORTH * taken.forecasts_ms[None]
    slow = replace(FAST_DISK, flops_per_second=1e3)  # barriers and idle threads are nothing beside the work
    even = make_plan(_branches(2), Setting(slow), groups="auto")
    assert even.groups is None
    assert even.forecasts_ms[1] == pytest.approx(even.predicted_ms)
    fits = make_plan(graph, Setting(dear, threads=2), taken.session_bytes, groups="auto")
    assert fits.groups == 1
    assert fits.session_bytes <= taken.session_bytes
    streamed = make_plan(graph, Setting(dear, threads=2), taken.minimum_memory, groups="auto")
    assert streamed.groups is None


def test_a_number_of_groups_is_refused_where_weights_would_be_streamed() -> None:
    graph = _branches(6)
    plan = make_plan(graph, Setting(FAST_DISK, threads=2), groups=2)
    assert plan.minimum_memory <= plan.session_bytes
    least = make_plan(graph, Setting(FAST_DISK, threads=2), plan.minimum_memory, groups=2)
    assert least.groups == 2
    assert least.session_bytes <= plan.minimum_memory == least.minimum_memory
    assert make_plan(graph, Setting(PI, threads=2), groups=2).minimum_memory == plan.minimum_memory
    with pytest.raises(BudgetError, match="all weights pinned") as caught:
        make_plan(graph, Setting(FAST_DISK, threads=2), plan.minimum_memory - 1, groups=2)
    assert caught.value.minimum == plan.minimum_memory
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.minimum, str(copy)) == (caught.value.minimum, str(caught.value))


def test_the_peak_of_groups_counts_all_of_a_group() -> None:
    graph = _branches(6)
    planner = Planner(graph, Setting(FAST_DISK, threads=2), groups=1)
    plan = planner.plan(None)
    told = explain(planner, plan, FAST_DISK)
    assert sum(told.peak.activations.values()) == plan.activation_bytes
    assert told.floor.minimum == planner.minimum < plan.minimum_memory


def test_the_checker_sees_what_a_group_would_overwrite() -> None:
    graph = _branches(4)
    plan = make_plan(graph, Setting(FAST_DISK, threads=2))
    check_plan(graph, plan.program)
    grouped = make_plan(graph, Setting(FAST_DISK, threads=2), groups=1)
    check_plan(grouped.graph, grouped.program)
    grouped.program.groups[:2] = 2, 3  # the first convolution and those that read it
    with pytest.raises(PlanError) as caught:
        check_plan(grouped.graph, grouped.program)
    assert caught.value.kind == "group"
    grouped.program.groups[:2] = 1, 4
    nodes = grouped.program.nodes
    nodes["workspace_offset"][2] += 64
    with pytest.raises(PlanError) as caught:
        check_plan(grouped.graph, grouped.program)
    assert caught.value.kind in ("overlap", "bounds")
    assert np.array_equal(grouped.program.groups, [1, 4, 1])
