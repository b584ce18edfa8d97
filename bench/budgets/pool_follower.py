"""The process that ``python -m bench.budgets auto --pool`` puts into a group: a pool that follows its memory."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import numpy as np

import flexnn
from bench.budgets.follower import BACK, FAST_RUNS, RETURN_SECONDS, Counter, Taker
from flexnn.system.limits import Limits

Cases = list[tuple[flexnn.Session, dict[str, Any], list[Any]]]
"""Sessions, what they are fed, and their outputs."""


def _opened(pool: flexnn.Pool, paths: list[str]) -> Cases:
    random, cases = np.random.default_rng(0), []
    for path in paths:
        session = pool.open(path)
        feed = {i.name: random.random([int(d or 1) for d in i.shape], i.numpy_dtype) for i in session.get_inputs()}
        cases.append((session, feed, session.run(None, feed)))
    return cases


def _predicted_ms(cases: Cases) -> float:
    return sum(session.plan.predicted_ms for session, _, _ in cases)


def _figures(pool: flexnn.Pool, cases: Cases) -> dict[str, Any]:
    """Budget, predicted and median time of a run of each."""
    times = []
    for _ in range(FAST_RUNS):
        start = time.perf_counter()
        for session, feed, _ in cases:
            session.run(None, feed)
        times.append((time.perf_counter() - start) * 1e3)
    return {"budget": pool.memory, "predicted_ms": _predicted_ms(cases), "ms": sorted(times)[len(times) // 2]}


def follow(paths: list[str], threads: int, runs: int) -> dict[str, Any]:
    """Return what a pool of sessions, run in turns, did beside the other process."""
    changes = Counter()
    changes.lines = []
    logging.getLogger("flexnn").addHandler(changes)
    logging.getLogger("flexnn").setLevel(logging.INFO)
    limits = Limits()
    taker = Taker()
    with flexnn.Pool("auto", threads) as pool:
        cases = _opened(pool, paths)
        before = _figures(pool, cases)
        watcher = pool._shared.watcher
        assert watcher is not None
        late, least_free, least_budget, is_right = 0, 1 << 60, 1 << 60, True
        for number in range(runs):
            taker.turn()
            session, feed, expected = cases[number % len(cases)]
            free, budget = limits.free(), pool.memory
            outputs = session.run(None, feed)
            late += free < watcher.reserve and pool.memory == budget and pool.session_bytes > pool.minimum_memory
            least_free = min(least_free, free, limits.free())
            least_budget = min(least_budget, pool.memory or 0)
            is_right = is_right and all(np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(outputs, expected, strict=True))
        alive = taker.is_alive
        taker.free()
        started, count = time.monotonic(), len(changes.lines)
        while (back_s := time.monotonic() - started) < RETURN_SECONDS:
            if _predicted_ms(cases) <= BACK * before["predicted_ms"]:
                break
            for session, feed, _ in cases:
                session.run(None, feed)
        after = _figures(pool, cases)
    return {
        "before": before,
        "after": after,
        "back_s": back_s,
        "late": late,
        "changes": count,
        "least_free": least_free,
        "least_budget": least_budget,
        "right": is_right,
        "taker_alive": alive,
    }


if __name__ == "__main__":
    print(json.dumps(follow(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))))
