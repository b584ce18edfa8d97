"""The bound: below every plan, close to it, and never rising with memory."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from flexnn import _core
from flexnn.planning import MachineProfile
from flexnn.planning.setting import Setting
from flexnn.planning.variant_planner import VariantPlanner
from tests.support.plan_graphs import CLASSICS
from tests.support.plans import PI, checked, minimum_of

USB = MachineProfile(
    flops_per_second=2e10, bytes_per_second=4e9, storage_bytes_per_second=257e6, request_s=1e-4, step_s=1e-5
)
FACTORS = (1, 1.25, 1.5, 2, 4)


def test_plans_come_near_it() -> None:
    logs = []
    for make in CLASSICS.values():
        graph = make()
        whole = VariantPlanner(graph, Setting(USB, 2, 64)).minimum  # where no activation is tiled
        for factor in FACTORS:
            plan = checked(graph, int(whole * factor), machine=USB)
            logs.append(math.log(plan.predicted_ms / plan.bound_ms))
    assert math.exp(sum(logs) / len(logs)) < 1.059


def test_falls_with_memory() -> None:
    graph = CLASSICS["resnet152"]()
    minimum = minimum_of(graph, machine=PI)
    bounds = [checked(graph, int(minimum * factor), machine=PI).bound_ms for factor in FACTORS]
    assert all(b <= a for a, b in pairwise(bounds))


def _fluid_run(
    seconds: list[float],
    nbytes: list[int],
    free: list[int],
    byte_s: list[float],
    pinned: list[int],
    grain: int,
    runs: int,
    resident: int | None = None,
) -> float:
    """The last of some runs, byte by byte (``grain`` of them at a time): the loader reads ahead as memory lets it,
    each grain is computed as soon as it is there. A node's grains give their memory back one by one. ``resident``:
    memory of what is pinned, if nodes share it.
    """
    steps, reads = [], []
    for node, (took, size, stays) in enumerate(zip(seconds, nbytes, pinned, strict=True)):
        count = size // grain
        for i in range(max(count, 1)):
            streamed = i >= stays // grain and i < count
            steps.append((node, took / max(count, 1), streamed))
            if streamed:
                reads.append(len(steps) - 1)
    total = len(steps)
    computed = [0.0] * (runs * total + 1)
    loaded = 0.0
    order = [run * total + step for run in range(runs) for step in reads]
    came: dict[int, float] = {}
    at = 0
    resident = sum(pinned) if resident is None else resident
    for j in range(runs * total):
        while at < len(order) and order[at] <= j:
            target = order[at]
            # Grains read and not computed yet fit, in every node that is computed until this one is.
            after = 0
            for i in range(max(target - 2 * total, 0), target + 1):
                waiting = sum(1 for k in order[max(0, at - 2 * total) : at + 1] if k >= i)
                if resident + waiting * grain > free[steps[i % total][0]]:
                    after = i + 1
            loaded = max(loaded, computed[after]) + grain * byte_s[steps[target % total][0]]
            came[target] = loaded
            at += 1
        node, took, streamed = steps[j % total]
        computed[j + 1] = max(computed[j], came.get(j, 0.0) if streamed else 0.0) + took
    return computed[runs * total] - computed[(runs - 1) * total]


@pytest.mark.parametrize("seed", range(200))
def test_no_fluid_run_is_faster(seed: int) -> None:
    """Whatever is pinned."""
    rng = random.Random(seed)
    count, grain = rng.randint(1, 5), 4
    nbytes = [grain * rng.randint(0, 5) for _ in range(count)]
    seconds = [float(rng.randint(1, 30)) for _ in range(count)]
    rate = rng.choice((0.5, 1.0, 3.0))
    free = [grain * rng.randint(2, 8) for _ in range(count)]
    byte_s = [rng.choice((1, 1, 1.5, 4)) / rate for _ in range(count)]  # with requests
    read_s = np.array(nbytes) * byte_s
    bound, price = _core.fluid_bound(
        np.array(seconds),
        np.array(nbytes),
        read_s,
        np.array(byte_s),
        np.ones(count),
        np.array(free),
        bytes_per_second=rate,
    )
    assert len(price) == count
    assert bound >= sum(seconds)
    for _ in range(8):
        left = max(min(free) - grain, 0)
        pinned = [0] * count
        for i in rng.sample(range(count), count):
            pinned[i] = grain * rng.randint(0, min(nbytes[i], left) // grain)
            left -= pinned[i]
        assert _fluid_run(seconds, nbytes, free, byte_s, pinned, grain, 5) >= bound * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(200))
def test_no_fluid_run_of_shared_weights_is_faster(seed: int) -> None:
    """Whatever is pinned: nodes that share weights read them for each, but pin them once."""
    rng = random.Random(seed)
    count, grain = rng.randint(2, 6), 4
    weight = [rng.randint(0, 2) for _ in range(count)]
    size = [grain * rng.randint(0, 5) for _ in range(3)]
    uses = [float(weight.count(w)) for w in weight]
    nbytes = [size[w] for w in weight]
    seconds = [float(rng.randint(1, 30)) for _ in range(count)]
    free = [grain * rng.randint(2, 8) for _ in range(count)]
    byte_s = [rng.choice((1, 1, 1.5, 4)) for _ in range(count)]
    arrays = np.array(seconds), np.array(nbytes), np.array(nbytes) * byte_s, np.array(byte_s, float)
    bound, _ = _core.fluid_bound(*arrays, np.array(uses), np.array(free), bytes_per_second=1.0)
    for _ in range(8):
        left = max(min(free) - grain, 0)
        stays = [0] * 3
        for w in rng.sample(sorted(set(weight)), len(set(weight))):
            stays[w] = grain * rng.randint(0, min(size[w], left) // grain)
            left -= stays[w]
        pinned = [stays[w] for w in weight]
        assert _fluid_run(seconds, nbytes, free, byte_s, pinned, grain, 5, sum(stays)) >= bound * (1 - 1e-9)


def test_reading_rules_by_hand() -> None:
    def bound(seconds: list[float], nbytes: list[int], free: list[int], **speeds: float) -> float:
        sizes = np.array(nbytes)
        known = np.array(seconds), sizes, sizes / 1.0, *np.ones((2, len(sizes))), np.array(free)
        return _core.fluid_bound(*known, bytes_per_second=1.0, **speeds)[0]

    assert bound([5.0, 5.0], [0, 0], [9, 9]) == 10.0
    # All of 30 bytes but 10 are read in each run.
    assert bound([1.0, 1.0], [15, 15], [10, 10]) == pytest.approx(20.0)
    # The second node's 20 bytes have no room while the first computes: its 10 seconds hide nothing.
    assert bound([10.0, 1.0], [0, 20], [0, 20]) == pytest.approx(30.0)
    # What is dear to read, the last two bytes, comes last: memory holds some of the twenty before it.
    dear = (
        np.array([10.0, 1.0, 1.0, 1.0]),
        np.array([0, 20, 2, 0]),
        np.array([0, 20, 10.0, 0]),
        np.array([1, 1, 5.0, 1]),
        np.ones(4),
    )
    assert _core.fluid_bound(*dear, np.array([4, 4, 4, 0]), bytes_per_second=1.0)[0] == pytest.approx(10 + 16 + 10 + 1)
    # Without looking for stretches there is only reading, or only computing.
    known = np.array([10.0, 1.0]), np.array([0, 20]), np.array([0, 20.0]), *np.ones((2, 2)), np.array([0, 20])
    assert _core.fluid_bound(*known, bytes_per_second=1.0, rounds=0)[0] == pytest.approx(20.0)
    # Ten bytes that both nodes read are pinned once.
    shared = (
        np.ones(2),
        np.array([15, 15]),
        np.array([15.0, 15.0]),
        np.ones(2),
        np.array([2.0, 2.0]),
        np.array([10, 10]),
    )
    assert _core.fluid_bound(*shared, bytes_per_second=1.0)[0] == pytest.approx(10.0)
    # Each at half its speed while both go on.
    assert bound([10.0], [10], [0], compute_speed=0.5, load_speed=0.5) == pytest.approx(20.0)


def _loader_s(slices: list[int], most: int, request_s: float, wait_s: float, first_s: float) -> float:
    """Seconds for slices of so many panels, ``most`` of which fit in memory: requests, and waiting for a step where a
    slice has no room beside the one that computes.
    """
    alone = [first_s + wait_s * a for a, b in pairwise(slices) if a + b > most]
    return request_s * len(slices) + sum(alone)


def _steps_s(slices: list[int], most: int, fixed_s: float, request_s: float, panel_s: float) -> float:
    """The same for who computes: steps, and reading while nothing computes."""
    return fixed_s * len(slices) + sum(request_s + panel_s * b for a, b in pairwise(slices) if a + b > most)


def _slicings(panels: int, most: int) -> Iterator[list[int]]:
    if not panels:
        yield []
    for first in range(1, min(panels, most) + 1):
        yield from ([first, *rest] for rest in _slicings(panels - first, most))


def _terms(
    panels: int,
    panel: int,
    most: int,
    free: int,
    seconds: tuple[float, float],
    *,
    request_s: float,
    bytes_per_second: float,
) -> list[memoryview]:
    """Return the terms of a node with ``panels`` of ``panel`` bytes, of which ``most`` fit in memory at once, and of
    another one without any, beside which ``free`` bytes are free. ``seconds``: of each step, and of all channels.
    """
    arena = 1 << 30
    rows = [
        (panels, panel, 0, 0, 1, 0, 0, 0, 0, 0, arena - most * panel - 63, 0),
        (0, 0, 0, 0, 1, 0, 0, 0, 0, 0, arena - free, 0),
    ]
    return _core.Drafts(
        nodes=np.array(rows, _core.DRAFT_NODE_DTYPE),
        variants=np.array([(0, *seconds)], _core.VARIANT_DTYPE),
        constants=np.zeros(0, _core.CONSTANT_DTYPE),
        gaps=np.zeros(0, _core.GAP_DTYPE),
        items=np.array([(0, -1, 0)], _core.ITEM_DTYPE),
        lifetimes=np.zeros(0, _core.LIFETIME_DTYPE),
        io_align=64,
        step_bytes=320,
        storage_bytes_per_second=bytes_per_second,
        request_s=request_s,
    ).bound_terms(arena)


@pytest.mark.parametrize("seed", range(60))
def test_no_slicing_takes_fewer_requests(seed: int) -> None:
    """However many panels are pinned, in whatever slices the others come."""
    rng = random.Random(seed)
    panels, most, panel = rng.randint(1, 10), rng.randint(1, 6), rng.choice((64, 640))
    request_s, wait_s = rng.choice((0.0, 1.0, 5.0)), rng.choice((0.0, 0.1, 1.0, 7.0))
    first_s = rng.choice((0.0, 0.5, 4.0))
    least_free = rng.choice((0, 1, 3)) * panel  # of another node
    _, nbytes, read_s, byte_s, _ = _terms(
        panels, panel, most, least_free, (first_s, wait_s * panels), request_s=request_s, bytes_per_second=1e30
    )
    seconds, saved = read_s.tolist(), byte_s.tolist()
    assert nbytes.tolist() == [panels * panel, 0]
    for pinned in range(panels + 1):
        slicings = _slicings(panels - pinned, most)
        costs = [_loader_s(slices, most, request_s, wait_s, first_s) for slices in slicings]
        assert min(costs) >= seconds[0] - pinned * panel * saved[0] - 1e-9
    assert seconds[1] < 1e-9
    assert saved[1] < 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_no_slicing_computes_in_less(seed: int) -> None:
    """However many panels are pinned of those that may be."""
    rng = random.Random(seed)
    panels, most, panel = rng.randint(1, 10), rng.randint(1, 6), rng.choice((64, 640))
    fixed_s, request_s, panel_s = (rng.choice((0.0, 0.3, 1.0, 5.0)) for _ in range(3))
    may_stay = rng.choice((0, 0, 1, 3))
    rate = panel / panel_s if panel_s else math.inf
    seconds = _terms(panels, panel, most, may_stay * panel, (fixed_s, 0.0), request_s=request_s, bytes_per_second=rate)[
        0
    ].tolist()
    for pinned in range(min(panels, may_stay, most) + 1):
        first = fixed_s if pinned else 0.0  # pinned panels are a step, and take of the room
        costs = [
            first + _steps_s(slices, most - pinned, fixed_s, request_s, panel_s)
            for slices in _slicings(panels - pinned, most - pinned)
        ]
        assert min(costs, default=math.inf) >= seconds[0] - 1e-9
    assert seconds[1] == fixed_s  # a node without panels is one step
    alone = _terms(2, 64, 1, 0, (2.0, 0.0), request_s=0.5, bytes_per_second=64 / 3)
    assert alone[0].tolist()[0] == pytest.approx(2 * 2.0 + 0.5 + 3)  # nothing hides the second panel


def test_hostile_arguments_are_refused() -> None:
    ok = np.ones(2)
    sizes = np.ones(2, np.int64)
    for few, rate, speeds in (
        (sizes[:1], 1.0, {}),
        (sizes, 0.0, {}),
        (sizes, 1.0, {"compute_speed": 0.0}),
        (sizes, 1.0, {"load_speed": 2.0}),
    ):
        with pytest.raises(ValueError, match=r"lengths|rate"):
            _core.fluid_bound(ok, few, ok, ok, ok, sizes, bytes_per_second=rate, **speeds)
    with pytest.raises(ValueError, match="planning"):
        _core.fluid_bound(ok, sizes, ok, ok, 0 * ok, sizes, bytes_per_second=1.0)
    with pytest.raises(ValueError, match="planning"):
        _core.fluid_bound(ok, sizes, ok, ok, ok, sizes, bytes_per_second=1.0, rounds=_core.ROUNDS_MAX + 1)
