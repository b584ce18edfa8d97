"""Whole plans: minima, budgets in between, the checker's consent, how memory is used."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flexnn.graph.ir import Graph
from flexnn.planning import BudgetError, MachineProfile, Planner, Setting, ladder, make_plan
from flexnn.planning.ladder import Ladder
from flexnn.planning.layout import activations
from flexnn.planning.variant_planner import VariantPlanner
from tests.support.plan_graphs import CLASSICS, random_graph, resnet, vgg19
from tests.support.plans import ALIGNS, FAST_DISK, PI, checked, minimum_of

MIB = 1 << 20
MINIMUM_MIB = {"vgg19": 12, "resnet152": 10, "mobilenet_v2": 7.5, "squeezenet1_1": 6.5}


@pytest.fixture(scope="module", params=CLASSICS)
def classic(request: pytest.FixtureRequest) -> tuple[str, Graph]:
    return request.param, CLASSICS[request.param]()


def test_minimum_is_small_and_true(classic: tuple[str, Graph]) -> None:
    name, graph = classic
    minimum = minimum_of(graph)
    assert minimum <= MINIMUM_MIB[name] * MIB
    checked(graph, minimum)
    with pytest.raises(BudgetError, match=str(minimum)) as refusal:
        make_plan(graph, Setting(FAST_DISK, threads=2), minimum - 1)
    assert (refusal.value.minimum, refusal.value.budget) == (minimum, minimum - 1)


def test_minimum_by_bisection(classic: tuple[str, Graph]) -> None:
    """The least budget that does not raise is the one that the refusal names."""
    _, graph = classic
    named = minimum_of(graph)
    low, high = 0, 1 << 30
    while high - low > 1:
        middle = (low + high) // 2
        try:
            make_plan(graph, Setting(FAST_DISK, threads=2), middle)
            high = middle
        except BudgetError:
            low = middle
    assert high == named


@pytest.mark.parametrize("io_align", ALIGNS)
@pytest.mark.parametrize("machine", [FAST_DISK, PI], ids=["fast disk", "pi"])
def test_budgets_in_between(classic: tuple[str, Graph], machine: object, io_align: int) -> None:
    _, graph = classic
    minimum = minimum_of(graph, io_align=io_align, machine=machine)  # type: ignore[arg-type]
    unlimited = checked(graph, None, io_align=io_align, machine=machine)  # type: ignore[arg-type]
    assert not len(unlimited.program.loads)
    assert unlimited.stall_ms == 0
    budgets = {int(minimum * f) for f in (1, 1.01, 1.1, 1.25, 1.5, 2, 4, 8)}
    budgets |= {(minimum + unlimited.session_bytes) // 2, unlimited.session_bytes - 1, unlimited.session_bytes}
    times = []
    for budget in sorted(b for b in budgets if minimum <= b <= unlimited.session_bytes):
        plan = checked(graph, budget, io_align=io_align, machine=machine)  # type: ignore[arg-type]
        assert plan.minimum_memory == minimum
        times.append(plan.predicted_ms)
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(times)), times  # more memory is never slower
    assert times[-1] == pytest.approx(unlimited.predicted_ms)


@settings(max_examples=25)
@given(
    st.integers(0, 200), st.lists(st.integers(0, 4_000_000), min_size=2, max_size=6), st.sampled_from([FAST_DISK, PI])
)
@example(114, [12_134, 24_064], PI)  # room for two slices at once, which the lower rung's draft does without
def test_more_memory_is_never_slower(seed: int, extras: list[int], machine: MachineProfile) -> None:
    graph = random_graph(seed)
    minimum = minimum_of(graph, machine=machine)
    times = [checked(graph, minimum + extra, machine=machine).predicted_ms for extra in sorted(extras)]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(times)), times


def test_minimum_does_not_depend_on_rates(classic: tuple[str, Graph]) -> None:
    """It is named by one process and used by another, each of which measures its own."""
    _, graph = classic
    slow_reads = MachineProfile(flops_per_second=3e11, bytes_per_second=2e9, storage_bytes_per_second=1e7)
    fast_reads = MachineProfile(flops_per_second=4e9, bytes_per_second=9e9, storage_bytes_per_second=2e10)
    assert minimum_of(graph, machine=slow_reads) == minimum_of(graph, machine=fast_reads) == minimum_of(graph)


def test_finer_slices_wait_for_memory(classic: tuple[str, Graph]) -> None:
    """Records of steps that the smallest budget could do without took 2.4 % of VGG-19's. They take half a percent; a
    budget that has room for all of them is faster.
    """
    _, graph = classic
    planner = Planner(graph, Setting(FAST_DISK, threads=2)).tightest
    least, minimum = planner._least, planner.minimum
    assert 0 < least.paired_bytes - least.draft_bytes <= 0.005 * minimum
    sliced = planner.plan(minimum + least.sliced_bytes - least.nbytes)
    assert sliced.predicted_ms < planner.plan(minimum).predicted_ms


def test_the_smallest_budget_has_room_for_one_slice_at_once(classic: tuple[str, Graph]) -> None:
    """Slices that take all of their room need few records, and none is loaded beside one in use. With room for two,
    loads are behind computing again.
    """
    _, graph = classic
    planner = Planner(graph, Setting(FAST_DISK, threads=2)).tightest
    assert planner.minimum < planner.paired_memory
    single, paired = planner.plan(planner.minimum), planner.plan(planner.paired_memory)
    assert planner._single_draft().rows < planner._tight_draft().rows
    assert paired.predicted_ms <= single.predicted_ms <= 2 * paired.predicted_ms


def test_no_draft_takes_more_than_its_budget() -> None:
    """The tightest one of another placement may: a recogniser's took five steps more, and its runs were refused."""
    planner = VariantPlanner(CLASSICS["resnet152"](), Setting(FAST_DISK, threads=2))
    slow = replace(planner._single_draft(), seconds=math.inf)
    assert planner._ladder()._placed(0, [], slow.nbytes - 1, slow) is slow
    assert planner._ladder()._placed(0, [], slow.nbytes, slow) is not slow


