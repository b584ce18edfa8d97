"""Three models of OCR in one pool: its smallest budget, and its runs beside three sessions with as much memory in all.

python -m bench.peers pool

The smallest pool may take 1.15 times the sum of the largest model's smallest budget, and programs and inputs of the
others; exit 1 where it takes more, or where 500 runs in random order take more than the budget and 1 MiB, at the
smallest and at 1.5 times that. Times are those of a run of each model, at budgets that are multiples of the sum of
the three smallest; a session of its own has its part of that.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.field.budget import smallest
from bench.peers.subjects import cases
from bench.process import ALLOWANCE, MIB, module
from bench.rounds import in_turns, ratio

MODELS = ["ppocr_v4_det", "ppocr_v2_cls", "ppocr_v4_rec"]
BOUND = 1.15
TIMES = (1.05, 1.5, 2.0)
RUNS = 500
Feeds = Mapping[Path, dict[str, Any]]


def beside(path: Path, feed: Mapping[str, Any], memory: int, threads: int) -> int:
    """Return the bytes of a model's programs, of what it keeps of the model, and of its inputs."""
    with flexnn.Session(path, memory, threads) as session:
        session.run(None, feed)
        found = session.statistics()["bytes"]
        inputs = sum(array.nbytes for array in feed.values())
        return sum(found.get(name, 0) for name in ("program", "programs", "model")) + inputs


def smallest_pool(feeds: Feeds, threads: int) -> int:
    """Return the smallest budget in which all models open and run, twice."""
    memory = 1 << 20
    while True:
        try:
            with flexnn.Pool(memory, threads) as pool:
                opened = [(pool.open(path), feed) for path, feed in feeds.items()]
                for session, feed in [*opened, *opened]:
                    session.run(None, feed)
                return memory
        except flexnn.BudgetError as error:
            memory = max(error.minimum, memory + (memory >> 6))


def compared(feeds: Feeds, least: Mapping[Path, int], memory: int, threads: int, seconds: float) -> dict[str, Any]:
    """Return the times of a run of all models in a pool of ``memory``, and in sessions that have it together."""
    total = sum(least.values())
    alone = {path: flexnn.Session(path, memory * least[path] // total, threads) for path in feeds}
    with flexnn.Pool(memory, threads) as pool:
        pooled = {path: pool.open(path) for path in feeds}

        def all_of(sessions: Mapping[Path, flexnn.Session]) -> Callable[[], None]:
            return lambda: [sessions[path].run(None, feed) for path, feed in feeds.items()] and None

        runs = {"pool": all_of(pooled), "sessions": all_of(alone)}
        for run in (*runs.values(), *runs.values()):
            run()
        taken = in_turns(runs, seconds)
    for session in alone.values():
        session.close()
    found = {name: timed.p50 for name, timed in taken.items()}
    return found | {"memory": memory, "ratio": ratio(taken["pool"], taken["sessions"])}


def mixed(feeds: Feeds, folder: Path, memory: int, threads: int) -> dict[str, Any]:
    """Return what RUNS runs in random order took, in a process of their own."""
    files: list[Path] = []
    for path, feed in feeds.items():
        files += [path, folder / f"{path.stem}.npz"]
        np.savez(files[-1], **feed)
    done: dict[str, Any] = json.loads(module("bench.peers.mixed", memory, threads, RUNS, *files))
    return done | {"memory": memory}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers pool", __doc__, threads=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of models; default: {' '.join(MODELS)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each comparison (3)")
    options = parser.parse_args(arguments)
    feeds: dict[Path, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options.names or MODELS):
            path = Path(flexnn.compile(case.path, Path(folder) / f"{case.name}.flexnn"))
            with flexnn.Session(path, threads=options.threads) as session:
                feeds[path] = case.feed(session)
                session.run(None, feeds[path])
        least = {path: smallest(path, feed, options.threads).memory for path, feed in feeds.items()}
        largest = max(least, key=lambda path: least[path])
        others = [beside(path, feeds[path], least[path], options.threads) for path in feeds if path != largest]
        pool = smallest_pool(feeds, options.threads)
        bound = least[largest] + sum(others)
        rows = [
            compared(feeds, least, int(times * sum(least.values())), options.threads, options.seconds)
            for times in TIMES
        ]
        long = [mixed(feeds, Path(folder), int(pool * times), options.threads) for times in (1.0, 1.5)]
    console = tables(options.json)
    console.print(
        f"smallest pool {pool / MIB:.1f} MiB, {pool / bound:.3f} of {bound / MIB:.1f}: the largest "
        f"{least[largest] / MIB:.1f}, beside it {sum(others) / MIB:.1f}; three sessions {sum(least.values()) / MIB:.1f}"
    )
    grid = table("", "MiB in all", "pool ms", "sessions ms", "ratio")
    for row in rows:
        cells = row["memory"] / MIB, row["pool"], row["sessions"]
        grid.add_row(*(f"{cell:.1f}" for cell in cells), f"{row['ratio']:.2f}")
    console.print(grid)
    for row in long:
        told = f"{row['beyond'] / MIB:+.2f} MiB beyond {row['memory'] / MIB:.1f}"
        console.print(f"{RUNS} runs in random order: {told}, outputs let go {row['let_go']} times")
    write_json(options.json, {"smallest_bytes": pool, "bound_bytes": bound, "rows": rows, "mixed": long})
    if pool > BOUND * bound:
        print(f"error: more than {BOUND} of it", file=sys.stderr)
        return 1
    return 1 if any(row["beyond"] > ALLOWANCE for row in long) else 0
