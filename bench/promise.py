"""The promise, measured: what each budget costs in time, and what the process really took.

    python -m bench.promise                       four classics at seven budgets each
    python -m bench.promise all --repeat 3 --json out.json

Each row is a process of its own: ``flexnn run --json``, and the peers installed here, without a limit, for comparison.
Exit 1 if one of FlexNN's took more than its budget and 1 MiB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import ROOT, WIDTH
from bench.catalogue import Model, chosen
from bench.peers import artifact, available

FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
ALLOWANCE = 1 << 20
MIB = 1 << 20
DEFAULT = ["vgg19", "resnet152", "mobilenet_v2", "squeezenet1_1"]


def peer(name: str, model: Model, threads: int, repeat: int) -> dict[str, Any]:
    """What ``bench.footprint`` prints for the peer."""
    command = [sys.executable, "-m", "bench.footprint", name, model.name]
    command += ["--threads", str(threads), "--repeat", str(repeat)]
    report: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    return report


def flexnn(*arguments: object) -> dict[str, Any]:
    """The object that ``flexnn ARGUMENTS --json`` prints."""
    command = [sys.executable, "-P", "-m", "flexnn", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"flexnn {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
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
    table = Table(title="budgets: promised and taken (MiB), time of a run (ms)")
    for name in ("model", "budget", "taken", "kept", "p50", "predicted", "stall", "read per run", "pinned"):
        table.add_column(name, justify="left" if name == "model" else "right")
    previous = ""
    for row in rows:
        if row["model"] != previous and previous:
            table.add_section()
        name = row["model"] if row["model"] != previous else ""
        previous = row["model"]
        if "peer" in row:
            table.add_row(name, row["peer"], f"{row['added'] / MIB:.1f}", "", f"{row['p50']:.1f}")
            continue
        table.add_row(
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
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.promise", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help=f"models, or small, full, trained, all; default: {' '.join(DEFAULT)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=10, help="timed runs")
    parser.add_argument("--io", choices=("buffered", "direct"), default="buffered")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in track(chosen(options.names, DEFAULT), "measuring", console=Console(stderr=True)):
        rows += measure(model, options.threads, options.repeat, options.io)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    show(rows, Console(width=WIDTH))
    return 0 if all(row.get("kept", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
