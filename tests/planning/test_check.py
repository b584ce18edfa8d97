"""The checker refuses what is wrong: each defect is put into a good program, and must be named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from flexnn.graph.ir import Graph
from flexnn.planning import PlanError, Program
from flexnn.planning.check import check_plan
from tests.support.plan_graphs import resnet
from tests.support.plans import checked, minimum_of


@pytest.fixture(scope="module")
def good() -> tuple[Graph, Program]:
    graph = resnet((1, 2, 1, 1), 64)
    return graph, checked(graph, int(minimum_of(graph) * 1.3)).program


def _copy(program: Program) -> Program:
    arrays = {name: getattr(program, name).copy() for name in ("nodes", "steps", "pinned", "loads", "io_bytes")}
    return dataclasses.replace(program, **arrays)


def _load_earlier(p: Program) -> Program:
    late = int(np.argmax(p.loads["wait_steps"]))
    p.loads["wait_steps"][late:] = p.loads["wait_steps"][0]
    return p


def _load_later(p: Program) -> Program:
    p.loads["wait_steps"][-1] = len(p.steps) - 1
    p.steps["wait_loads"][0] = len(p.loads)
    return p


def _no_wait(p: Program) -> Program:
    p.steps["wait_loads"] = 0
    return p


def _move_output(p: Program) -> Program:
    p.nodes["out"]["offset"][2] += 64
    return p


def _move_weight(p: Program) -> Program:
    p.steps["panel_offset"][np.flatnonzero(p.steps["panel_offset"] >= 0)[3]] += 64
    return p


def _wrong_bytes(p: Program) -> Program:
    p.loads["file_offset"][1] += 4096
    return p


def _share_workspace(p: Program) -> Program:
    node = int(np.flatnonzero(p.nodes["workspace_bytes"])[0])
    p.nodes["workspace_offset"][node] = p.nodes["out"]["offset"][node]
    return p


def _small_workspace(p: Program) -> Program:
    p.nodes["workspace_bytes"][np.flatnonzero(p.nodes["workspace_bytes"])[0]] = 0
    return p


def _short_arena(p: Program) -> Program:
    return dataclasses.replace(p, arena_bytes=p.arena_bytes // 2)


def _swap_steps(p: Program) -> Program:
    p.steps[[0, 1]] = p.steps[[1, 0]]
    return p


def _skip_channels(p: Program) -> Program:
    p.steps["window"]["c1"][0] -= 16
    return p


def _lose_zeros(p: Program) -> Program:
    return dataclasses.replace(p, zeros_count=1)


def _zeros_in_use(p: Program) -> Program:
    return dataclasses.replace(p, zeros_offset=int(p.nodes["out"]["offset"][1]))


def _wrong_checksum(p: Program) -> Program:
    p.loads["crc_first"][0] += 1
    return p


def _wrong_buffer(p: Program) -> Program:
    p.nodes["in"]["base"][0, 0] = 2
    return p


DEFECTS: list[tuple[Callable[[Program], Program], set[str]]] = [
    (_load_earlier, {"overlap"}),
    (_load_later, {"deadlock", "overlap"}),
    (_no_wait, {"weight"}),
    (_move_output, {"address", "overlap"}),
    (_move_weight, {"weight"}),
    (_wrong_bytes, {"weight"}),
    (_share_workspace, {"overlap"}),
    (_small_workspace, {"workspace"}),
    (_short_arena, {"bounds"}),
    (_swap_steps, {"order"}),
    (_skip_channels, {"window"}),
    (_lose_zeros, {"zeros"}),
    (_zeros_in_use, {"overlap"}),
    (_wrong_checksum, {"checksum"}),
    (_wrong_buffer, {"io", "base"}),
]


@pytest.mark.parametrize(("defect", "kinds"), DEFECTS, ids=[d.__name__.strip("_") for d, _ in DEFECTS])
def test_defects_are_named(good: tuple[Graph, Program], defect: Callable[[Program], Program], kinds: set[str]) -> None:
    graph, program = good
    check_plan(graph, program)
    with pytest.raises(PlanError) as refusal:
        check_plan(graph, defect(_copy(program)))
    assert refusal.value.kind in kinds


def test_every_threshold_is_needed(good: tuple[Graph, Program]) -> None:
    """One step less, and something in use is overwritten: for each load that waits longer than the one before it. Only
    those that wait for the step where the planner cuts the circle of runs may wait for nothing."""
    graph, program = good
    waits = program.loads["wait_steps"]
    needless, needed = set(), 0
    for i in range(1, len(waits)):
        if waits[i] > waits[i - 1]:
            wrong = _copy(program)
            wrong.loads["wait_steps"][i] -= 1
            try:
                check_plan(graph, wrong)
                needless.add(int(waits[i]))
            except PlanError as error:
                assert error.kind == "overlap"
                needed += 1
    assert len(needless) <= 1
    assert needed >= 5