def test_rungs_that_fall_behind_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a rung that takes 3 % more than the best known no plan was better, and each rung takes a millisecond."""
    graph, looked = CLASSICS["resnet152"](), list[int]()
    drafted = Ladder._drafted

    def counted(self: Ladder, bytes_max: int, *rest: Any) -> Any:
        looked.append(bytes_max)
        return drafted(self, bytes_max, *rest)

    monkeypatch.setattr(Ladder, "_drafted", counted)
    memory = minimum_of(graph) * 3 // 2
    few = make_plan(graph, Setting(FAST_DISK, threads=2), memory)
    rungs = len(looked)
    monkeypatch.setattr(ladder, "FALLING", math.inf)
    every = make_plan(graph, Setting(FAST_DISK, threads=2), memory)
    assert few.predicted_ms == every.predicted_ms
    assert 4 * rungs <= 3 * (len(looked) - rungs)


def test_memory_left_over_is_used() -> None:
    """Weights are not streamed while memory lies idle."""
    graph = resnet()
    planner = VariantPlanner(graph, Setting(FAST_DISK, threads=2))
    unlimited = planner.plan(None)
    plan = planner.plan(unlimited.session_bytes * 3 // 4)
    assert plan.session_bytes >= 0.98 * (unlimited.session_bytes * 3 // 4)
    assert plan.pinned_bytes >= 0.5 * unlimited.pinned_bytes
    assert plan.pinned_bytes + plan.bytes_read_per_run == unlimited.pinned_bytes


def test_streaming_is_near_the_bound() -> None:
    """On a slow disk reading rules, and the plan reads nearly all the time."""
    for graph in (resnet(), vgg19()):
        for factor in (1.5, 3, 8):
            plan = checked(graph, int(minimum_of(graph) * factor), machine=PI)
            assert plan.predicted_ms <= 1.2 * plan.bound_ms


def test_activations_lie_where_streams_lose_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the smallest budget the gaps of one placement take the next layers' slices sooner than those of another."""
    graph, machine = vgg19(), MachineProfile(20e9, 5e9, 257e6, 100e-6)

    def predicted_ms() -> float:
        planner = VariantPlanner(graph, Setting(machine))
        return planner.plan(planner.minimum).predicted_ms

    several = predicted_ms()
    monkeypatch.setattr(activations, "ALTERNATIVES", ())
    assert several < 0.99 * predicted_ms()


def test_requests_for_slices_count_in_the_bound() -> None:
    """A weight that its node's memory cannot hold takes several requests, even where bytes cost nothing."""
    graph = vgg19()
    machine = MachineProfile(1e15, 1e15, 1e15, 1e-3)
    minimum = minimum_of(graph, machine=machine)
    weights = sum(weight.nbytes > 64 << 10 for weight in graph.weights)
    assert checked(graph, minimum, machine=machine).bound_ms > weights


def test_tight_plan_is_not_shredded() -> None:
    """Slices only where a layer's room needs them."""
    graph = resnet()
    plan = checked(graph, minimum_of(graph))
    panels = sum(w.nbytes // w.chunk_bytes for w in graph.weights)
    assert len(plan.program.steps) < panels / 3


def test_head_is_loaded_in_the_tail_of_the_run_before() -> None:
    graph = vgg19()
    plan = checked(graph, 2 * minimum_of(graph))
    assert (plan.program.loads["wait_steps"] < 0).any()


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    graph = random_graph(seed)
    for io_align in ALIGNS:
        for threads in (1, 3):
            minimum = minimum_of(graph, threads=threads, io_align=io_align)
            for extra in (0, 64, 5000, 40_000, 300_000, 3_000_000):
                checked(graph, minimum + extra, threads=threads, io_align=io_align)
            with pytest.raises(BudgetError):
                make_plan(graph, Setting(FAST_DISK, threads, io_align), minimum - 1)
            checked(graph, None, threads=threads, io_align=io_align)


def test_plan_describes_itself() -> None:
    plan = checked(resnet(size=64), None)
    told = plan.describe()
    assert told["arena_bytes"] + sum(told["overhead"].values()) == told["session_bytes"] == plan.session_bytes
    assert sum(told["kernels"].values()) == len(plan.program.nodes)
    assert told["steps"] == len(plan.program.steps)
    assert set(plan.addresses()) == {"loads", "pinned", "outputs", "workspace"}
    assert "arena" in plan.summary()


def test_a_plan_that_ctrl_c_ends_leaves_no_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """They waited for a collection of all objects: after many such plans it held the next Ctrl-C up for 1.3 s."""
    planner = Planner(resnet((1, 1), 64), Setting(FAST_DISK))

    def stop(planner: Planner, *_: int) -> None:
        assert "_ways" in vars(planner)
        raise KeyboardInterrupt

    gone = weakref.ref(planner)
    monkeypatch.setattr("flexnn.planning.best.Best", stop)
    gc.disable()
    try:
        planner.plan(planner.whole.minimum - 1)
    except KeyboardInterrupt:
        del planner
    finally:
        gc.enable()
    assert gone() is None
