"""Ctrl-C at random moments: how long it takes to come back.

    python -m bench.faults interrupts                      2,000 moments over all stages
    python -m bench.faults interrupts --count 40           a short one
    python -m bench.faults interrupts --only blocked       a device that does not answer for 3 s
    python -m bench.faults interrupts --nodes 64000 --only plan

A process beside interrupts each stage at a random moment of it; the time to Python's exception counts, without what
its threads wait for a CPU that other programs have. Moments that are late only as the machine, or one of the two
processes, stood still are counted apart ("stood", and the longest), and others take their places. Stages are opening,
planning a chain of nodes, a run, a run that reads, a new budget, compiling and measuring. In "blocked" the device does
not answer while the artifact is opened, run, or given a new budget (a library is preloaded, cc builds it). Exit 1 if
opening, planning, running, reading or a new budget takes more than 50 ms, or compiling or measuring more than 250 ms,
or if what was interrupted goes on.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flexnn
from bench import ROOT
from bench.cli import cli, table, tables, write_json
from bench.process import ENVIRONMENT
from flexnn.planning.overhead import MEASURING_BYTES
from flexnn.session import open_for_tests

from .moments import Interrupter, Taken
from .subjects import compiled, feed, smallest, write_chain

LIMIT_MS, SLOW_LIMIT_MS = 50.0, 250.0
SLOW = ("compile", "measure")
"""Stages that may take longer."""
STAGES = ("open", "plan", "run", "read", "memory", *SLOW, "blocked")
BLOCKED_MS, BLOCKED_AFTER_S = 3000, 0.2
LIBRARY = "FLEXNN_FAULTS_LIBRARY"
"""Environment variable: the preloaded library."""
BYTES_PER_SECOND = 40_000_000


def moments(
    beside: Interrupter, action: Callable[[], object], count: int, rng: random.Random, limit_ms: float
) -> list[Taken]:
    """Return what ``count`` interrupts at random moments of an action took, and those that are late only as something
    stood still.
    """
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        action()
        taken.append(time.monotonic() - begun)
    within_s = sorted(taken)[1]
    found: list[Taken] = []
    for _ in range(20 * count):
        took = beside.interrupted(action, max(rng.random() * within_s, 1e-6))
        if took is not None:
            found.append(took)
        if sum(not one.stood(limit_ms) for one in found) == count:
            break
    return found


class Stages:
    """Actions that are interrupted, on a chain of some nodes."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.nodes = folder, nodes
        self.artifact = compiled(folder, "closed", 24)
        self.least = smallest(self.artifact, 2) + (64 << 10)
        self.opened: flexnn.Session | None = None
        """A session that stays open over the moments of a stage."""

    def session(self, memory: int | None, **options: Any) -> flexnn.Session:
        return open_for_tests(self.artifact, memory, 2, profile="analytic", **options)

    def of(self, name: str) -> Callable[[], object]:
        """Return the action of a stage."""
        if name == "open":
            return lambda: self.session(self.least).close()
        if name == "plan":
            chain = compiled(self.folder, "closed", self.nodes, 1)
            memory = int(flexnn.plan(chain, profile="analytic").minimum_memory * 1.2)
            return lambda: flexnn.plan(chain, memory=memory, profile="analytic")
        if name == "compile":
            source = write_chain(self.folder / "source.onnx", 200)
            return lambda: flexnn.compile(source, self.folder / "target.flexnn")
        if name == "measure":
            return self.measure
        slow = BYTES_PER_SECOND if name == "read" else 0
        self.opened = session = self.session(self.least, read_bytes_per_second=slow)
        x = feed()
        if name == "memory":
            return lambda: setattr(session, "memory", None if session.memory else self.least)
        return lambda: session.run(None, x)

    def measure(self) -> None:
        os.environ["XDG_CACHE_HOME"] = str(self.folder / f"cache{time.monotonic_ns()}")
        flexnn.Session(self.artifact, self.least + MEASURING_BYTES, 2, profile="measure").close()

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()
            self.opened = None


