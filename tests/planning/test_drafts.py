"""Drafts: slices cover each weight once, pins keep to the memory, times are those of an event-driven definition."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Setting
from flexnn.planning.costs import graph_costs
from flexnn.planning.drafts import Drafting, Filled, _twins
from flexnn.planning.layout import place_activations
from flexnn.planning.types import Costs, Placement
from tests.support.plan_graphs import mobilenet, random_graph, resnet
from tests.support.plans import ALIGNS, FAST_DISK

USB = MachineProfile(flops_per_second=2e10, bytes_per_second=4e9, storage_bytes_per_second=257e6, request_s=1e-4)
ALONE = MachineProfile(flops_per_second=1e9, bytes_per_second=1e9)


def order_of(rank: NDArray[Any]) -> NDArray[np.int32]:
    """Items by their rank, the lowest first."""
    return np.argsort(rank, kind="stable").astype(np.int32)


def _stages(graph: Graph, io_align: int = 64, machine: MachineProfile = FAST_DISK) -> tuple[Costs, Placement, Drafting]:
    costs = graph_costs(graph, Setting(machine, 2, io_align))
    placement = place_activations(costs)[0]
    return costs, placement, Drafting(graph, costs, placement, machine, 320)


@pytest.mark.parametrize("seed", range(50))
def test_twins_are_rings_of_items_with_the_same_bytes_of_the_file(seed: int) -> None:
    choose = random.Random(seed)
    keys = [(choose.random() < 0.5, choose.choice((-1, 0, 64)), choose.choice((10, 20))) for _ in range(seed % 14)]
    twins = _twins(keys)
    for item, key in enumerate(keys):
        ring = [item]
        while twins[ring[-1]] != item:
            ring.append(twins[ring[-1]])
            assert len(ring) <= len(keys)
        same = [other for other in range(len(keys)) if keys[other] == key]
        assert sorted(ring) == (same if key[1] >= 0 else [item])


@pytest.mark.parametrize("io_align", ALIGNS)
@pytest.mark.parametrize("seed", range(20))
def test_slices_cover_each_weight_once(seed: int, io_align: int) -> None:
    rng = random.Random(seed)
    costs, placement, drafting = _stages(random_graph(seed), io_align)
    for slices_in_room in (1, 2, 4, 8):
        working = placement.working_bytes_min + rng.choice((0, 10_000, 1_000_000))
        memory = working + rng.choice((0, 50_000, 500_000, 1 << 30))
        order = np.array(rng.sample(range(len(drafting.items)), len(drafting.items)), np.int32)
        choices, seconds, nbytes = drafting.choose(order, working, memory, slices_in_room)
        draft = drafting.place(choices, working)
        assert draft.seconds >= seconds * (1 - 1e-9)  # addresses never make a run shorter
        assert draft.nbytes == nbytes == working + draft.pinned_bytes + 320 * draft.rows
        assert nbytes <= memory or not draft.pinned_bytes
        reached = [0] * len(costs.nodes)
        for node, p0, p1 in draft.steps[["node", "p0", "p1"]].tolist():
            assert p0 == reached[node]
            assert p1 > p0 or not costs.nodes[node].panels
            reached[node] = p1
        assert reached == [node.panels for node in costs.nodes]
        panels = draft.slices["constant"] < 0
        assert draft.slices["bytes"][panels].sum() == sum(node.weight_bytes for node in costs.nodes)
        assert draft.steps["wait_loads"][-1] == (draft.slices["is_pinned"] == 0).sum()


def test_more_room_makes_fewer_slices() -> None:
    _, placement, drafting = _stages(resnet())
    order = order_of(drafting.item_bytes)
    counts = []
    for extra in (0, 1 << 20, 1 << 24, 1 << 26):
        working = placement.working_bytes_min + extra
        counts.append(len(drafting.place(drafting.choose(order, working, working, 2)[0], working).steps))
    assert counts[0] > counts[1] > counts[2] >= counts[3] == drafting.node_count


def test_workspace_gives_way_to_weights() -> None:
    """With little room a kernel with a small workspace; with much, the fastest."""
    costs, placement, drafting = _stages(resnet())
    order = order_of(drafting.item_bytes)
    least = placement.working_bytes_min
    tight, _, _ = drafting.choose(order, least, least, 2, smallest=True)
    loose, _, _ = drafting.choose(order, 1 << 30, 1 << 31, 2)
    assert tight["variant"].tolist() == [len(node.variants) - 1 for node in costs.nodes]
    assert not loose["variant"].any()
    assert any(len(node.variants) > 1 for node in costs.nodes)


def test_improving_keeps_to_the_memory_and_pays() -> None:
    _, placement, drafting = _stages(resnet())
    working = placement.working_bytes_min + (1 << 19)
    memory = working + 400 * 320
    choices, seconds, nbytes = drafting.choose(order_of(drafting.item_bytes), working, memory, 2)
    assert nbytes <= memory
    better = drafting.improve(choices, working, memory, 2000)
    assert better < seconds * 0.99
    assert drafting.place(choices, working).nbytes <= memory


@pytest.mark.parametrize("seed", range(20))
def test_what_was_drafted_before_does_not_matter(seed: int) -> None:
    """Drafts are made from what the one before has: with any other before it they are the same."""
    rng = random.Random(seed)
    graph = random_graph(seed)
    costs, placement, used = _stages(graph)
    working = placement.working_bytes_min + sum(used.item_bytes) + (1 << 20)
    choices, _, _ = used.choose(order_of(used.item_bytes), working, working + (1 << 30), 2)
    for turn in range(30):
        node = rng.randrange(len(choices))
        panels = costs.nodes[node].panels
        choices["pinned_panels"][node] = pinned = rng.choice((0, panels, rng.randint(0, panels)))
        choices["slice_panels"][node] = rng.randint(1, panels - pinned) if pinned < panels else 0
        choices["variant"][node] = len(costs.nodes[node].variants) - 1
        wide = working + (1 << 22) * (turn % 7 == 6)
        draft = used.place(choices.copy(), wide)
        fresh = Drafting(graph, costs, placement, FAST_DISK, 320).place(choices.copy(), wide)
        assert draft.steps.tobytes() == fresh.steps.tobytes()
        assert draft.slices.tobytes() == fresh.slices.tobytes()
        assert (draft.nbytes, draft.seconds) == (fresh.nbytes, fresh.seconds)
        if turn % 5 == 4:  # leaves slices that are no choices'
            used.fill(draft, Filled(tuple(range(used.node_count)), *[draft.nbytes + (1 << 20)] * 2, 50))


def test_filling_is_monotone() -> None:
    _, placement, drafting = _stages(resnet())
    working = placement.working_bytes_min + (1 << 20)
    draft = drafting.place(drafting.choose(order_of(drafting.item_bytes), working, working, 4)[0], working)
    rank = tuple(range(drafting.node_count))
    times, most = [], draft.nbytes + (60 << 20)
    for spare in range(0, 60 << 20, 5 << 20):
        filled = drafting.fill(draft, Filled(rank, draft.nbytes + spare, most, 200))
        assert filled.nbytes <= draft.nbytes + spare
        assert (filled.slices["wait_steps"] == draft.slices["wait_steps"]).all()
        assert filled.steps["wait_loads"][-1] == (filled.slices["is_pinned"] == 0).sum()
        times.append(filled.seconds)
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_filling_pins_what_is_waited_for() -> None:
    """Rather than what comes first, where memory already hides the reading."""
    _, placement, drafting = _stages(resnet())
    working = placement.working_bytes_min + (1 << 20)
    draft = drafting.place(drafting.choose(order_of(drafting.item_bytes), working, working, 4)[0], working)
    rank, memory = tuple(range(drafting.node_count)), draft.nbytes + (10 << 20)
    looking, ranked = (drafting.fill(draft, Filled(rank, memory, memory, looks)).seconds for looks in (2000, 0))
    assert looking < 0.99 * ranked


def test_annealing_keeps_to_the_memory_and_pays() -> None:
    _, placement, drafting = _stages(mobilenet(), machine=USB)
    working = placement.working_bytes_min + (1 << 18)
    memory = working + (6 << 20)
    choices, _, nbytes = drafting.choose(order_of(drafting.item_bytes), working, memory, 2)
    assert nbytes <= memory
    draft = drafting.place(choices, working)
    before = choices.copy()
    annealed = drafting.anneal(draft, memory, 500)
    assert annealed.nbytes <= memory
    assert annealed.seconds < 0.99 * draft.seconds
    assert (draft.choices == before).all()
    again = drafting.anneal(draft, memory, 500)
    assert (again.choices == annealed.choices).all()
    assert again.seconds == annealed.seconds
    for little in (0, nbytes - 1):  # no room for what comes in: it is left as it is
        assert drafting.anneal(draft, little, 500) is draft


def test_annealing_goes_on_from_what_filling_pinned() -> None:
    _, placement, drafting = _stages(mobilenet())
    working = placement.working_bytes_min + (1 << 18)
    draft = drafting.place(drafting.choose(order_of(drafting.item_bytes), working, working, 4)[0], working)
    memory = draft.nbytes + (3 << 20)
    filled = drafting.fill(draft, Filled(tuple(range(drafting.node_count)), memory, memory, 200))
    annealed = drafting.anneal(filled, memory, 0)
    assert annealed.seconds <= filled.seconds < draft.seconds
    pinned = drafting.as_pinned(filled)
    placed = drafting.place(pinned, working)
    assert placed.pinned_bytes == filled.pinned_bytes
    assert placed.nbytes <= filled.nbytes


def test_hostile_tables_are_refused() -> None:
    _, placement, drafting = _stages(random_graph(1))
    core = drafting._core
    working = placement.working_bytes_min
    choices, _, _ = drafting.choose(order_of(drafting.item_bytes), working, working, 2)
    for name, value in (("variant", 99), ("variant", -1), ("slice_panels", 0), ("pinned_panels", 1 << 30)):
        wrong = choices.copy()
        wrong[name] = value
        with pytest.raises(ValueError, match="choice"):
            core.place(wrong, working)
    with pytest.raises(ValueError, match="order"):
        core.choose(choices, np.full(len(drafting.items), 1 << 20, np.int32), working, working, 2)
    with pytest.raises(ValueError, match="choices have"):
        core.place(choices[:-1], working)
    steps, slices = (
        np.array(x) for x in (drafting.place(choices, working).steps, drafting.place(choices, working).slices)
    )
    for order in ([-1], [len(slices)]):
        with pytest.raises(ValueError, match="range"):
            core.fill(steps, slices, np.array(order, np.int32), working, 0, 0, 0)
    slices["wait_steps"] = len(steps)
    with pytest.raises(ValueError, match="range"):
        core.fill(steps, slices, np.zeros(0, np.int32), working, 0, 0, 0)


# ---- times ----


def _timeline(
    machine: MachineProfile, step_s: list[float], use: list[int], load_s: list[float], wait_steps: list[int]
) -> tuple[float, float]:
    """(seconds, stall) of the core for steps and loads of these times: loads of as many bytes, one node for each step
    with room for all of them.
    """
    core, steps, slices = _run_of(machine, step_s, use, load_s, wait_steps)
    (seconds, stall, _), _, _ = core.fill(steps, slices, np.zeros(0, np.int32), 0, 0, 0, 0)
    return seconds, stall


def _run_of(
    machine: MachineProfile, step_s: list[float], use: list[int], load_s: list[float], wait_steps: list[int]
) -> tuple[Any, NDArray[Any], NDArray[Any]]:
    """Drafts of nodes of a step each, and the steps and slices of one."""
    nodes = np.zeros(len(step_s), _core.DRAFT_NODE_DTYPE)
    nodes["panel_count"], nodes["panel_bytes"], nodes["variant_count"] = 16, 64, 1
    core = _core.Drafts(
        nodes=nodes,
        variants=np.zeros(1, _core.VARIANT_DTYPE),
        constants=np.zeros(0, _core.CONSTANT_DTYPE),
        gaps=np.zeros(0, _core.GAP_DTYPE),
        items=np.array([(i, -1, i) for i in range(len(step_s))], _core.ITEM_DTYPE),
        lifetimes=np.zeros(0, _core.LIFETIME_DTYPE),
        io_align=64,
        step_bytes=0,
        storage_bytes_per_second=1.0,
        request_s=0.0,
        compute_speed=machine.compute_speed,
        load_speed=machine.load_speed,
    )
    steps = np.zeros(len(step_s), _core.DRAFT_STEP_DTYPE)
    steps["seconds"] = step_s
    steps["wait_loads"] = np.searchsorted(use, np.arange(len(step_s)), "right")
    slices = np.zeros(len(use), _core.DRAFT_SLICE_DTYPE)
    slices["step"], slices["arena_bytes"], slices["wait_steps"] = use, load_s, wait_steps
    return core, steps, slices


def test_pipelines_by_hand() -> None:
    assert _timeline(ALONE, [1.0, 2.0], [], [], [])[0] == 3.0
    # On demand: each load waits for its own step's turn.
    assert _timeline(ALONE, [1.0, 1.0], [0, 1], [3.0, 3.0], [0, 1]) == (8.0, 6.0)
    # Preloaded: the second load runs while the first step computes, the first while the run before ends.
    assert _timeline(ALONE, [4.0, 4.0], [0, 1], [3.0, 3.0], [-1, 0]) == (8.0, 0.0)
    # Reading rules.
    assert _timeline(ALONE, [1.0, 1.0], [0, 1], [3.0, 3.0], [-1, 0])[0] == pytest.approx(6.0)
    # Where each halves the other's speed nothing is gained by doing both at once.
    halved = replace(ALONE, compute_speed=0.5, load_speed=0.5)
    assert _timeline(halved, [4.0, 4.0], [0, 1], [3.0, 3.0], [-1, 0])[0] == pytest.approx(14.0)


def _events(
    machine: MachineProfile,
    step_s: list[float],
    wait_loads: list[int],
    load_s: list[float],
    wait_steps: list[int],
    runs: int,
) -> float:
    """Last run's time by moving a clock from event to event over both counters."""
    steps, loads = len(step_s), len(load_s)
    now, done_steps, done_loads = 0.0, 0, 0
    step_left: float | None = None
    load_left: float | None = None
    ends = []
    while done_steps < runs * steps:
        if step_left is None:
            run, j = divmod(done_steps, steps)
            if done_loads >= run * loads + wait_loads[j]:
                step_left = step_s[j]
        if load_left is None and loads:
            run, i = divmod(done_loads, loads)
            if done_steps >= run * steps + wait_steps[i]:
                load_left = load_s[i]
        both = step_left is not None and load_left is not None
        compute, load = (machine.compute_speed, machine.load_speed) if both else (1.0, 1.0)
        passed = min(left / speed for left, speed in ((step_left, compute), (load_left, load)) if left is not None)
        now += passed
        if step_left is not None:
            step_left -= passed * compute
            if step_left < 1e-9:
                done_steps, step_left = done_steps + 1, None
                if done_steps % steps == 0:
                    ends.append(now)
        if load_left is not None:
            load_left -= passed * load
            if load_left < 1e-9:
                done_loads, load_left = done_loads + 1, None
    return ends[-1] - ends[-2]


