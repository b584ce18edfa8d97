"""Profiles measured by the engine: what is measured, within which memory, what a session makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn import _core, files, measure
from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph, Node, Tensor, Weight
from flexnn.measure import cache, compute, device, parts, storage
from flexnn.measure.parts import Parts
from flexnn.planning import MachineProfile, Setting
from flexnn.planning.costs import graph_costs
from flexnn.planning.overhead import MEASURING_BYTES
from flexnn.run.fixed import FixedRun
from flexnn.session import open_for_tests
from tests.support.late import Moment
from tests.support.sessions import feed, smallest, write_model

ANALYTIC = MachineProfile(flops_per_second=1e11, bytes_per_second=1e10)

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("measure") / "small.onnx")))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("threads", [1, 2])
def test_every_variant_gets_a_time(artifact: Path, threads: int) -> None:
    with open_artifact(str(artifact)) as opened:
        costs = graph_costs(opened.graph, Setting(ANALYTIC, threads), every_variant=True)
        cases = compute.cases_of(opened.graph, costs, {})
        assert {case.variant.kernel for case in cases} >= {"direct", "wino2", "wino4"}
        times = compute.measure_variants(opened.graph, costs, cases, arena_bytes=32 << 20, seconds=0.1)
    assert set(times) == {case.key for case in cases}
    for fixed, channels in times.values():
        assert fixed >= 0
        assert channels >= 0
        assert 1e-7 < fixed + channels < 1
    assert not compute.cases_of(opened.graph, costs, times)


def test_a_kept_profile_plans_once(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, measured = [], []
    anew, measure_now = FixedRun._plan_anew, Parts.measure

    def counted(*given: object) -> object:
        plans.append(anew(*given))  # type: ignore[arg-type]
        return plans[-1]

    monkeypatch.setattr(FixedRun, "_plan_anew", counted)
    monkeypatch.setattr(Parts, "measure", lambda *given: measured.append(given[2]) or measure_now(*given))
    flexnn.Session(artifact, threads=1, profile="measure").close()
    assert (len(plans), len(measured)) == (2, 1)
    least = plans[0].minimum_memory
    for memory in (None, least, (least + plans[0].session_bytes) // 2):
        flexnn.Session(artifact, memory, threads=1, profile="measure").close()
    assert (len(plans), len(measured)) == (5, 1)


def test_a_device_is_measured_once_a_day(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other artifacts begin with its rates, as long as they were measured in an arena that was not much smaller."""
    measured: list[object] = []
    measure_storage, days = device.measure_storage, [3]

    def counted(*given: object, **options: object) -> object:
        measured.append(options["arena_bytes"])
        return measure_storage(*given, **options)  # type: ignore[arg-type]

    def rate(path: Path) -> float:
        with flexnn.Session(path, threads=1, profile="measure") as session:
            return float(session.statistics()["machine"]["storage_bytes_per_second"])

    monkeypatch.setattr(device, "measure_storage", counted)
    monkeypatch.setattr(cache.time, "time", lambda: days[0] * cache.DAY_S + 1.0)
    others = [Path(flexnn.compile(write_model(tmp_path / f"{i}.onnx", output=f"y{i}"))) for i in range(2)]
    first = rate(artifact)
    assert rate(others[0]) == first
    assert len(measured) == 1
    days[0] += 1
    rate(others[1])
    assert len(measured) == 2
    assert rate(artifact) == first  # its own profile
    assert len(measured) == 2
    small = cache.Kept(ANALYTIC, 1 << 20)
    assert parts._of_device(small, 5 << 18) is ANALYTIC
    assert parts._of_device(small, 2 << 20) is None
    assert parts._of_device(small._replace(arena_bytes=parts.ROOM_ENOUGH), 1 << 30) is ANALYTIC


def test_measuring_is_counted_where_it_takes_place(artifact: Path) -> None:
    least = smallest(artifact, threads=1)
    first = flexnn.plan(artifact, threads=1, profile="measure").minimum_memory
    assert first == least + MEASURING_BYTES
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(artifact, memory=least, threads=1, profile="measure")
    assert refused.value.minimum == first
    with flexnn.Session(artifact, memory=first + (2 << 20), threads=1, profile="measure") as session:
        assert session.plan.minimum_memory == first
    assert flexnn.plan(artifact, threads=1, profile="measure").minimum_memory == least
    flexnn.Session(artifact, memory=least, threads=1, profile="measure").close()


