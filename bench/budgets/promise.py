"""The promise, measured: what each budget costs in time, and what the process really took.

    python -m bench.budgets promise                       four classics at seven budgets each
    python -m bench.budgets promise all --repeat 3 --json out.json

Each row is a process of its own: ``flexnn run --json``, and the peers installed here, without a limit, for comparison.
Exit 1 if one of FlexNN's took more than its budget and 1 MiB.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import Model, chosen
from bench.peers.runtimes import available
from bench.process import ALLOWANCE, MIB, flexnn, module

FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
DEFAULT = ["vgg19", "resnet152", "mobilenet_v2", "squeezenet1_1"]


def peer(name: str, model: Model, threads: int, repeat: int) -> dict[str, Any]:
    """What ``bench.peers.footprint`` prints for the peer."""
    options = ("--threads", threads, "--repeat", repeat)
    report: dict[str, Any] = json.loads(module("bench.peers.footprint", name, model.name, *options))
    return report


def measure(model: Model, threads: int, repeat: int, io: str) -> list[dict[str, Any]]:
    """One row for each budget: its size, what the process took, times, bytes read."""
    path = artifact(model.make(), model.shapes)
    minimum = flexnn("plan", path, "--threads", threads, "--io", io)["minimum_memory"]
    rows: list[dict[str, Any]] = [
        {"model": model.name, "peer": name, **peer(name, model, threads, repeat)} for name in available()
    ]
    for budget in (*(int(minimum * factor) for factor in FACTORS), None):
        limit = () if budget is None else ("--memory", budget)
        report = flexnn("run", path, *limit, "--threads", threads, "--repeat", repeat, "--io", io)
        added = report["peak_rss"] - report["baseline_rss"]
        promised = report["session_bytes"] if budget is None else budget
        rows.append(
            {
                "model": model.name,
                "budget": budget,
                "minimum": minimum,
                "added": added,
                "kept": added <= promised + ALLOWANCE,
                **{k: report[k] for k in ("session_bytes", "latency_ms", "predicted_ms", "bound_ms", "open_ms")},
                **{k: report[k] for k in ("plan_ms", "stall_ms", "bytes_read_per_run", "pinned_bytes", "threads")},
            }
        )
    return rows


def show(rows: list[dict[str, Any]], console: Console) -> None:
    columns = "model", "budget", "taken", "kept", "p50", "predicted", "stall", "read per run", "pinned"
    grid = table("budgets: promised and taken (MiB), time of a run (ms)", *columns)
    previous = ""
    for row in rows:
        if row["model"] != previous and previous:
            grid.add_section()
        name = row["model"] if row["model"] != previous else ""
        previous = row["model"]
        if "peer" in row:
            grid.add_row(name, row["peer"], f"{row['added'] / MIB:.1f}", "", f"{row['p50']:.1f}")
            continue
        grid.add_row(
            name,
            "none" if row["budget"] is None else f"{row['budget'] / MIB:.1f}",
            f"{row['added'] / MIB:.1f}",
            "yes" if row["kept"] else "NO",
            f"{row['latency_ms']['p50']:.1f}",
            f"{row['predicted_ms']:.1f}",
            f"{row['stall_ms']:.1f}",
            f"{row['bytes_read_per_run'] / MIB:.1f}",
            f"{row['pinned_bytes'] / MIB:.1f}",
        )
    console.print(grid)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets promise", __doc__, models=DEFAULT, threads=2, repeat=10)
    parser.add_argument("--io", choices=("buffered", "direct"), default="buffered")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for model in track(chosen(options.names, DEFAULT), "measuring", console=Console(stderr=True)):
        rows += measure(model, options.threads, options.repeat, options.io)
    write_json(options.json, rows)
    show(rows, tables(options.json))
    return 0 if all(row.get("kept", True) for row in rows) else 1