@pytest.mark.parametrize("seed", range(60))
def test_equals_the_event_driven_definition(seed: int) -> None:
    rng = random.Random(seed)
    steps, loads = rng.randint(1, 12), rng.randint(0, 15)
    uses = sorted(rng.randrange(steps) for _ in range(loads))
    waits, floor = [], 1 - steps
    for use in uses:
        floor = max(floor, rng.randint(max(use + 1 - steps, -3), use))
        waits.append(floor)
    wait_loads = [sum(u <= j for u in uses) for j in range(steps)]
    step_s = [float(rng.randint(1, 9)) for _ in range(steps)]
    load_s = [float(rng.randint(1, 9)) for _ in range(loads)]
    machine = replace(
        ALONE,
        compute_speed=rng.choice((0.4, 0.75, 1.0)),
        load_speed=rng.choice((0.4, 0.75, 1.0)),
    )
    found, _ = _timeline(machine, step_s, uses, load_s, waits)
    assert found == pytest.approx(_events(machine, step_s, wait_loads, load_s, waits, 3))


def test_ctrl_c_ends_filling() -> None:
    """Filling takes a second with so many slices and looks."""

    class StopError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StopError

    count, most = 4000, 1 << 40
    core, steps, slices = _run_of(ALONE, [1.0] * count, [*range(count)], [1] * count, [*range(count)])
    order = np.arange(count, dtype=np.int32)
    core.fill(steps, slices, order[:0], 0, most, most, 0)  # takes the memory
    begun = time.thread_time()
    core.fill(steps, slices, order, 0, most, most, 20_000)
    whole = time.thread_time() - begun
    before = signal.signal(signal.SIGPROF, stop)
    try:
        begun = time.thread_time()
        signal.setitimer(signal.ITIMER_PROF, whole / 10)
        with pytest.raises(StopError):
            core.fill(steps, slices, order, 0, most, most, 20_000)
        assert time.thread_time() - begun < whole / 2
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    core.fill(steps, slices, order[:0], 0, most, most, 0)  # and goes on
