"""The process that ``python -m bench.budgets auto`` puts into a control group: a session that follows its memory,
beside a process that takes memory and frees it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import Any

import numpy as np

import flexnn
from flexnn.system.limits import Limits

MIB = 1 << 20
TAKER = """
import mmap, sys, time
steps, step, wait = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
while True:
    sys.stdin.readline() or sys.exit()
    taken = []
    for _ in range(steps):
        taken.append(mmap.mmap(-1, step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for at in range(0, step, 4096):
            taken[-1][at] = 1
        time.sleep(wait)
    print("taken", flush=True)
    sys.stdin.readline() or sys.exit()
    while taken:
        taken.pop().close()
"""
"""Takes memory for a line on its standard input, and frees it for the next one."""
STEPS, STEP, STEP_SECONDS = 16, 4 * MIB, 0.02
HOLD_SECONDS = REST_SECONDS = 0.4
FAST_RUNS = 20
BACK = 1.05
"""Predicted time of a plan over that of the one before the other process began, at which the session is back."""
RETURN_SECONDS = 12.0
"""Longest time in which the session is expected to come back."""


class Taker:
    """The other process."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", TAKER, str(STEPS), str(STEP), str(STEP_SECONDS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._next = time.monotonic()
        self._has = False

    def turn(self) -> None:
        """Begin to take, or free, when it is time."""
        if time.monotonic() < self._next:
            return
        self._say()
        self._has = not self._has
        self._next = time.monotonic() + (STEPS * STEP_SECONDS + HOLD_SECONDS if self._has else REST_SECONDS)

    def _say(self) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def free(self) -> None:
        """Free what it has and end."""
        assert self._process.stdin
        if self._has:
            self._say()
        self._process.stdin.close()
        self._process.wait()

    @property
    def is_alive(self) -> bool:
        """Whether it was not killed."""
        return self._process.poll() is None


class Counter(logging.Handler):
    """Counts changes of the budget."""

    lines: list[str]

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def follow(path: str, threads: int, runs: int) -> dict[str, Any]:
    """Return what a session did beside the other process."""
    changes = Counter()
    changes.lines = []
    logging.getLogger("flexnn").addHandler(changes)
    logging.getLogger("flexnn").setLevel(logging.INFO)
    limits = Limits()
    taker = Taker()
    with flexnn.Session(path, memory="auto", threads=threads) as session:
        random = np.random.default_rng(0)
        feed = {i.name: random.random([int(d or 1) for d in i.shape], i.numpy_dtype) for i in session.get_inputs()}
        expected = session.run(None, feed)
        before = _figures(session, feed)
        reserve = session._run.watcher.reserve  # type: ignore[attr-defined]
        late, least_free, least_budget, is_right = 0, 1 << 60, 1 << 60, True
        for _ in range(runs):
            taker.turn()
            free, budget = limits.free(), session.memory
            outputs = session.run(None, feed)
            smallest = session.plan.minimum_memory
            late += free < reserve and session.memory == budget and session.session_bytes > smallest
            least_free = min(least_free, free, limits.free())
            least_budget = min(least_budget, session.memory or 0)
            is_right = is_right and all(np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(outputs, expected, strict=True))
        alive = taker.is_alive
        taker.free()
        started, count = time.monotonic(), len(changes.lines)
        while (back_s := time.monotonic() - started) < RETURN_SECONDS:
            if session.plan.predicted_ms <= BACK * before["predicted_ms"]:
                break
            session.run(None, feed)
        after = _figures(session, feed)
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
        "lines": changes.lines,
    }


def _figures(session: flexnn.Session, feed: dict[str, Any]) -> dict[str, Any]:
    """Budget, predicted and median time."""
    times = []
    for _ in range(FAST_RUNS):
        start = time.perf_counter()
        session.run(None, feed)
        times.append((time.perf_counter() - start) * 1e3)
    ms = sorted(times)[len(times) // 2]
    return {"budget": session.memory, "predicted_ms": session.plan.predicted_ms, "ms": ms}


if __name__ == "__main__":
    print(json.dumps(follow(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
