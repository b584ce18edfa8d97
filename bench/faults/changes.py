"""Budgets that change at random moments, while reads, allocations or mappings fail, or the timer interrupts.

    python -m bench.faults changes              1,000 changes of a closed and an open model each
    python -m bench.faults changes --count 50   a short one

After each change the session has the old budget or the new one, with a plan that fits it; as soon as the fault is over
it runs, right, in that budget. Exit 1 if one does not. cc builds the library that lets calls fail.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.process import ENVIRONMENT

from .interrupts import LIBRARY, build_library
from .moments import InterruptError
from .subjects import compiled, feed, smallest

FAULTS = {"none": (-1, 0), "read": (0, errno.EIO), "allocate": (6, errno.ENOMEM), "map": (7, errno.ENOMEM)}
"""Number of each kind in tests/support/faults.c, and its errno."""
WITHIN_S = 0.02
ALLOWED = (flexnn.FlexNNError, OSError, MemoryError)


class Subject:
    """A session whose budget changes."""

    def __init__(self, artifact: Path, rng: random.Random) -> None:
        self.artifact, self.rng = artifact, rng
        least = smallest(artifact, 2) + (64 << 10)
        self.budgets = [least, least + (200 << 10), 2 * least, None]
        self.session = flexnn.Session(artifact, least, 2, profile="analytic")
        self.library = ctypes.CDLL(os.environ[LIBRARY])
        with flexnn.Session(artifact, None, 1, profile="analytic") as session:
            self.expected = session.run(None, feed())[0]
        self.session.run(None, feed())

    def forget(self) -> None:
        fd = os.open(self.artifact, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def change(self) -> str:
        """Change the budget once; return what happened. Raises AssertionError."""
        before, wanted = self.session.memory, self.rng.choice(self.budgets)
        fault = self.rng.choice(list(FAULTS))
        kind, error = FAULTS[fault]
        self.forget()
        if kind >= 0:
            number = ctypes.c_long(self.rng.randint(1, 12))
            self.library.faults_arm(kind, number, int(self.rng.random() < 0.5), error, 0)
        outcome = "changed"
        try:
            self.set(wanted)
        except InterruptError:
            outcome = "interrupted"
        except ALLOWED:
            outcome = "refused"
        finally:
            if kind >= 0:
                self.library.faults_disarm()
        self.judge(before, wanted, outcome)
        return f"{fault}, {outcome}"

    def set(self, wanted: int | None) -> None:
        """Set the budget, interrupted half of the times; nothing is interrupted after that."""
        try:
            if self.rng.random() < 0.5:
                signal.setitimer(signal.ITIMER_REAL, max(self.rng.random() * WITHIN_S, 1e-6))
            self.session.memory = wanted
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def judge(self, before: int | None, wanted: int | None, outcome: str) -> None:
        session = self.session
        assert session.memory in ((wanted,) if outcome == "changed" else (before, wanted))
        y = session.run(None, feed())[0]
        assert np.abs(y - self.expected).max() <= 1e-4 * np.abs(self.expected).max()
        assert session.plan.memory == session.memory
        if session.memory is not None:
            assert session.session_bytes <= session.memory
            assert session.statistics()["engine_bytes"] <= session.memory


def stop(*_: object) -> None:
    raise InterruptError


def work(kind: str, count: int, seed: int) -> None:
    """Change a model's budget often, in this process, which has the library; print what happened."""
    rng = random.Random(seed)
    happened: collections.Counter[str] = collections.Counter()
    subject = Subject(compiled(Path(os.environ["FAULTS_FOLDER"]), kind, 24), rng)
    for _ in range(count):
        happened[subject.change()] += 1
    subject.session.close()
    for what, number in sorted(happened.items()):
        print(number, what)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults changes", __doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--work", help="internal: kind of the model, in the process with the library")
    options = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    if options.work:
        signal.signal(signal.SIGALRM, stop)
        work(options.work, options.count, seed)
        return 0
    grid = table(f"changed budgets, seed {seed}", "model", "fault, outcome", "times", left=2)
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        library = build_library(Path(folder))
        environment = {**ENVIRONMENT, "LD_PRELOAD": str(library), LIBRARY: str(library), "FAULTS_FOLDER": folder}
        for kind in ("closed", "open"):
            command = [sys.executable, "-m", "bench.faults", "changes", "--count", str(options.count)]
            command += ["--seed", str(seed), "--work", kind]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            for line in done.stdout.splitlines():
                number, _, what = line.partition(" ")
                rows.append({"model": kind, "what": what, "times": int(number)})
                grid.add_row(kind, what, number)
            if done.returncode:
                failed = True
                grid.add_row(kind, done.stderr.strip()[-600:], "failed")
    write_json(options.json, rows)
    tables(options.json).print(grid)
    return int(failed)
