"""Shapes that change from run to run: 64 of them in turn, and a decoder whose cache grows by a token in each run.

python -m bench.control_flow shapes

A net of 200 nodes runs at 64 numbers of rows, over and over; beside it, in a session of its own, at the middle one
only. Without limit and in 1.5 of its smallest budget. ``plans`` counts what the planner made while they were timed: all
shapes were seen before. The decoder has 4 layers; its first sequence meets each length for the first time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.field.budget import SHARE, smallest
from bench.field.double import relative
from bench.field.peer import peer_session
from bench.models.growing import WIDTH, empty_caches, write_decoder, write_net
from bench.process import MIB
from bench.rounds import milliseconds
from bench.summary import median
from flexnn.planning import Planner

FIRST, SHAPES = 64, 64
ROUNDS, STEPS, SEQUENCES = 3, 48, 3
TOLERANCE = 1e-3


@contextmanager
def planned() -> Iterator[list[int]]:
    """Give a list that gets an entry for each plan that is made while the context is open."""
    made: list[int] = []
    plan = Planner.plan

    def counted(self: Planner, *rest: Any, **options: Any) -> Any:
        made.append(1)
        return plan(self, *rest, **options)

    Planner.plan = counted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        Planner.plan = plan  # type: ignore[method-assign]


def in_turn(artifact: Path, memory: int | None, threads: int) -> dict[str, Any]:
    """Return the figures of 64 shapes in turn in a budget, beside those of one."""
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((1, FIRST + i, WIDTH), np.float32)} for i in range(SHAPES)]
    middle = feeds[SHAPES // 2]
    with flexnn.Session(artifact, memory, threads) as many, flexnn.Session(artifact, memory, threads) as one:
        first = [milliseconds(lambda feed=feed: many.run(None, feed)) for feed in feeds]  # type: ignore[misc]
        for feed in (*feeds, middle):
            many.run(None, feed)
            one.run(None, middle)
        turning, alone, plans = [], [], 0
        for _ in range(ROUNDS):
            with planned() as made:
                turning += [milliseconds(lambda feed=feed: many.run(None, feed)) for feed in feeds]  # type: ignore[misc]
            plans += len(made)
            alone += [milliseconds(lambda: one.run(None, middle)) for _ in feeds]
        return {
            "memory": memory,
            "first_ms": median(first),
            "turning_ms": median(turning),
            "one_ms": median(alone),
            "ratio": median(turning) / median(alone),
            "plans": plans,
            "runs": len(turning),
            "session_bytes": many.session_bytes,
        }


def sequence(run: Callable[..., list[np.ndarray]]) -> tuple[list[float], np.ndarray]:
    """Return the milliseconds of each step of a sequence that begins without a cache, and the last logits."""
    caches, taken = empty_caches(), []
    outputs: list[np.ndarray] = []
    for step in range(STEPS):
        feed = {"token": np.array([[step]]), **caches}
        taken.append(milliseconds(lambda feed=feed: outputs.__setitem__(slice(None), run(None, feed))))  # type: ignore[misc]
        caches = {name: np.array(value) for name, value in zip(caches, outputs, strict=False)}
    return taken, np.array(outputs[-1])


def growing(path: Path, threads: int) -> dict[str, Any]:
    """Return the figures of the decoder. AssertionError: it is wrong."""
    peer = peer_session(str(path), threads)
    found: dict[str, Any] = {}
    artifact = flexnn.compile(path)
    with flexnn.Session(artifact, threads=threads) as session:
        sequence(session.run)  # so that this machine's profile has its kernels
    with flexnn.Session(artifact, threads=threads) as session:
        runs = {"own": session.run, "onnxruntime": peer.run}
        steps: dict[str, list[list[float]]] = {name: [] for name in runs}
        logits = {}
        for _ in range(SEQUENCES):
            for name, run in runs.items():
                taken, logits[name] = sequence(run)
                steps[name].append(taken)
    error = relative([logits["own"]], [logits["onnxruntime"]])
    assert error <= TOLERANCE, f"the decoder: relative L2 error {error:.1e}"
    for name, taken in steps.items():
        later = [one for part in taken[1:] for one in part]
        found[name] = {"empty_ms": taken[0][0], "first_ms": median(taken[0][1:]), "later_ms": median(later)}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.control_flow shapes", __doc__, threads=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(flexnn.compile(write_net(Path(folder) / "net.onnx")))
        largest = {"x": np.zeros((1, FIRST + SHAPES - 1, WIDTH), np.float32)}
        least = smallest(artifact, largest, options.threads)
        budgets = (None, int(SHARE * least.memory))
        rows = [in_turn(artifact, memory, options.threads) for memory in budgets]
        steps = growing(write_decoder(Path(folder) / "decoder.onnx"), options.threads)
    write_json(options.json, {"smallest_bytes": least.memory, "shapes": rows, "decoder": steps})
    grid = table("64 shapes in turn", "budget", "new, ms", "seen", "one shape", "over one", "plans", "runs", "MiB")
    for row in rows:
        times = (f"{row[key]:.2f}" for key in ("first_ms", "turning_ms", "one_ms", "ratio"))
        budget = f"{row['memory'] / MIB:.1f} MiB" if row["memory"] else "none"
        grid.add_row(budget, *times, str(row["plans"]), str(row["runs"]), f"{row['session_bytes'] / MIB:.1f}")
    out = tables(options.json)
    out.print(grid)
    grid = table("A decoder whose cache grows, ms a step", "runtime", "empty cache", "first sequence", "later ones")
    for name, figures in steps.items():
        grid.add_row(name, *(f"{figures[key]:.2f}" for key in ("empty_ms", "first_ms", "later_ms")))
    out.print(grid)
    return 0
