"""Groups of independent nodes: layers, the order they give, and plans that keep what runs together apart."""

from __future__ import annotations

import numpy as np
import pytest
from plan_graphs import CLASSICS, Builder, random_graph
from plan_support import FAST_DISK

from flexnn.graph.ir import Graph
from flexnn.plan import PlanError, make_plan
from flexnn.plan.check import check_plan
from flexnn.plan.groups import group_nodes, layers, make_grouped_plan


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
    assert [group_nodes(graph, k).sizes for k in (1, 2, 4, 5, 99)] == [
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
    plan = make_grouped_plan(graph, k, threads=2, machine=FAST_DISK)
    check_plan(plan.graph, plan.program)
    assert plan.program.groups.sum() == len(plan.program.steps)
    assert not len(plan.program.loads)
    assert sorted(map(id, plan.graph.nodes)) == sorted(map(id, graph.nodes))


@pytest.mark.parametrize("name", CLASSICS)
def test_fewer_barriers_never_cost_less_memory(name: str) -> None:
    graph = CLASSICS[name]()
    plans = [make_grouped_plan(graph, k, threads=2, machine=FAST_DISK) for k in (1, 2, 99)]
    barriers = [len(plan.program.groups) for plan in plans]
    assert barriers == sorted(barriers)
    assert barriers[-1] == len(graph.nodes)
    live = [plan.activation_bytes for plan in plans]
    assert live == sorted(live, reverse=True)


def test_the_checker_sees_what_a_group_would_overwrite() -> None:
    graph = _branches(4)
    plan = make_plan(graph, threads=2, machine=FAST_DISK)
    check_plan(graph, plan.program)
    grouped = make_grouped_plan(graph, 1, threads=2, machine=FAST_DISK)
    check_plan(grouped.graph, grouped.program)
    grouped.program.groups[:2] = 2, 3  # the first convolution and those that read it
    with pytest.raises(PlanError) as caught:
        check_plan(grouped.graph, grouped.program)
    assert caught.value.kind == "group"
    grouped.program.groups[:2] = 1, 4
    nodes = grouped.program.nodes
    nodes["scratch"][2] += 64
    with pytest.raises(PlanError) as caught:
        check_plan(grouped.graph, grouped.program)
    assert caught.value.kind in ("overlap", "bounds")
    assert np.array_equal(grouped.program.groups, [1, 4, 1])