def blocked(beside: Interrupter, artifact: Path, batches: Sequence[int], count: int, rng: random.Random) -> None:
    """Print what ``count`` interrupts take while the device does not answer. Runs have inputs of some ``batches`` in
    turn. This process has the library.
    """
    library = ctypes.CDLL(os.environ[LIBRARY])
    inputs, least = [feed(batch) for batch in batches], smallest(artifact, 2, max(batches)) + (64 << 10)

    def forget() -> None:
        fd = os.open(artifact, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    for _ in range(count):
        io = rng.choice(("buffered", "direct"))
        session = flexnn.Session(artifact, least, 2, io=io, profile="analytic")
        for x in inputs:
            session.run(None, x)

        def opens(how: str = io) -> None:
            with flexnn.Session(artifact, least, 2, io=how, profile="analytic") as one:
                one.run(None, inputs[0])

        def runs(one: flexnn.Session = session) -> None:
            while True:
                for x in inputs:
                    one.run(None, x)

        def changes(one: flexnn.Session = session) -> None:
            one.memory = None

        action = rng.choice((opens, runs, changes))
        forget()
        library.faults_arm(0, ctypes.c_long(1), 1, 0, BLOCKED_MS)
        took = beside.interrupted(action, 0.01 + rng.random() * BLOCKED_AFTER_S, session.close)
        library.faults_disarm()
        if took is not None:
            print(*took, flush=True)


def build_library(folder: Path) -> Path:
    """Build the library that lets calls fail or wait; return its path."""
    library, source = folder / "faults.so", ROOT / "tests/support/faults.c"
    command = ["cc", "-std=gnu11", "-O1", "-w", "-fPIC", "-shared", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def blocked_apart(folder: Path, count: int, seed: int) -> list[Taken]:
    """Return what ``blocked`` finds in a process of its own."""
    library = build_library(folder)
    environment = {**ENVIRONMENT, "LD_PRELOAD": str(library), LIBRARY: str(library), "FAULTS_FOLDER": str(folder)}
    command = [sys.executable, "-m", "bench.faults", "interrupts", "--count", str(count), "--seed", str(seed)]
    done = subprocess.run([*command, "--blocked", str(folder)], env=environment, stdout=subprocess.PIPE, check=True)
    return [Taken(*map(float, line.split())) for line in done.stdout.splitlines()]


def limit_of(name: str) -> float:
    """Return the milliseconds that an interrupt of a stage may take."""
    return SLOW_LIMIT_MS if name in SLOW else LIMIT_MS


def shown(name: str, taken: Sequence[Taken]) -> dict[str, Any]:
    """Return a stage's row."""
    limit = limit_of(name)
    found = sorted(one.ms for one in taken if not one.stood(limit))
    stood = [one.stood_ms for one in taken if one.stood(limit)]
    late_ms = [(one.ms, one.computed_ms) for one in taken if one.ms > limit and not one.stood(limit)]
    parts = {f"p{q}": found[min(len(found) * q // 100, len(found) - 1)] if found else 0.0 for q in (50, 95, 100)}
    still = {"stood": len(stood), "stood_ms": max(stood, default=0.0)}
    late = {"late": len(late_ms), "late_ms": late_ms}
    ok = bool(found) and not late_ms
    return {"stage": name, "moments": len(found), **parts, "limit": limit, **late, **still, "ok": ok}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults interrupts", __doc__)
    parser.add_argument("--count", type=int, default=2000, help="moments of all stages together (2000)")
    parser.add_argument("--nodes", type=int, default=4000, help="nodes of the chain that is planned (4000)")
    parser.add_argument("--only", action="append", choices=STAGES, help="a stage; may be repeated (all)")
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--blocked", type=Path, help="internal: folder of the process with the library")
    options = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    rng = random.Random(seed)
    beside = Interrupter()
    if options.blocked:
        for kind, batches in (("closed", [1]), ("open", [1, 2])):
            blocked(beside, compiled(options.blocked, kind, 24), batches, -(-options.count // 2), rng)
        os._exit(0)  # readers may wait for the device
    names = options.only or STAGES
    rows = []
    with beside, tempfile.TemporaryDirectory() as name:
        stages = Stages(Path(name), options.nodes)
        for stage in names:
            each = -(-options.count // len(names))
            if stage == "blocked":
                found = blocked_apart(Path(name), each, seed)
            else:
                found = moments(beside, stages.of(stage), each, rng, limit_of(stage))
                stages.close()
            rows.append(shown(stage, found))
    write_json(options.json, rows)
    heads = ("stage", "moments", "p50", "p95", "most", "limit", "late", "stood", "longest")
    grid = table(f"Ctrl-C: ms to the exception, seed {seed}", *heads)
    for row in rows:
        figures = [f"{row[key]:.1f}" for key in ("p50", "p95", "p100")]
        counts = [f"{row['limit']:.0f}", str(row["late"]), str(row["stood"]), f"{row['stood_ms']:.0f}"]
        grid.add_row(row["stage"], str(row["moments"]), *figures, *counts)
    tables(options.json).print(grid)
    for row in rows:
        for ms, computed_ms in row["late_ms"]:
            tables(options.json).print(f"{row['stage']}: {ms:.1f} ms late, {computed_ms:.1f} of them computed")
    return 0 if all(row["ok"] for row in rows) else 1
