"""Text under a hard limit: each run in a memory control group of its own, page cache counted, files cold.

    sudo python -m bench.budgets text --llama PYTHON
    sudo python -m bench.budgets text --extra 60 --weights q4

The limit is what Python and numpy take once they are imported, and so many MiB: the import of FlexNN or of llama.cpp
is within. FlexNN gets the limit less what its process takes before it opens the session, and less 1 MiB; keys and
values of 256 tokens are 16 bits wide. FlexNN reads past the page cache; what only reading the same bytes takes in the
same process stands beside its time (alone), and so does the least time of any plan by the rates that the profile knows,
or by the device's rate of the same minute where that is higher (bound). The gap is the time over the larger of the two.
Text and reading take turns, and figures are medians, since a device that others use, too, is not equally fast from
second to second. Needs root, as python -m bench.budgets limit does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.process import MIB
from bench.summary import median
from bench.text.decoding import MODEL, PROMPT, SCRIPT, artifact_of, inside, ours, theirs

from .limit import Group, forget

EXTRA = (50, 60, 80, 100, 120, 150)
CAPACITY = 256
SECONDS, SECONDS_MAX = 25, 100
"""Seconds of decoding at most, and of a process."""


def rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each limit and runtime."""
    empty = [sys.executable, str(SCRIPT), "footprint"]
    footprint = int(inside(empty, SECONDS_MAX) or 0)
    commands: dict[str, Any] = {}
    files = {}
    for weights in options.weights:
        path = artifact_of(options.model, None if weights == "own" else weights)
        how = path, options.threads, CAPACITY, options.tokens, SECONDS, len(PROMPT)
        name = f"flexnn {weights}"
        commands[name] = lambda limit, how=how: ours("limited", *how, limit)
        files[name] = path
        inside(commands[name](0), SECONDS_MAX)  # the first one measures the machine
    if options.llama:
        their = theirs(options.llama, options.model, options.threads, CAPACITY, options.tokens, SECONDS, PROMPT)
        commands["llama.cpp"], files["llama.cpp"] = lambda _: their, options.model
    made = []
    for extra in options.extra:
        for name, command in commands.items():
            forget(files[name])
            limit = footprint + extra * MIB
            group = Group(f"flexnn-text-{os.getpid()}", limit)
            try:
                told = inside(command(limit), SECONDS_MAX, group.path) or {}
                made.append({"runtime": name, "extra": extra, "limit": limit, "hits": group.hits()} | told)
            finally:
                group.close()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets text", __doc__, threads=2)
    parser.add_argument("--extra", type=int, nargs="+", metavar="MIB", default=EXTRA, help="beside the import of numpy")
    parser.add_argument("--weights", nargs="+", default=["own"], metavar="FORM", help="forms of weights (own)")
    parser.add_argument("--model", type=Path, default=MODEL, metavar="FILE.gguf")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="tokens of each text (128)")
    parser.add_argument("--llama", metavar="PYTHON", help="interpreter that has llama-cpp-python")
    options = parser.parse_args(arguments)
    made = rows(options)
    write_json(options.json, made)
    show(made, tables(options.json))
    return 0


def show(made: list[dict[str, Any]], console: Any) -> None:
    columns = (
        "runtime",
        "MiB",
        "tokens/s",
        "p50 ms",
        "bound",
        "alone",
        "gap",
        "GB/s",
        "MB a token",
        "pinned MB",
        "limit met",
    )
    grid = table("text under a hard limit: MiB beside the import of numpy", *columns)
    for row in made:
        name, extra, hits = row["runtime"], str(row["extra"]), str(row["hits"])
        times = row.get("times_s")
        if not times:
            why = f"needs {row['minimum'] / MIB:.1f}" if "minimum" in row else "killed or timed out"
            grid.add_row(name, extra, why, *[""] * 7, hits)
            continue
        own = [""] * 6
        p50 = median(times) * 1e3
        if "bound_ms" in row:
            rate = row["bytes"] / row["read_ms"] / 1e6 if row["bytes"] else 0.0
            own = [f"{row['bound_ms']:.1f}", f"{row['read_ms']:.1f}", f"{row['gap']:.2f}", f"{rate:.2f}"]
            own += [f"{row['bytes'] / 1e6:.1f}", f"{row['pinned'] / 1e6:.1f}"]
        grid.add_row(name, extra, f"{len(times) / sum(times):.1f}", f"{p50:.1f}", *own, hits)
    console.print(grid)
