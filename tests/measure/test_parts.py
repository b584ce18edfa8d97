"""Profiles of models whose shapes are open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn._core import OpenFile
from flexnn.artifact import open_artifact
from flexnn.measure import cache, compute, device, parts, sample
from flexnn.planning import MachineProfile, Setting
from flexnn.planning.costs import graph_costs
from flexnn.run.engine import Engine

F32 = onnx.TensorProto.FLOAT


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Convolutions of open height and width; where they fire, a softmax, else a product with itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = [
        numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32) / 24, "w"),
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
    ]
    branch = helper.make_tensor_value_info("b", F32, None)
    bodies = {
        "then_branch": helper.make_graph([helper.make_node("Softmax", ["c"], ["b"], axis=1)], "then", [], [branch]),
        "else_branch": helper.make_graph([helper.make_node("Mul", ["c", "c"], ["b"])], "else", [], [branch]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["is"]),
        helper.make_node("If", ["is"], ["y"], **bodies),
    ]
    x, y = (helper.make_tensor_value_info(name, F32, [1, 64, "h", "w"]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(flexnn.compile(path))


def run(session: flexnn.Session, side: int, sign: float) -> np.ndarray:
    return session.run(None, {"x": np.full((1, 64, side, side), sign, np.float32)})[0]


def kept(artifact: str) -> cache.Kept:
    with open_artifact(artifact) as opened:
        found = cache.load(cache.key_of(opened, 2, direct=False))
    assert found
    return found


def test_kernels_to_choose_from_are_measured_once(artifact: str) -> None:
    """With the first program that has them; other shapes, budgets and sessions go by what was found. A plan that reads
    no weights needs no more.
    """
    told: list[str] = []
    with flexnn.Session(artifact, threads=2, profile="measure", progress=told.append) as session:
        quiet = run(session, 40, -1.0)
        assert len(told) == 1
        for side in (40, 48, 24):
            run(session, side, -1.0)
        session.memory = "64MiB"
        np.testing.assert_array_equal(run(session, 40, -1.0), quiet)
        fires = run(session, 40, 1.0)
        np.testing.assert_allclose(fires.sum(axis=1), 1.0, rtol=1e-5)
        assert run(session, 48, 1.0).shape == (1, 64, 48, 48)
        assert len(told) == 1
    found = kept(artifact)
    assert {"wino4", "wino2"} <= found.tried
    kernels = {"direct", "im2col", "wino4", "wino2", "wino_line", "planar", "half"}
    assert found.tried <= found.machine.scales.keys() <= kernels
    assert found.machine.storage_bytes_per_second == MachineProfile(1.0, 1.0).storage_bytes_per_second
    with flexnn.Session(artifact, threads=2, profile="measure", progress=told.append) as session:
        np.testing.assert_array_equal(run(session, 40, -1.0), quiet)
        np.testing.assert_array_equal(run(session, 40, 1.0), fires)
    assert len(told) == 1


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Convolutions with 2.4 MiB of weights each, of open height and width, then a softmax."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal((256, 256, 3, 3)).astype(np.float32) / 48, f"w{i}")
        for i in range(4)
    ]
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1, 1, 1, 1]) for i in range(4)]
    nodes.append(helper.make_node("Softmax", ["x4"], ["y"], axis=1))
    x, y = (helper.make_tensor_value_info(name, F32, [1, 256, "h", "w"]) for name in ("x0", "y"))
    path = tmp_path / "wide.onnx"
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(flexnn.compile(path))


def run_wide(session: flexnn.Session, side: int = 12) -> np.ndarray:
    return session.run(None, {"x0": np.ones((1, 256, side, side), np.float32)})[0]


def streaming_budget(artifact: str) -> int:
    """A budget that keeps some of the weights in memory."""
    with flexnn.Session(artifact, threads=2, profile="analytic") as session:
        run_wide(session)
        return session.plan.minimum_memory + (5 << 20)


def test_streaming_measures_operators_and_storage_once(wide: str) -> None:
    told: list[str] = []
    budget = streaming_budget(wide)
    with flexnn.Session(wide, budget, threads=2, profile="measure", progress=told.append) as session:
        run_wide(session)
        assert session.plan.is_streaming
        assert len(told) == 1
        run_wide(session, 11)
        assert len(told) == 1
        assert session.statistics()["machine"]["storage_bytes_per_second"] == approx_rate(kept(wide))
    found = kept(wide)
    assert {"softmax", "direct", "wino4", "storage"} <= found.tried
    assert {"softmax", "direct", "wino4"} <= found.machine.scales.keys()
    assert found.machine.storage_bytes_per_second != MachineProfile(1.0, 1.0).storage_bytes_per_second
    with flexnn.Session(wide, budget, threads=2, profile="measure", progress=told.append) as session:
        run_wide(session)
    assert len(told) == 1


def approx_rate(found: cache.Kept) -> Any:
    return pytest.approx(found.machine.storage_bytes_per_second)


def test_a_budget_that_comes_later_is_measured_for(wide: str) -> None:
    budget = streaming_budget(wide)
    with flexnn.Session(wide, threads=2, profile="measure") as session:
        run_wide(session)
        assert "storage" not in kept(wide).tried
        session.memory = budget
        assert session.plan.is_streaming
        assert "storage" in kept(wide).tried
        run_wide(session)


def test_what_cannot_be_measured_is_not_tried_again(wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def failing(*_: object, **__: object) -> None:
        calls.append(1)
        raise OSError(5, "no device")

    monkeypatch.setattr(device, "measure_part", failing)
    budget = streaming_budget(wide)
    for _ in range(2):
        with flexnn.Session(wide, budget, threads=2, profile="measure") as session:
            run_wide(session)
            run_wide(session, 11)
    assert len(calls) == 1
    assert kept(wide).machine.scales == {}
    with flexnn.Session(wide, 2 * budget, threads=2, profile="measure") as session:
        run_wide(session)
    assert len(calls) == 2  # a larger arena may hold what did not fit


def test_what_a_larger_arena_measures_still_streams(wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that wait for their weights are measured also where the storage is known from a smaller arena."""
    measure_part, streams = device.measure_part, []

    def counted(*given: Any, **options: Any) -> MachineProfile:
        streams.append(options["streams"])
        names = {"storage"} if len(streams) == 1 else options.pop("names")
        return measure_part(*given, **{**options, "names": names})

    monkeypatch.setattr(device, "measure_part", counted)
    budget = streaming_budget(wide)
    for memory in (budget - (3 << 20), budget):
        with flexnn.Session(wide, memory, threads=2, profile="measure") as session:
            run_wide(session)
            assert session.plan.is_streaming
    assert streams == [True, True]
    assert "direct" in kept(wide).machine.scales


