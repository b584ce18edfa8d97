"""The timeline against hand-computed cases and an event-driven definition; waits against exhaustive search."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from flexnn.plan import Machine
from flexnn.plan.simulate import earliest_waits, simulate

ALONE = Machine(flops_per_second=1e9, bytes_per_second=1e9)


def test_pipelines_by_hand() -> None:
    assert simulate(ALONE, [1.0, 2.0], [0, 0], [], []).seconds == 3.0
    # On demand: each load waits for its own step's turn.
    on_demand = simulate(ALONE, [1.0, 1.0], [1, 2], [3.0, 3.0], [0, 1])
    assert (on_demand.seconds, on_demand.stall_s) == (8.0, 6.0)
    # Preloaded: the second load runs while the first step computes, the first while the run before ends.
    ahead = simulate(ALONE, [4.0, 4.0], [1, 2], [3.0, 3.0], [-1, 0])
    assert (ahead.seconds, ahead.stall_s) == (8.0, 0.0)
    # Reading rules.
    assert simulate(ALONE, [1.0, 1.0], [1, 2], [3.0, 3.0], [-1, 0]).seconds == pytest.approx(6.0)
    # Where each halves the other's speed nothing is gained by doing both at once.
    halved = replace(ALONE, compute_share=0.5, load_share=0.5)
    assert simulate(halved, [4.0, 4.0], [1, 2], [3.0, 3.0], [-1, 0]).seconds == pytest.approx(14.0)


def _events(
    machine: Machine,
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
        compute, load = (machine.compute_share, machine.load_share) if both else (1.0, 1.0)
        passed = min(left / share for left, share in ((step_left, compute), (load_left, load)) if left is not None)
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
    shares = [rng.choice((0.4, 0.75, 1.0)) for _ in range(2)]
    machine = replace(ALONE, compute_share=shares[0], load_share=shares[1])
    assert simulate(machine, step_s, wait_loads, load_s, waits).seconds == pytest.approx(
        _events(machine, step_s, wait_loads, load_s, waits, 3)
    )


@pytest.mark.parametrize("seed", range(60))
def test_waits_are_the_earliest_that_fit(seed: int) -> None:
    """Two runs unrolled, each wait found by trying all."""
    rng = random.Random(seed)
    steps = rng.randint(1, 8)
    use = sorted(rng.randrange(steps) for _ in range(rng.randint(1, 8)))
    size = [rng.randint(1, 5) for _ in use]
    free = [rng.randint(5, 14) + sum(s for s, u in zip(size, use, strict=True) if u == i) for i in range(steps)]
    found = earliest_waits(np.array(free), np.array(size), np.array(use))
    count = len(use)
    uses, sizes = use + [u + steps for u in use], size + size
    for k in range(count, 2 * count):
        start = uses[k]
        while start > 0 and all(
            sum(sizes[p] for p in range(k + 1) if uses[p] >= i) <= free[i % steps]
            for i in range(start - 1, uses[k] + 1)
        ):
            start -= 1
        wait = max(start - steps, use[k - count] + 1 - steps)
        assert found[k - count] == wait
