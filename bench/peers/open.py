"""Opening a model, out of the page cache and with a measured profile, beside onnxruntime's session creation.

python -m bench.peers open                 the eight classics and ten trained models
python -m bench.peers open silero_vad lac  some of them

Columns: milliseconds of onnxruntime's session creation, medians of turns; over these: opening the artifact without a
budget, in 1.5 times the smallest budget and in the smallest; opening the ONNX file again over opening its artifact.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flexnn
from bench.cli import table, tables, write_json
from bench.field.budget import SHARE, smallest
from bench.field.peer import peer_session
from bench.peers.subjects import Case, cases, parser
from bench.rounds import SETTLE_SECONDS
from bench.summary import geometric_mean, median

ROUNDS = 7
COLUMNS = ("artifact", "budget", "smallest")


def opened_in_turns(
    openers: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]
) -> dict[str, Any]:
    """Return the milliseconds of openings by name; each session is closed before the next opening."""
    taken: dict[str, list[float]] = {name: [] for name in openers}
    for number in range(rounds + 1):
        for name in openers if number % 2 == 0 else reversed(list(openers)):
            gc.collect()
            time.sleep(SETTLE_SECONDS)
            start = clock()
            session = openers[name]()
            took = 1e3 * (clock() - start)
            if hasattr(session, "close"):
                session.close()
            del session
            if number:  # the first round brings files into the page cache
                taken[name].append(took)
    return taken


def measure(case: Case, folder: Path, threads: int, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Return a model's row."""
    artifact = folder / f"{case.name}.flexnn"
    flexnn.compile(case.path, artifact)
    with flexnn.Session(artifact, threads=threads) as session:
        feed = case.feed(session)
        session.run(None, feed)
    with flexnn.Session(case.path, threads=threads) as session:
        session.run(None, feed)
    least = smallest(artifact, feed, threads).memory
    budgets = {"artifact": None, "budget": int(SHARE * least), "smallest": least}
    openers: dict[str, Callable[[], Any]] = {"onnxruntime": lambda: peer_session(str(case.path), threads)}
    for name, memory in budgets.items():
        with flexnn.Session(artifact, memory, threads) as session:  # what it measures is kept
            session.run(None, feed)
        openers[name] = lambda memory=memory: flexnn.Session(artifact, memory, threads)  # type: ignore[misc]
    openers["again"] = lambda: flexnn.Session(case.path, threads=threads)
    taken = opened_in_turns(openers, rounds, clock)
    artifact.unlink()
    row: dict[str, Any] = {"model": case.name, "smallest_bytes": least, "ms": taken}
    row["onnxruntime_ms"] = median(taken["onnxruntime"])
    for name in COLUMNS:
        row[name] = median(taken[name]) / row["onnxruntime_ms"]
    row["again"] = median([a / b for a, b in zip(taken["again"], taken["artifact"], strict=True)])
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    line = parser("open", __doc__, ROUNDS, "openings of each kind")
    line.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: of all threads, for busy machines")
    options = line.parse_args(arguments)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    grid = table("", "model", "onnxruntime ms", *COLUMNS, "ONNX again")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        os.environ["FLEXNN_LATER"] = "0"  # nothing goes on beside what is measured
        for case in cases(options.names):
            row = measure(case, Path(folder), options.threads, options.rounds, clock)
            rows.append(row)
            ratios = [f"{row[name]:.2f}" for name in (*COLUMNS, "again")]
            grid.add_row(row["model"], f"{row['onnxruntime_ms']:.1f}", *ratios)
            write_json(options.json if options.json != "-" else None, rows)
    if options.json == "-":
        write_json(options.json, rows)
    means = [geometric_mean([row[name] for row in rows]) for name in (*COLUMNS, "again")]
    grid.add_row("geometric mean", "", *(f"{mean:.2f}" for mean in means))
    tables(options.json).print(grid)
    return 0
