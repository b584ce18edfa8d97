"""Runs beside threads that hold CPUs: of onnxruntime in the same process, which look for work for 35 ms after a run.

python -m bench.peers beside                 the eight classics and ten trained models
python -m bench.peers beside silero_vad lac  some of them

Columns: FlexNN's time over onnxruntime's, medians of runs that take turns: at once one behind the other, so that
onnxruntime's threads are in the way of FlexNN's, and not the other way round; and with pauses, in which they go to
sleep.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flexnn
from bench.cli import table, tables, write_json
from bench.field.peer import peer_session
from bench.peers.subjects import Case, cases, parser
from bench.rounds import SETTLE_SECONDS
from bench.summary import geometric_mean, median

ROUNDS = 21
COLUMNS = {"at once": 0.0, "with pauses": SETTLE_SECONDS}


def taken(calls: Sequence[Callable[[], Any]], rounds: int, pause: float) -> list[float]:
    """Return the median milliseconds of each call in so many rounds, in which they take turns."""
    found: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 2):
        for own, call in zip(found, calls, strict=True):
            time.sleep(pause)
            start = time.perf_counter()
            call()
            if number > 1:
                own.append(1e3 * (time.perf_counter() - start))
    return [median(own) for own in found]


def measure(case: Case, folder: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Return a model's row."""
    artifact = folder / f"{case.name}.flexnn"
    flexnn.compile(case.path, artifact)
    row: dict[str, Any] = {"model": case.name}
    with flexnn.Session(artifact, threads=threads) as session:
        feed = case.feed(session)
        peer = peer_session(str(case.path), threads)
        calls = [lambda: session.run(None, feed), lambda: peer.run(None, feed)]
        for name, pause in COLUMNS.items():
            ours, theirs = taken(calls, rounds, pause)
            row[name] = {"ms": ours, "onnxruntime_ms": theirs, "ratio": ours / theirs}
    artifact.unlink()
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("beside", __doc__, ROUNDS, "runs of each kind").parse_args(arguments)
    grid = table("", "model", *COLUMNS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options.names):
            rows.append(row := measure(case, Path(folder), options.threads, options.rounds))
            grid.add_row(case.name, *(f"{row[name]['ratio']:.2f}" for name in COLUMNS))
    write_json(options.json, rows)
    grid.add_row("geometric mean", *(f"{geometric_mean([r[name]['ratio'] for r in rows]):.2f}" for name in COLUMNS))
    tables(options.json).print(grid)
    return 0
