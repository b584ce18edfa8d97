"""The timeline against hand-computed cases and an event-driven definition; waits against exhaustive search."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flexnn.plan.simulate import earliest_waits, simulate


def test_pipelines_by_hand() -> None:
    assert simulate([1.0, 2.0], [0, 0], [], []).seconds == 3.0
    # On demand: each load waits for its own step's turn.
    on_demand = simulate([1.0, 1.0], [1, 2], [3.0, 3.0], [0, 1])
    assert (on_demand.seconds, on_demand.stall_s) == (8.0, 6.0)
    # Preloaded: the second load runs while the first step computes, the first while the run before ends.
    ahead = simulate([4.0, 4.0], [1, 2], [3.0, 3.0], [-1, 0])
    assert (ahead.seconds, ahead.stall_s) == (8.0, 0.0)
    # Reading rules.
    assert simulate([1.0, 1.0], [1, 2], [3.0, 3.0], [-1, 0]).seconds == pytest.approx(6.0)


def _events(step_s: list[float], wait_loads: list[int], load_s: list[float], wait_steps: list[int], runs: int) -> float:
    """Last run's time by moving a clock from event to event over both counters."""
    steps, loads = len(step_s), len(load_s)
    now, done_steps, done_loads = 0.0, 0, 0
    step_ends: float | None = None
    load_ends: float | None = None
    ends = []
    while done_steps < runs * steps:
        if step_ends is None:
            run, j = divmod(done_steps, steps)
            if done_loads >= run * loads + wait_loads[j]:
                step_ends = now + step_s[j]
        if load_ends is None and done_loads < runs * loads:
            run, i = divmod(done_loads, loads)
            if done_steps >= run * steps + wait_steps[i]:
                load_ends = now + load_s[i]
        now = min(t for t in (step_ends, load_ends) if t is not None)
        if step_ends == now:
            done_steps, step_ends = done_steps + 1, None
            if done_steps % steps == 0:
                ends.append(now)
        if load_ends == now:
            done_loads, load_ends = done_loads + 1, None
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
    assert simulate(step_s, wait_loads, load_s, waits).seconds == pytest.approx(
        _events(step_s, wait_loads, load_s, waits, 3)
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