def test_opening_measures_for_milliseconds_and_for_all_budgets(artifact: Path) -> None:
    """A session of fixed shapes measures all that it may need after a change of its budget."""
    with flexnn.Session(artifact, threads=1, profile="analytic") as session:
        least = session.plan.minimum_memory
    start = Moment()
    with flexnn.Session(artifact, threads=1, profile="measure") as session:
        assert start.since() < 0.5  # 2 s before
        known = session.statistics()["machine"]
        assert known["storage_bytes_per_second"] != ANALYTIC.storage_bytes_per_second
        session.memory = least + MEASURING_BYTES
        assert session.statistics()["machine"] == known
    with open_artifact(str(artifact)) as opened:
        machine = measure.kept_machine(opened, 1, direct=False)
        assert machine is not None
        assert not machine.times
        assert {"direct", "wino2", "wino4"} <= machine.scales.keys()


def test_a_session_that_ran_for_long_measures_thoroughly_once(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float | None] = []
    measure_part = device.measure_part

    def counted(*given: object, **options: object) -> object:
        seconds.append(options["seconds"])  # type: ignore[arg-type]
        return measure_part(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(device, "measure_part", counted)
    monkeypatch.setattr(parts, "LATER_MIN_S", 1e-6)
    monkeypatch.setattr(parts, "LATER_MAX_S", 0.02)
    for _ in range(2):
        with flexnn.Session(artifact, threads=1, profile="measure") as session:
            for _ in range(5):
                session.run(None, feed())
            session.memory = session.session_bytes - 1  # the arena is in use: nothing is measured
            session.memory = None
            for _ in range(5):
                session.run(None, feed())
    assert [taken is None for taken in seconds] == [True, False]
    with open_artifact(str(artifact)) as opened:
        machine = measure.kept_machine(opened, 1, direct=False)
        assert machine is not None
        assert machine.times


def test_an_arena_limits_what_is_measured(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arenas = []
    opened_engine = _core.EngineSession

    def engine(**options: object) -> object:
        arenas.append(options["arena_bytes"])
        return opened_engine(**options)

    monkeypatch.setattr(_core, "EngineSession", engine)
    with open_artifact(str(artifact)) as opened:
        counts = []
        for room in (10, 200 << 10, 600 << 10, 8 << 20):
            del arenas[:]
            machine = parts.measured_machine(opened, -1, 2, room + measure.ROOM_MARGIN)
            counts.append(len(machine.times))
            assert max(arenas, default=0) <= max(room, 8192)
        assert counts[0] < counts[1] <= counts[2] < counts[3]


def test_a_node_that_refuses_zeros_is_left_out() -> None:
    """Indices of a table of one row are no longer 0 once exp(0) = 1 of the node before lies there."""
    graph = Graph(
        tensors=[
            Tensor("x", (64,)),
            Tensor("e", (64,)),
            Tensor("i", (32,), "i64"),
            Tensor("table", (1, 4)),
            Tensor("y", (32, 4)),
        ],
        nodes=[
            Node("exp", "unary", [0], [1], {"kind": "exp", "alpha": 0.0, "beta": 0.0}),
            Node("take", "gather", [3, 2], [4], {"axis": 0}),
        ],
        inputs=[0, 2, 3],
        outputs=[1, 4],
    )
    costs = graph_costs(graph, Setting(ANALYTIC), every_variant=True)
    cases = compute.cases_of(graph, costs, {})
    times = compute.measure_variants(graph, costs, cases, arena_bytes=1 << 20, seconds=0.05)
    assert set(times) == {cases[0].key}


def test_two_windows_give_a_fixed_part_and_one_per_channel() -> None:
    known = compute.NodeCosts([], np.zeros(1, np.int32), 16, 64, 0, ())
    variant = compute.Variant("direct", 0, 0, 1e-6, 1e-3)
    case = compute.Case("k", 0, variant, known, 0, small=2, large=16)
    assert compute._fit(case, 3e-3, 17e-3) == pytest.approx((1e-3, 16e-3))
    assert compute._fit(case, 9e-3, 3e-3) == pytest.approx((3e-3, 0.0))  # noise never makes a time negative
    case.large = 8
    case.variant = compute.Variant("direct", 0, 0, 1e-3, 16e-3)
    assert compute._fit(case, 3e-3, 9e-3) == pytest.approx((1e-3, 16e-3))
    assert compute._fit(case, 9e-3, 9e-3) == pytest.approx((1e-3, 16e-3))  # nor free what was not measured
    case.small = case.large = 4
    assert compute._fit(case, 5e-3, 5e-3) == pytest.approx((1e-3, 4 * 4e-3))


def test_the_fit_of_the_storage_recovers_its_rates() -> None:
    big, small, latency = 1 << 20, 96 << 10, 5e-5
    adds = {size: size / 4e8 + 2e-4 for size in (big, small)}
    parts = [[big] * 4, [small] * 3, [big] * 2]
    times = [
        adds[big] + latency,
        *[adds[big]] * 3,
        adds[small] + latency,
        *[adds[small]] * 2,
        *[adds[big] + latency] * 2,
    ]
    found = storage._fit(parts, [times])
    assert found.bytes_per_second == pytest.approx(4e8, rel=0.01)
    assert found.request_s == pytest.approx(2e-4, rel=0.01)
    assert found.latency_s == pytest.approx(latency, rel=0.01)
    late = [*times[:-2], 1.0, 1.0]  # somebody else's reads came between
    assert storage._fit(parts, [late]).latency_s < 2 * adds[big]
    alone = storage._fit([[big], [big]], [[1e-3, 1e-3]])
    assert alone == storage.Storage(big / 1e-3, 0.0, 0.0)


@pytest.mark.parametrize("io", ["buffered", "direct"])
def test_sessions_measure_once(artifact: Path, io: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    budget = smallest(artifact) + (1 << 20)
    plain = flexnn.Session(artifact, memory=budget, threads=2, io=io).run(None, feed())
    for _ in range(2):
        with flexnn.Session(artifact, memory=budget, threads=2, io=io, profile="measure", progress=told.append) as s:
            machine = s.statistics()["machine"]
            assert machine["measured_times"]
            assert machine["storage_bytes_per_second"] != ANALYTIC.storage_bytes_per_second
            np.testing.assert_allclose(s.run(None, feed())[0], plain[0], rtol=1e-4, atol=1e-5)
    assert len(told) == 1
    monkeypatch.setattr(cache, "_cpu", lambda: "another")
    flexnn.Session(artifact, memory=budget, threads=2, io=io, profile="measure", progress=told.append).close()
    assert len(told) == 2


def test_a_throttle_reaches_the_plan(artifact: Path) -> None:
    budget = smallest(artifact) + MEASURING_BYTES
    with open_for_tests(artifact, memory=budget, threads=1, profile="measure", read_bytes_per_second=50_000_000) as s:
        read = s.plan.bytes_read_per_run
        assert s.plan.predicted_ms >= read / 50e6 * 1e3 * 0.99
        s.run(None, feed())
        s.run(None, feed())
        assert s.last_run["run_ns"] / 1e6 == pytest.approx(s.plan.predicted_ms, rel=0.5)


def test_profiles_have_names(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'magic'; it must be 'measure' or 'analytic'"):
        flexnn.Session(artifact, profile="magic")
    monkeypatch.setenv("FLEXNN_PROFILE", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        flexnn.Session(artifact)


def test_a_damaged_artifact_fails_at_its_run_not_while_measuring(artifact: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.flexnn"
    raw = bytearray(artifact.read_bytes())
    for at in range(len(raw) // 2, len(raw), 4096):
        raw[at] ^= 1
    damaged.write_bytes(raw)
    with (
        pytest.raises(flexnn.SessionError, match="checksum"),
        flexnn.Session(damaged, memory=smallest(artifact) + MEASURING_BYTES, profile="measure") as s,
    ):
        s.run(None, feed())


def test_measuring_stays_inside_the_budget(artifact: Path) -> None:
    """The highest mark of a process that measures, next to one that finds everything measured."""
    budget = smallest(artifact) + (2 << 20)
    script = (
        "import sys, flexnn, resource\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "flexnn.Session(sys.argv[1], memory=int(sys.argv[2]), profile='measure').close()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    added = subprocess.run(
        [sys.executable, "-c", script, artifact, str(budget)], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    assert int(added) * 1024 <= budget + (1 << 20)
    assert any(os.scandir(files.cache_folder()))


def test_slices_of_large_weights_exceed_what_a_cpu_caches() -> None:
    weights = [Weight(f"w{i}", "panels", 24 << 20, 64 << 10, offset=i * (24 << 20)) for i in range(3)]
    costs = graph_costs(Graph(), Setting(ANALYTIC, 1))
    found = storage._slices(Graph(weights=weights), costs, 8 << 20)
    big = {each for each in found if each[2] > storage.SMALL_BYTES}
    assert sum(size for *_, size in big) > 40 << 20


def test_speeds_beside_steps_are_those_of_the_largest_slices() -> None:
    sizes = [8 << 10, 96 << 10, 1 << 20, 40 << 10, 1 << 20, 512 << 10]
    slices = [(0, at << 20, size) for at, size in enumerate(sizes)]
    assert [size for *_, size in storage._largest(slices, 3 << 20)] == [
        1 << 20,
        1 << 20,
        512 << 10,
        96 << 10,
        40 << 10,
        8 << 10,
    ]
    assert storage._largest(slices, 2 << 20) == [slices[2], slices[4]]
    assert storage._largest(slices, 1) == [slices[2]]
    assert storage._largest([], 1) == []


def test_steps_beside_loads_count_the_time_that_they_lose() -> None:
    assert storage._compute_speed([1.0, 3.0, 1.0], [0.0, 2.0, 0.0]) == 0.0  # both loads inside one step
    assert storage._compute_speed([1.0, 1.5, 1.5, 60.0], [0.0, 1.0, 1.0, 60.0]) == 0.5  # one waited for a CPU
    assert storage._compute_speed([1.0, 1.0], [0.0, 0.0]) == 1.0
    assert storage._compute_speed([3.0], [3.0]) == 1.0
    assert storage._compute_speed([*[1.0] * 30, 31.0], [*[0.0] * 30, 31.0]) == 1.0  # all took the CPU from one step


def test_slices_that_waited_for_a_cpu_do_not_count() -> None:
    """Only where the page cache is read: a device may be slow for reasons of its own."""
    big, small = 1 << 20, 96 << 10
    parts = [[big] * 24, [small] * 96, [big] * 12]
    quiet = [size / 2e10 + 1e-6 for part in parts for size in part]
    for seed in range(20):
        times = np.array(quiet)
        times[np.random.default_rng(seed).choice(len(times), 6, replace=False)] += 3e-3
        found = storage._fit(parts, [times.tolist()], is_copied=True)
        assert found.bytes_per_second == pytest.approx(2e10, rel=0.02)
        assert found.request_s == pytest.approx(1e-6, abs=1e-6)
    assert storage._fit(parts, [times.tolist()]).bytes_per_second != pytest.approx(2e10, rel=0.5)


def test_slices_that_arrive_together_are_not_taken_for_faster() -> None:
    """Slices of two threads count in order: each when the one before it, perhaps the other thread's, has arrived."""
    big, small = 1 << 20, 96 << 10
    for count in (2, 4, 6, 8):
        parts = [[big] * count, [small] * 4 * count, [big] * max(count // 2, 1)]
        times = [each for part in parts for each in _in_pairs([size / 2e10 for size in part])]
        found = storage._fit(parts, [times] * 3, is_copied=True)
        assert found.bytes_per_second == pytest.approx(2e10, rel=0.25)


def _in_pairs(seconds: list[float]) -> list[float]:
    """Times of slices of which every second one arrives with the one before it."""
    last = seconds[-1:] if len(seconds) % 2 else []
    return [*(t for pair in zip(seconds[::2], seconds[1::2], strict=False) for t in (sum(pair), 0.0)), *last]


def test_loads_beside_steps_are_those_that_a_step_outlasts() -> None:
    """When the steps are over the caller reads, too, and twice as fast as beside them."""
    bounds = [*(i * 1e-4 for i in range(17)), *(16e-4 + i * 5e-5 for i in range(1, 17))]
    loads, steps = (array("d", chain(*pairwise(each))) for each in (bounds, (0.0, 9e-4, 16e-4)))
    found = storage._beside_per_byte([1000] * 32, loads, steps)
    assert found == pytest.approx([1e-7] * (16 // storage.GROUP_MIN))
    assert storage._beside_per_byte([1000], array("d", [0.0, 1.0]), array("d", [0.0, 0.5])) == []


def test_speeds_beside_loads_are_measured_in_small_arenas() -> None:
    """With as many panels of a node as half of the arena holds."""

    def cases() -> list[compute.Case]:
        known = compute.NodeCosts([], np.zeros(1, np.int32), 16, 1 << 20, 0, ())
        variants = [compute.Variant("direct", 0, 0, 1e-6, taken) for taken in (1e-4, 2e-4, 9e-4)]
        return [compute.Case(f"k{i}", 0, variant, known, 1 << 20, 2, 16) for i, variant in enumerate(variants)]

    found = device._typical(cases(), 10 << 20, 1e-3)
    assert found is not None
    assert (found.key, found.large) == ("k1", 4)
    found = device._typical(cases(), 64 << 20, 1e-4)
    assert found is not None
    assert (found.key, found.large) == ("k0", 16)
    assert device._typical(cases(), 3 << 20, 1e-3) is None


def test_where_compute_threads_read_the_speed_of_steps_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "usable_cpus", lambda: 2.0)
    assert storage.shared_speeds(2, direct=False) == (0.5, 0.5)
    assert storage.shared_speeds(4, direct=False) == (0.75, 0.25)
    assert storage.shared_speeds(1, direct=False) is None
    assert storage.shared_speeds(2, direct=True) is None
    monkeypatch.setattr(_core, "usable_cpus", lambda: 3.0)
    assert storage.shared_speeds(2, direct=False) is None


def test_a_throttled_loader_disturbs_less() -> None:
    machine = replace(
        ANALYTIC,
        storage_bytes_per_second=4e9,
        request_s=1e-4,
        compute_speed=0.6,
        load_speed=0.8,
    )
    slow = measure.throttled(machine, 10**9)
    assert slow.storage_bytes_per_second == 10**9
    assert slow.compute_speed == pytest.approx(0.9)
    assert slow.load_speed == pytest.approx(0.95)
    assert measure.throttled(machine, 10**11) == machine
