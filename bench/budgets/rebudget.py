"""New budgets in place: what ``session.memory = …`` takes, and what it reads.

    python -m bench.budgets rebudget                    ResNet-152 and VGG-19, down and up a ladder of budgets
    python -m bench.budgets rebudget resnet152 --threads 1

For each budget, in shares of the way from the smallest to everything pinned: milliseconds of the whole change, and of
planning in that; MiB of pinned weights kept in place, moved inside the arena, read (from the page cache); what the
process has then above what it had before the session was opened.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import chosen
from bench.process import MIB, status

DEFAULT = ["resnet152", "vgg19"]
COLUMNS = ("budget", "ms", "plan_ms", "kept", "moved", "read", "rss")

LADDER = (1.0, 0.5, 0.25, 0.1, 0.0, 0.1, 0.25, 0.5, 1.0)


def measured(path: Path, threads: int, repeat: int) -> list[dict[str, float]]:
    """A row for each change of the ladder."""
    before = status("VmRSS")
    rows = []
    with flexnn.Session(path, threads=threads) as session:
        least, most = session.plan.minimum_memory, session.plan.session_bytes
        feed = {i.name: np.zeros([int(d or 1) for d in i.shape], i.numpy_dtype) for i in session.get_inputs()}
        for share in LADDER * repeat:
            budget = least + int(share * (most - least))
            start = time.perf_counter()
            session.memory = budget
            took = time.perf_counter() - start
            pinning = session.statistics()["pinning"]
            session.run(None, feed)
            rows.append(
                {"share": share, "budget": budget / MIB, "ms": took * 1e3, "plan_ms": session.plan.plan_ms}
                | {name: size / MIB for name, size in pinning.items()}
                | {"rss": (status("VmRSS") - before) / MIB}
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets rebudget", __doc__, models=DEFAULT, threads=1)
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="times down and up the ladder (1)")
    options = parser.parse_args(arguments)
    results = {}
    for model in chosen(options.names, DEFAULT):
        results[model.name] = measured(artifact(model.make(), model.shapes), options.threads, options.repeat)
    write_json(options.json, results)
    for name, rows in results.items():
        grid = table(name, "share", "MiB", "ms", "plan ms", "kept MiB", "moved", "read", "RSS", left=0)
        for row in rows:
            grid.add_row(f"{row['share']:.2f}", *(f"{row[key]:.1f}" for key in COLUMNS))
        tables(options.json).print(grid)
    return 0
