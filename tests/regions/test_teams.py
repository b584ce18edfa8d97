"""Runs of several stretches whose sizes data decide, in budgets: what was decided for one run serves others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.planning.ladder import Ladder
from flexnn.planning.overhead import NODE_BYTES
from flexnn.planning.planner import Planner
from flexnn.regions import Stretch
from flexnn.regions.record import Recorder
from tests.support.regions import F32, check_run, graph_of, model_of, numbers, opened, value

node = onnx.helper.make_node
WIDTH, LAYERS, STAGES = 192, 3, 4
LENGTHS = 90, 40, 150, 160, 200, 30, 71, 180, 120, 55, 199, 25, 140, 90, 64, 171
"""Rows of runs one after the other: the most come fifth, and are fewer than 1.25 times those before."""


def choosing() -> onnx.ModelProto:
    """Layers over some rows, of which only those are kept whose mean is above -0.05, and layers over these, and so on.
    Numpy makes noise, of which 0 is added to the rows that are kept.
    """
    nodes, weights, last = [], {}, "x"
    for stage in range(STAGES):
        for i in range(LAYERS):
            name = f"{stage}.{i}"
            weights[f"w{name}"] = numbers(WIDTH, WIDTH, seed=stage * LAYERS + i) / np.float32(WIDTH**0.5)
            nodes += [
                node("MatMul", [last, f"w{name}"], [f"m{name}"]),
                node("Tanh", [f"m{name}"], [f"t{name}"]),
                node("Add", [f"t{name}", last], [f"a{name}"]),
            ]
            last = f"a{name}"
        if stage == STAGES - 1:
            break
        nodes += [
            node("ReduceMean", [last], [f"score{stage}"], axes=[1], keepdims=0),
            node("Greater", [f"score{stage}", "low"], [f"is_kept{stage}"]),
            node("NonZero", [f"is_kept{stage}"], [f"found{stage}"]),
            node("Squeeze", [f"found{stage}", "zero"], [f"rows{stage}"]),
            node("Gather", [last, f"rows{stage}"], [f"kept{stage}"], axis=0),
            node("Bernoulli", [f"kept{stage}"], [f"noise{stage}"]),
            node("Mul", [f"noise{stage}", "none"], [f"silence{stage}"]),
            node("Add", [f"kept{stage}", f"silence{stage}"], [f"noisy{stage}"]),
        ]
        last = f"noisy{stage}"
    nodes.append(node("Softmax", [last], ["y"], axis=-1))
    constants = weights | {"low": np.float32(-0.05), "zero": np.array([0]), "none": np.float32(0)}
    inputs, outputs = [value("x", F32, ["n", WIDTH])], [value("y", F32, [None, WIDTH])]
    return model_of(graph_of(nodes, inputs, outputs, constants))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each search for a plan."""
    made: list[int] = []
    search = Ladder.best_within

    def counted(*args: object, **named: object) -> object:
        made.append(1)
        return search(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Ladder, "best_within", counted)
    return made


def _least(folder: Path, model: onnx.ModelProto) -> int:
    """Smallest budget of all runs."""
    least = 0
    with opened(folder, model) as session:
        for length in LENGTHS:
            session.run(None, {"x": numbers(length, WIDTH, seed=length)})
            least = max(least, session.plan.minimum_memory)
    return least


@pytest.mark.parametrize("share", [1.0, 1.164, 1.5, 3.0])
def test_later_runs_search_for_no_plan(tmp_path: Path, searches: list[int], share: float) -> None:
    model = choosing()
    memory = int(share * _least(tmp_path, model))
    with opened(tmp_path, model, memory=memory) as session:
        counts = []
        for length in LENGTHS:
            before = len(searches)
            check_run(session, model, {"x": numbers(length, WIDTH, seed=length)})
            counts.append(len(searches) - before)
            assert session.session_bytes <= memory
    assert share == 1.0 or not any(counts[6:]), counts
    assert counts[0] <= 3 * STAGES, counts  # none is planned again for each one that comes after it