def test_sessions_that_ran_for_long_measure_thoroughly_at_their_end(wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = streaming_budget(wide)

    def runs(count: int) -> cache.Kept:
        with flexnn.Session(wide, budget, threads=2, profile="measure") as session:
            for _ in range(count):
                run_wide(session)
        return kept(wide)

    assert not runs(4).machine.times
    monkeypatch.setattr(parts, "LATER_MIN_S", 0.0)
    monkeypatch.setattr(parts, "LATER_SHARE", 10.0)
    found = runs(4)
    assert parts.THOROUGH in found.tried
    assert any(key.startswith("conv.wino4") for key in found.machine.times)
    with monkeypatch.context() as patch:
        patch.setattr(device, "measure_part", None)
        runs(4)


def test_samples_are_short(wide: str) -> None:
    """Rows and panels of a window are as many as the time allows, and its time is that part of the node's."""
    with flexnn.Session(wide, threads=1, profile="analytic") as session:
        run_wide(session, 200)
        graph = session.plan.graph
    setting = Setting(MachineProfile(1e11, 1e10))
    costs = graph_costs(graph, setting, every_variant=True)
    cases = compute.cases_of(graph, costs, {})
    names = {sample.scale_name(case) for case in cases}
    assert {"direct", "wino4", "wino2", "softmax"} <= names
    found, weights = sample._samples(graph, cases, 512 << 20, 0.01, 4e-6)
    assert {sample.scale_name(each.case) for each in found} == names
    for each in found:
        whole = each.case.variant.seconds()
        assert 4e-6 < each.seconds <= whole
        if each.panels:
            assert each.rows < 200
            assert each.panels * each.case.costs.panel_bytes <= min(weights, sample.PANELS_BYTES)
            assert each.seconds < whole / 10
    scales = sample.sampled_scales(graph, costs, cases, arena_bytes=512 << 20, seconds=0.01, step_s=4e-6)
    assert scales.keys() == names
    assert all(scale > 0 for scale in scales.values())
    assert sample.sampled_scales(graph, costs, cases, arena_bytes=1000, seconds=0.01, step_s=4e-6) == {}


def test_scales_are_of_maps_that_do_not_wait_for_weights(artifact: str) -> None:
    """A map of 2 x 2 reads its weights for 4 pixels; what a sample of it shows says nothing about large maps."""

    def cases_at(side: int) -> list[compute.Case]:
        with flexnn.Session(artifact, threads=1, profile="analytic") as session:
            run(session, side, 1.0)
            graph = session.plan.graph
        return compute.cases_of(graph, graph_costs(graph, Setting(machine), every_variant=True), {})

    machine = MachineProfile(1e11, 1e10)
    small, large = cases_at(2), cases_at(96)
    kernels = {"direct", "wino2", "wino4"}
    assert {sample.scale_name(case) for case in small} & kernels == kernels
    for streams in (False, True):
        found = device.cases_that_tell([*small, *large], machine, streams=streams)
        assert {case.key for case in found if case.costs.panels} == {case.key for case in large if case.costs.panels}
    assert not [case for case in device.cases_that_tell(small, machine, streams=False) if case.costs.panels]
    assert device.cases_that_tell(small, machine, streams=True) != device.cases_that_tell(small, machine, streams=False)


def test_measuring_keeps_to_the_budget(artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring takes no more memory than the plan; nothing else is open meanwhile."""
    with flexnn.Session(artifact, threads=2, profile="analytic") as session:
        run(session, 64, -1.0)
        budget = session.plan.minimum_memory + (1 << 20)  # the arena of the smallest has no room to measure in
    rooms: list[int] = []
    store = cache.store
    monkeypatch.setattr(cache, "store", lambda key, kept: (rooms.append(kept.arena_bytes), store(key, kept)))
    with flexnn.Session(artifact, budget, threads=2, profile="measure") as session:
        run(session, 64, -1.0)
        assert session.session_bytes <= budget
        assert rooms
        assert max(rooms) <= session.plan.arena_bytes


def test_files_that_an_engine_kept_are_not_measured(wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is closed while the device keeps a read waiting keeps the files. Closing the session raised
    OSError: it was to measure the file, which had no descriptor any more.
    """
    budget = streaming_budget(wide)
    monkeypatch.setattr(parts, "LATER_MIN_S", 0.0)
    close = Engine.close

    def close_late(engine: Engine, files: tuple[OpenFile, ...] | None = None) -> None:
        close(engine)
        for file in files or ():
            file.close()

    monkeypatch.setattr(Engine, "close", close_late)
    session = flexnn.Session(wide, budget, threads=2, profile="measure")
    run_wide(session)
    session.close()
    assert parts.THOROUGH not in kept(wide).tried
