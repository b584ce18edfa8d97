"""How far predictions are from runs: for each model and budget, `flexnn run` in a process of its own.

    python -m bench.budgets predict                            the four classics at five budgets, one compute thread
    python -m bench.budgets predict resnet152 --rounds 3 --json out.json

The first round's profile is what was measured when the artifact was opened; runs refine it for the next round. The
profiles are kept in a folder of this run only.
"""

from __future__ import annotations

import os
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.budgets.promise import DEFAULT, FACTORS
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import chosen
from bench.process import MIB, flexnn
from bench.summary import median


def measure(name: str, path: Path, options: Namespace) -> list[dict[str, Any]]:
    """One row for each round and budget."""
    common = ("--threads", options.threads, "--io", options.io)
    minimum = flexnn("plan", path, *common, "--profile", "analytic")["minimum_memory"]
    rows = []
    for turn in range(options.rounds):
        for factor in FACTORS:
            budget = int(minimum * factor)
            report = flexnn("run", path, "--memory", budget, *common, "--repeat", options.repeat)
            p50, predicted = report["latency_ms"]["p50"], report["predicted_ms"]
            rows.append(
                {
                    "model": name,
                    "round": turn + 1,
                    "factor": factor,
                    "budget": budget,
                    "p50": p50,
                    "predicted": predicted,
                    "error": predicted / p50 - 1,
                    "p95": report["latency_ms"]["p95"],
                    "bound": report["bound_ms"],
                    "stall": report["stall_ms"],
                    "open": report["open_ms"],
                }
            )
    return rows


def show(rows: list[dict[str, Any]], console: Console) -> None:
    columns = "model", "round", "budget MiB", "p50", "predicted", "error", "bound", "stall", "open"
    grid = table("predicted and measured time of a run (ms)", *columns)
    for row in rows:
        grid.add_row(
            row["model"],
            str(row["round"]),
            f"{row['budget'] / MIB:.1f}",
            f"{row['p50']:.2f}",
            f"{row['predicted']:.2f}",
            f"{row['error']:+.0%}",
            f"{row['bound']:.2f}",
            f"{row['stall']:.2f}",
            f"{row['open']:.0f}",
        )
    console.print(grid)
    for turn in sorted({row["round"] for row in rows}):
        errors = [abs(row["error"]) for row in rows if row["round"] == turn]
        console.print(f"round {turn}: error {median(errors):.1%} median, {max(errors):.1%} at most, {len(errors)} runs")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = cli("bench.budgets predict", __doc__, models=DEFAULT, threads=1, repeat=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--io", choices=("buffered", "direct"), default="buffered")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"XDG_CACHE_HOME": cache, "FLEXNN_PROFILE": "measure"}
        for model in track(chosen(options.names, DEFAULT), "measuring", console=Console(stderr=True)):
            rows += measure(model.name, artifact(model.make(), model.shapes), options)
    write_json(options.json, rows)
    show(rows, tables(options.json))
