"""The process that ``python -m bench.budgets auto`` puts into a control group: a session, or with ``pool`` a pool of
several, that follows its memory beside a process that takes memory and frees it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
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

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Followed:
    """A session, or a pool of sessions that run in turns, that follows its memory; what each is fed and returns."""

    def __init__(self, owner: flexnn.Session | flexnn.Pool, sessions: Sequence[flexnn.Session]) -> None:
        self.owner, random = owner, np.random.default_rng(0)
        self.cases: list[tuple[flexnn.Session, dict[str, Any], list[Any]]] = []
        for session in sessions:
            feed = {i.name: random.random([int(d or 1) for d in i.shape], i.numpy_dtype) for i in session.get_inputs()}
            self.cases.append((session, feed, session.run(None, feed)))

    @property
    def reserve(self) -> int:
        """The bytes that it leaves to others."""
        watcher = self.owner._shared.watcher if isinstance(self.owner, flexnn.Pool) else self.owner._run.watcher  # type: ignore[attr-defined]
        return int(watcher.reserve)  # type: ignore[union-attr]

    @property
    def smallest(self) -> int:
        """The smallest budget, in bytes."""
        is_pool = isinstance(self.owner, flexnn.Pool)
        return self.owner.minimum_memory if is_pool else self.owner.plan.minimum_memory  # type: ignore[union-attr]

    @property
    def predicted_ms(self) -> float:
        """Predicted time of a run of each."""
        return sum(session.plan.predicted_ms for session, _, _ in self.cases)

    def run(self, number: int) -> bool:
        """Run the next in turn. Return whether the outputs are right."""
        session, feed, expected = self.cases[number % len(self.cases)]
        outputs = session.run(None, feed)
        return all(np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(outputs, expected, strict=True))

    def figures(self) -> dict[str, Any]:
        """Return budget, predicted and median time of a run of each."""
        times = []
        for _ in range(FAST_RUNS):
            start = time.perf_counter()
            for session, feed, _ in self.cases:
                session.run(None, feed)
            times.append((time.perf_counter() - start) * 1e3)
        ms = sorted(times)[len(times) // 2]
        return {"budget": self.owner.memory, "predicted_ms": self.predicted_ms, "ms": ms}


def follow(followed: Followed, changes: Counter, runs: int) -> dict[str, Any]:
    """Return what a session or a pool did beside the other process."""
    owner, limits, taker = followed.owner, Limits(), Taker()
    before, reserve = followed.figures(), followed.reserve
    late, least_free, least_budget, is_right = 0, 1 << 60, 1 << 60, True
    for number in range(runs):
        taker.turn()
        free, budget = limits.free(), owner.memory
        is_right = followed.run(number) and is_right
        late += free < reserve and owner.memory == budget and owner.session_bytes > followed.smallest
        least_free = min(least_free, free, limits.free())
        least_budget = min(least_budget, owner.memory or 0)
    alive = taker.is_alive
    taker.free()
    started, count = time.monotonic(), len(changes.lines)
    while (back_s := time.monotonic() - started) < RETURN_SECONDS:
        if followed.predicted_ms <= BACK * before["predicted_ms"]:
            break
        for number in range(len(followed.cases)):
            followed.run(number)
    return {
        "before": before,
        "after": followed.figures(),
        "back_s": back_s,
        "late": late,
        "changes": count,
        "least_free": least_free,
        "least_budget": least_budget,
        "right": is_right,
        "taker_alive": alive,
        "lines": changes.lines,
    }


def main(kind: str, threads: int, runs: int, paths: list[str]) -> None:
    changes = Counter()
    logging.getLogger("flexnn").addHandler(changes)
    logging.getLogger("flexnn").setLevel(logging.INFO)
    if kind == "pool":
        with flexnn.Pool("auto", threads) as pool:
            done = follow(Followed(pool, [pool.open(path) for path in paths]), changes, runs)
    else:
        with flexnn.Session(paths[0], memory="auto", threads=threads) as session:
            done = follow(Followed(session, [session]), changes, runs)
    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
