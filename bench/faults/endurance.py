"""A session for a year: memory, descriptors and threads after many runs, openings and new budgets.

    python -m bench.faults endurance           1,000,000 runs, 10,000 openings, 10,000 new budgets
    python -m bench.faults endurance --runs 2000 --opens 50 --budgets 50

A model of fixed shapes and one of open shapes, whose batch changes, do half of each; half of the runs read weights.
Each part begins with some that do not count. Exit 1 if it leaves more than 1 MiB of resident memory, a descriptor or a
thread.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.process import ALLOWANCE, status

from .subjects import compiled, feed, smallest

NODES, WARM = 4, 0.05
WARM_MIN = 60
MARKS = 10
"""Figures that are taken of each part, at equal distances."""


def state() -> dict[str, int]:
    """Return resident bytes, and the numbers of descriptors and threads."""
    gc.collect()
    return {
        "rss": status("VmRSS"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def repeated(name: str, action: Callable[[int], None], count: int) -> dict[str, Any]:
    """Do something many times; return what it left."""
    warm = max(int(count * WARM), WARM_MIN)
    for number in range(warm):
        action(number)
    before, begun = state(), time.monotonic()
    marks = []
    for number in range(count):
        action(number)
        if (number + 1) % max(count // MARKS, 1) == 0:
            marks.append(state()["rss"] - before["rss"])
    after = state()
    grown = {key: after[key] - before[key] for key in before}
    ok = grown["rss"] <= ALLOWANCE and not grown["descriptors"] and not grown["threads"]
    return {"part": name, "count": count, "seconds": time.monotonic() - begun, "marks": marks, **grown, "ok": ok}


def parts(folder: Path, kind: str, runs: int, opens: int, budgets: int) -> list[dict[str, Any]]:
    """Return one row for each part of one kind of model."""
    artifact = compiled(folder, kind, NODES)
    least = smallest(artifact, 2) + (64 << 10)
    inputs = [feed(batch) for batch in ((1, 2, 3) if kind == "open" else (1,))]

    def opened(memory: int | None) -> flexnn.Session:
        return flexnn.Session(artifact, memory, 2, profile="analytic")

    def run(session: flexnn.Session, number: int) -> None:
        session.run(None, inputs[number // 50 % len(inputs)])

    rows = []
    for memory, what in ((None, "runs, all pinned"), (2 * least, "runs that read")):
        with opened(memory) as session:
            rows.append(repeated(f"{kind}: {what}", partial(run, session), runs // 2))

    def opening(number: int) -> None:
        with opened((None, 2 * least)[number % 2]) as session:
            session.run(None, inputs[0])

    rows.append(repeated(f"{kind}: openings", opening, opens))
    with opened(None) as session:
        session.run(None, inputs[0])

        def change(number: int) -> None:
            session.memory = (2 * least, None, 3 * least)[number % 3]
            session.run(None, inputs[0])

        rows.append(repeated(f"{kind}: budgets", change, budgets))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults endurance", __doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--opens", type=int, default=10_000)
    parser.add_argument("--budgets", type=int, default=10_000)
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("closed", "open"):
            rows += parts(Path(folder), kind, options.runs // 2, options.opens // 2, options.budgets // 2)
    write_json(options.json, rows)
    grid = table("after many of each", "part", "count", "s", "RSS KiB", "at most", "descriptors", "threads", "")
    for row in rows:
        figures = [f"{row['count']:,}", f"{row['seconds']:.0f}", str(row["rss"] >> 10)]
        most = max([*row["marks"], row["rss"]]) >> 10
        counts = str(row["descriptors"]), str(row["threads"])
        grid.add_row(row["part"], *figures, str(most), *counts, "" if row["ok"] else "grows")
    tables(options.json).print(grid)
    return 0 if all(row["ok"] for row in rows) else 1