def test_a_first_run_with_room_searches_for_no_smallest_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search took as long as binding the layers, where these may be tiled, and no plan needed it."""
    weights = {f"w{i}": numbers(WIDTH, WIDTH, seed=i) / np.float32(WIDTH**0.5) for i in range(LAYERS)}
    names = ["x", *(f"m{i}" for i in range(LAYERS))]
    nodes = [node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(LAYERS)]
    outputs = [value(names[-1], F32, ["n", WIDTH])]
    model = model_of(graph_of(nodes, [value("x", F32, ["n", WIDTH])], outputs, weights))

    def searched(_: Planner) -> int:
        raise AssertionError("it was searched for")

    with opened(tmp_path, model, memory="64MiB") as session:
        with monkeypatch.context() as patched:
            patched.setattr(Planner, "minimum", property(searched))
            check_run(session, model, {"x": numbers(9, WIDTH, seed=9)})
        least = session.plan.minimum_memory
    with opened(tmp_path, model, memory=least) as session:
        check_run(session, model, {"x": numbers(9, WIDTH, seed=9)})


def test_nodes_are_counted_once(tmp_path: Path) -> None:
    """A session of one part, in a budget that holds half of its weights, takes nearly all of that."""
    layers, width = 100, 96
    last, nodes = "x", []
    for i in range(layers):
        nodes += [node("MatMul", [last, f"w{i}"], [f"m{i}"]), node("Tanh", [f"m{i}"], [f"t{i}"])]
        last = f"t{i}"
    weights = {f"w{i}": numbers(width, width, seed=i) / np.float32(width**0.5) for i in range(layers)}
    model = model_of(graph_of(nodes, [value("x", F32, ["n", width])], [value(last, F32, ["n", width])], weights))
    feed = {"x": numbers(3, width)}
    with opened(tmp_path, model) as session:
        session.run(None, feed)
        memory = session.plan.minimum_memory + layers * width * width * 2
    with opened(tmp_path, model, memory=memory) as session:
        check_run(session, model, feed)
        assert memory - layers * NODE_BYTES < session.session_bytes <= memory


def two_parts() -> onnx.ModelProto:
    """Three convolutions, and forty more over as many rows as numbers of theirs say: always 8."""
    weights = {"zero": np.array([0]), "axis": np.array([2]), "rows": np.array(8), "limit": np.array(1e9, np.float32)}
    nodes, last = [], "x"

    def convolutions(first: int, end: int) -> str:
        name = last
        for i in range(first, end):
            weights[f"w{i}"] = numbers(64, 64, 3, 3, seed=i) / np.float32(24)
            nodes.append(node("Conv", [name, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
            nodes.append(node("Relu", [f"c{i}"], [f"r{i}"]))
            name = f"r{i}"
        return name

    last = convolutions(0, 3)
    nodes += [
        node("Greater", [last, "limit"], ["large"]),
        node("Cast", ["large"], ["ones"], to=onnx.TensorProto.INT64),
        node("ReduceSum", ["ones"], ["sum"], keepdims=0),
        node("Add", ["sum", "rows"], ["count"]),
        node("Unsqueeze", ["count", "zero"], ["ends"]),
        node("Slice", [last, "zero", "ends", "axis"], ["part"]),
    ]
    last = "part"
    nodes.append(node("Identity", [convolutions(3, 43)], ["y"]))
    shapes = value("x", F32, ["n", 64, 16, 16]), value("y", F32, ["n", 64, "rows", 16])
    return model_of(graph_of(nodes, shapes[:1], shapes[1:], weights))


def test_parts_that_do_not_fit_together_are_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part was planned in all that the second one left before it was recorded, which was then dropped and
    recorded in each run.
    """
    model = two_parts()
    onnx.save(model, tmp_path / "m.onnx")
    path = flexnn.compile(tmp_path / "m.onnx")
    feed = {"x": numbers(1, 64, 16, 16)}
    small = flexnn.Session(path, memory=3 << 20, threads=1, profile="analytic")
    with small, pytest.raises(flexnn.BudgetError) as refused:
        small.run(None, feed)
    recorded, record = [], Recorder.record

    def counted(self: Recorder, *given: Any) -> Stretch:
        recorded.append(record(self, *given))
        return recorded[-1]

    monkeypatch.setattr(Recorder, "record", counted)
    with flexnn.Session(path, memory=refused.value.minimum, threads=1, profile="analytic") as session:
        check_run(session, model, feed)
        assert len(recorded) == 2
        for _ in range(3):
            session.run(None, feed)
        assert len(recorded) == 2
