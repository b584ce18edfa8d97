"""Budgets that follow the system: a session with memory="auto" in a real control group, beside another process.

    sudo python -m bench.budgets auto                    in 128 MiB
    sudo python -m bench.budgets auto inception_v3 --limit 256 --runs 200
    sudo python -m bench.budgets auto --pool             both models in one pool

The other process takes 64 MiB in steps of 4 MiB each 20 ms, holds them, frees them, and does so again. Columns: runs,
processes that the kernel killed, changes of the budget, runs that began with less than the reserve free and did not
give back before, the least that was free and the least budget, and time and budget before and after, with the time
until the budget was back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench import ROOT
from bench.budgets.limit import Group
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import chosen
from bench.process import ENVIRONMENT, MIB

DEFAULT = ["googlenet", "mobilenet_v2"]


def measure(arguments: Sequence[object], limit: int) -> dict[str, Any]:
    """Return what happened to a session or a pool in a group of its own with this limit."""
    group = Group(f"flexnn-auto-{os.getpid()}", limit)
    try:
        command = [sys.executable, "-m", "bench.budgets.follower", *map(str, arguments)]
        inside = ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs; exec "$@"', "sh", *command]
        done = subprocess.run(inside, cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=False, text=True)
        row = {"killed": kills(group), "status": done.returncode, "error": done.stderr[-500:]}
        return row | (json.loads(done.stdout) if done.returncode == 0 else {})
    finally:
        group.close()


def kills(group: Group) -> int:
    """Return how many processes the kernel killed in a group."""
    file = "memory.oom_control" if group.is_v1 else "memory.events"
    return int(dict(line.split() for line in (group.path / file).read_text().splitlines()).get("oom_kill", 0))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets auto", __doc__, models=DEFAULT, threads=2)
    parser.add_argument("--limit", type=int, default=128, metavar="MIB", help="of the group (128)")
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="beside the other process (1000)")
    parser.add_argument("--pool", action="store_true", help="all models in one pool, which run in turns")
    options = parser.parse_args(arguments)
    paths = {model.name: artifact(model.make(), model.shapes) for model in chosen(options.names, DEFAULT)}
    limit, rest = options.limit * MIB, (options.threads, options.runs)
    if options.pool:
        results = {", ".join(paths): measure(("pool", *rest, *paths.values()), limit)}
    else:
        results = {name: measure(("session", *rest, path), limit) for name, path in paths.items()}
    write_json(options.json, results)
    grid = table("", "model", "killed", "changes", "late", "least free", "least budget", "ms", "MiB", "back s", left=1)
    for name, row in results.items():
        if row["status"]:
            grid.add_row(name, str(row["killed"]), f"status {row['status']}: {row['error']}", *[""] * 6)
            continue
        before, after = row["before"], row["after"]
        sizes = [f"{row[key] / MIB:.1f}" for key in ("least_free", "least_budget")]
        pairs = f"{before['ms']:.1f} {after['ms']:.1f}", f"{before['budget'] / MIB:.1f} {after['budget'] / MIB:.1f}"
        grid.add_row(
            name, str(row["killed"]), str(row["changes"]), str(row["late"]), *sizes, *pairs, f"{row['back_s']:.1f}"
        )
    tables(options.json).print(grid)
    return 0
