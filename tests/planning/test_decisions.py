"""Decisions of a plan: they make the same plan again, in another process and from a file, or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bench.models.catalogue import CATALOGUE
from flexnn.artifact import open_artifact
from flexnn.planning import MachineProfile, Plan, Planner, Setting
from flexnn.planning.decisions import Decisions, read

MACHINE = MachineProfile(1e11, 1e10)


@pytest.fixture(scope="module", params=["squeezenet1_1", "mobilenet_v2"])
def planner(request: pytest.FixtureRequest) -> Planner:
    from bench.models.artifacts import artifact

    model = CATALOGUE[request.param]
    with open_artifact(str(artifact(model.make(), model.shapes))) as opened:
        return Planner(opened.graph, Setting(MACHINE, 2))


def other(planner: Planner, machine: MachineProfile = MACHINE, **setting: Any) -> Planner:
    return Planner(planner.whole.graph, Setting(machine, 2)._replace(**setting))


def records(plan: Plan) -> list[bytes]:
    program = plan.program
    return [part.tobytes() for part in (program.nodes, program.steps, program.loads, program.pinned)]


@pytest.mark.parametrize("share", [1.0, 1.05, 1.5, 2.0])
def test_they_make_the_same_plan_again(planner: Planner, share: float) -> None:
    memory = int(share * planner.minimum)
    plan = planner.plan(memory)
    assert plan.decisions is not None
    told = json.loads(json.dumps(plan.decisions.described()))
    again = other(planner).follow(read(told), memory)
    assert again is not None
    assert records(again) == records(plan)
    names = "memory", "minimum_memory", "session_bytes", "working_bytes", "overhead"
    assert [getattr(again, name) for name in names] == [getattr(plan, name) for name in names]
    assert (again.predicted_ms, again.bound_ms) == pytest.approx((plan.predicted_ms, plan.bound_ms))
    again.check()


def test_plans_that_need_no_search_have_none(planner: Planner) -> None:
    assert planner.plan(None).decisions is None
    assert planner.plan(1 << 30).decisions is None


def test_a_smaller_budget_takes_none_of_a_larger_one(planner: Planner) -> None:
    plan = planner.plan(2 * planner.minimum)
    assert plan.decisions is not None
    assert other(planner).follow(plan.decisions, planner.minimum) is None


def test_the_form_of_a_larger_budget_is_planned_for_less(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """No form is searched for; a form that does not fit makes no plan."""
    memory, least = int(1.4 * planner.minimum), int(1.3 * planner.minimum)
    decisions = planner.plan(memory).decisions
    assert decisions is not None
    again = other(planner)
    with monkeypatch.context() as patch:
        patch.setattr(Planner, "_forms", property(lambda _: pytest.fail("forms are searched for")))
        plan = again.in_form(decisions, least)
    assert plan is not None
    assert plan.session_bytes <= plan.memory == least
    assert len(plan.program.nodes) == len(planner.plan(memory).program.nodes)
    plan.check()
    assert again.in_form(decisions, planner.minimum // 2) is None


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_machine_of_other_rates_decides_anew(planner: Planner, factor: float) -> None:
    memory = int(1.5 * planner.minimum)
    decisions = planner.plan(memory).decisions
    assert decisions is not None
    rate = MACHINE.storage_bytes_per_second
    machine = MachineProfile(1e11, 1e10, storage_bytes_per_second=factor * rate)
    assert other(planner, machine).follow(decisions, memory) is None
    near = MachineProfile(1e11, 1e10, storage_bytes_per_second=1.01 * rate)
    assert other(planner, near).follow(decisions, memory) is not None


def test_where_bands_are_not_allowed_none_are_followed(planner: Planner) -> None:
    memory = planner.minimum
    decisions = planner.plan(memory).decisions
    assert decisions is not None
    assert decisions.regions is not None
    assert other(planner, deterministic=True).follow(decisions, memory) is None


def _changed(told: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return told | {name: value}


WRONG: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a kernel that is none": lambda told: _changed(told, "kernels", [["none", 0]] * len(told["kernels"])),
    "fewer nodes": lambda told: _changed(told, "kernels", told["kernels"][:-1]),
    "more nodes": lambda told: _changed(told, "slices", [*told["slices"], [1, 0, 0]]),
    "no slices": lambda told: _changed(told, "slices", [[0, 0, 0]] * len(told["slices"])),
    "many panels": lambda told: _changed(told, "slices", [[1 << 30, 1 << 30, 0]] * len(told["slices"])),
    "numbers of 64 bits": lambda told: _changed(told, "slices", [[1, 1 << 61, 1 << 61]] * len(told["slices"])),
    "another placement": lambda told: _changed(told, "placement", 1 << 40),
    "no memory": lambda told: _changed(told, "working_bytes", 0),
    "much memory": lambda told: _changed(told, "working_bytes", 1 << 60),
    "a short rank": lambda told: _changed(told, "filled", [[0.0], 1 << 40, 1 << 40, 10]),
    "walks that meet": lambda told: _changed(told, "regions", [[0, 3, 2], [3, 5, 2]]),
    "a walk that is none": lambda told: _changed(told, "regions", [[0, 1 << 40, 2]]),
    "a walk of many bands": lambda told: _changed(told, "regions", [[0, 3, 1 << 40]]),
    "a walk of all": lambda told: _changed(told, "regions", [[0, 60, 64]]),
    "a graph that is none": lambda told: _changed(told, "way", 1 << 40),
    "no pace": lambda told: _changed(told, "pace", 0.0),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_ones_are_not_followed(planner: Planner, what: str) -> None:
    memory = int(1.5 * planner.minimum)
    plan = planner.plan(memory)
    assert plan.decisions is not None
    told = WRONG[what](json.loads(json.dumps(plan.decisions.described())))
    if "walk" in what or "graph" in what:
        told |= {"regions": told["regions"] or [[0, 3, 2]]}
    try:
        found = other(planner).follow(read(told), memory)
    except ValueError:
        return
    assert found is None or found.session_bytes <= memory
    if found is not None:
        found.check()


@pytest.mark.parametrize(
    "change",
    [{"bound_ms": "1"}, {"bound_ms": float("nan")}, {"kernels": None}, {"slices": [[1, 2]]}, {"slices": [[-1, 0, 0]]},
     {"working_bytes": 1.5}, {"filled": []}, {"filled": [["a"], 1, 1, 1]}, {"regions": 3}, {"way": -1}],
)  # fmt: skip
def test_what_is_told_wrongly_is_not_read(planner: Planner, change: dict[str, Any]) -> None:
    decisions = planner.plan(int(1.5 * planner.minimum)).decisions
    assert isinstance(decisions, Decisions)
    with pytest.raises((ValueError, TypeError, KeyError)):
        read(decisions.described() | change)
