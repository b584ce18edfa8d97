"""How far predictions are from runs: for each model and budget, `flexnn run` in a process of its own.

    python -m bench.predict                            the four classics at five budgets, one compute thread
    python -m bench.predict resnet152 --rounds 3 --json out.json

The first round's profile is what was measured when the artifact was opened; runs refine it for the next round. The
profiles are kept in a folder of this run only.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import WIDTH
from bench.catalogue import chosen
from bench.peers import artifact
from bench.promise import DEFAULT, FACTORS, MIB, flexnn


def measure(name: str, path: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
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
    table = Table(title="predicted and measured time of a run (ms)")
    for name in ("model", "round", "budget MiB", "p50", "predicted", "error", "bound", "stall", "open"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for row in rows:
        table.add_row(
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
    console.print(table)
    for turn in sorted({row["round"] for row in rows}):
        errors = [abs(row["error"]) for row in rows if row["round"] == turn]
        console.print(f"round {turn}: error {median(errors):.1%} median, {max(errors):.1%} at most, {len(errors)} runs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.predict", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help=f"models, or small, full, trained, all; default: {' '.join(DEFAULT)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=20, help="timed runs of each")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--io", choices=("buffered", "direct"), default="buffered")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"XDG_CACHE_HOME": cache, "FLEXNN_PROFILE": "measure"}
        for model in track(chosen(options.names, DEFAULT), "measuring", console=Console(stderr=True)):
            rows += measure(model.name, artifact(model.make(), model.shapes), options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    show(rows, Console(width=WIDTH))


if __name__ == "__main__":
    main()
