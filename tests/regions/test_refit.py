"""Plans that are refitted: other sizes run with the plan of the first ones, right and inside the budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from flexnn.planning import Planner
from flexnn.planning.refit import Refit, sizes_of
from flexnn.run.open_shapes import OpenShapesRun
from tests.regions.test_templates import images
from tests.support.regions import F32, check_run, graph_of, model_of, numbers, opened, value

node = onnx.helper.make_node
SIDES = 32, 40, 96, 36, 64, 128, 48, 80
LENGTHS = 20, 64, 21, 48, 30, 63, 22, 57


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each plan that is made."""
    made: list[int] = []
    plan = Planner.plan

    def counted(planner: Planner, memory: int | None) -> object:
        made.append(1)
        return plan(planner, memory)

    monkeypatch.setattr(Planner, "plan", counted)
    return made


def layers(count: int = 12, width: int = 96) -> onnx.ModelProto:
    """Products with weights, over a number of rows that is open."""
    nodes, last = [], "x"
    for i in range(count):
        nodes += [node("MatMul", [last, f"w{i}"], [f"m{i}"]), node("Tanh", [f"m{i}"], [f"t{i}"])]
        nodes += [node("Add", [f"t{i}", last], [f"a{i}"])]
        last = f"a{i}"
    nodes.append(node("Softmax", [last], ["y"], axis=-1))
    weights = {f"w{i}": numbers(width, width) / 10 for i in range(count)}
    return model_of(graph_of(nodes, [value("x", F32, ["n", width])], [value("y", F32, ["n", width])], weights))


@pytest.mark.parametrize("make", [images, layers])
def test_a_session_without_a_limit_plans_when_it_opens(
    make: Callable[[], onnx.ModelProto], tmp_path: Path, plans: list[int]
) -> None:
    """The first run takes over a plan and weights, at sizes far from the plan's, too."""
    model = make()
    with opened(tmp_path, model) as session:
        opened_with, shape = len(plans), (1, 3, 320, 256) if make is images else (500, 96)
        assert opened_with > 0
        check_run(session, model, {"x": numbers(*shape)})
        assert len(plans) == opened_with
        assert session.statistics()["segments"] == 1


def test_shapes_share_a_plan(tmp_path: Path, plans: list[int]) -> None:
    """Outputs are right, and weights stay where they are, however often shapes change."""
    model = images()
    with opened(tmp_path, model) as session:
        for side in SIDES:
            check_run(session, model, {"x": numbers(2, 3, side, side + 16)})
        first = len(plans)
        assert first <= 3
        for side in SIDES * 2:
            check_run(session, model, {"x": numbers(2, 3, side, side + 16)})
        assert session.statistics()["pinning"]["read"] <= session.plan.pinned_bytes
        assert len(plans) == first


@pytest.mark.parametrize("share", [1.0, 1.3, 2.0])
def test_shapes_share_a_plan_in_a_budget(tmp_path: Path, plans: list[int], share: float) -> None:
    model = layers()
    with opened(tmp_path, model) as session:
        session.run(None, {"x": numbers(max(LENGTHS), 96)})
        memory = int(session.plan.minimum_memory * share)
    with opened(tmp_path, model, memory=memory) as session:
        for length in LENGTHS:
            check_run(session, model, {"x": numbers(length, 96)})
            assert session.session_bytes <= memory
        before = len(plans)
        for length in LENGTHS * 2:
            check_run(session, model, {"x": numbers(length, 96)})
            assert session.session_bytes <= memory
        assert share == 1.0 or len(plans) == before


def test_a_kept_shape_is_small(tmp_path: Path, plans: list[int]) -> None:
    """Each further shape takes at most 300 bytes a step, as counted and in the engine; none is closed for another."""
    model, lengths = layers(60), range(64, 96)
    with opened(tmp_path, model) as session:
        found = []
        for length in lengths:
            check_run(session, model, {"x": numbers(length, 96)})
            figures = session.statistics()
            outside = figures["engine_bytes"] - figures["bytes"]["arena"]
            found.append((session.session_bytes - figures["bytes"]["arena"] - figures["bytes"]["values"], outside))
        steps = figures["kept_nodes"] // len(lengths)
        for first, last in zip(found[8], found[-1], strict=True):
            assert last - first <= 300 * steps * (len(lengths) - 9)
        memory = session.plan.minimum_memory * 3 // 2
    with opened(tmp_path, model, memory=memory) as session:
        for length in lengths:
            session.run(None, {"x": numbers(length, 96)})
        before = len(plans)
        for length in lengths:
            check_run(session, model, {"x": numbers(length, 96)})
        assert len(plans) == before
        assert session.session_bytes <= memory


def test_shapes_used_longest_ago_go_first(tmp_path: Path) -> None:
    """A shape that runs between others stays open, whichever of these are closed."""
    model = layers(60)
    with opened(tmp_path, model) as session:
        session.run(None, {"x": numbers(96, 96)})
        memory = session.plan.minimum_memory * 5 // 4
    with opened(tmp_path, model, memory=memory) as session:
        assert isinstance(session._run, OpenShapesRun)
        usual = {"x": numbers(64, 96)}
        for length in range(65, 97):
            session.run(None, usual)
            session.run(None, {"x": numbers(length, 96)})
            session.run(None, usual)
            assert session._run.stretches.only is not None
            used = list(session._run.stretches._open)
            assert used[-1] in session._run.stretches.only.segments
            assert session.session_bytes <= memory


def test_a_budget_that_changes_between_shapes(tmp_path: Path) -> None:
    model = layers()
    with opened(tmp_path, model) as session:
        session.run(None, {"x": numbers(max(LENGTHS), 96)})
        least = session.plan.minimum_memory
        for turn, length in enumerate(LENGTHS * 2):
            session.memory = None if turn % 3 == 0 else least + turn * (64 << 10)
            check_run(session, model, {"x": numbers(length, 96)})
            assert session.memory is None or session.session_bytes <= session.memory


def test_sizes_that_do_not_fit_need_another_plan(tmp_path: Path) -> None:
    """A plan that reads weights has places for what is not larger; one that pins them all has places for everything."""
    model = layers()
    with opened(tmp_path, model) as session:
        graphs = {}
        for length in (32, 64, 16):
            session.run(None, {"x": numbers(length, 96)})
            (segment,) = [
                s for s in session._run._open.segments if s.graph.tensors[s.graph.inputs[0]].shape[0] == length
            ]  # type: ignore[attr-defined]
            graphs[length] = segment.graph
        setting = session._run._open.segments.setting  # type: ignore[attr-defined]
    planner = Planner(graphs[32], setting)
    streamed, pinned = Refit(planner.plan(planner.minimum), graphs[32]), Refit(planner.plan(None), graphs[32])
    assert streamed.at(sizes_of(graphs[64])) is None
    smaller = streamed.at(sizes_of(graphs[16]))
    assert smaller is not None
    assert smaller.program.arena_bytes == planner.plan(planner.minimum).arena_bytes
    for length in (16, 32, 64):
        found = pinned.at(sizes_of(graphs[length]))
        assert found is not None
        assert (found.edits == 0) == (length == 32)
        assert found.program.arena_bytes == Planner(graphs[length], setting).plan(None).arena_bytes


def test_many_shapes_leave_a_small_session(tmp_path: Path) -> None:
    """Memory for kept shapes is bounded, and counted."""
    model = layers(4)
    with opened(tmp_path, model) as session:
        sizes = []
        for length in range(20, 420):
            session.run(None, {"x": np.zeros((length, 96), np.float32)})
            sizes.append(session.session_bytes)
        assert max(sizes) - sizes[0] < 9 << 20
