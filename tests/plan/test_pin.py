"""Choosing pinned pieces: within the budget, and none left that would still fit."""

from __future__ import annotations

import numpy as np
import pytest

from flexnn.plan import pin


@pytest.mark.parametrize("seed", range(20))
def test_budget_is_kept_and_used(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 1000, 30)
    seconds = rng.random(30)
    budget = int(rng.integers(0, sizes.sum() * 1.2))
    for mask in (pin.spread(sizes, budget), pin.dense(sizes, seconds, budget), pin.small(sizes, budget)):
        used = int(sizes[mask].sum())
        assert used <= budget
        assert mask.all() or sizes[~mask].min() > budget - used


def test_spread_is_even() -> None:
    mask = pin.spread(np.full(100, 10), 500)
    assert mask.sum() == 50
    assert max(mask[i : i + 10].sum() for i in range(91)) <= 6


def test_dense_takes_what_computing_hides_least() -> None:
    assert pin.dense(np.array([10, 10, 10]), np.array([3.0, 1.0, 2.0]), 20).tolist() == [False, True, True]
