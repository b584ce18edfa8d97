"""The promise where data decide sizes and paths: random graphs at budgets around the smallest that works.

    python -m bench.budgets dynamic                       200 graphs
    python -m bench.budgets dynamic 40 --seed 7 --json out.json

The first budget is what the refusals name, asked again until none comes; where data decide sizes, it holds for the
largest that these can be. The smallest is what a run then says that it needed. Each graph runs at both, at 1.3 times
the smallest and at one byte less, each time in a process of its own. Exit 1 if a process took more than its budget and
1 MiB, if a budget below the smallest is not refused in one line with exit status 2, or if outputs differ from
onnxruntime's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.progress import track

from bench.budgets.dynamic_graphs import random_graph
from bench.cli import cli, table, tables, write_json
from bench.process import ALLOWANCE, MIB

COUNT, FACTOR, ATTEMPTS_MAX = 200, 1.3, 50
LAUNCHER = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, check=False)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
print(json.dumps({"status": done.returncode, "out": done.stdout, "err": done.stderr, "peak": peak}))
"""
"""A small process between this one and the one that is measured: a child's peak includes that of its parent."""


def flexnn(*arguments: object) -> dict[str, Any]:
    """Run ``flexnn ARGUMENTS``; return its exit status, what it printed, and its peak of resident memory."""
    command = [sys.executable, "-S", "-c", LAUNCHER, sys.executable, "-P", "-m", "flexnn", *map(str, arguments)]
    done: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return done


def wanted(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return onnxruntime's outputs by name, or None if it does not run the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x}), strict=True))
    except Exception as error:  # its own, which has no common base
        print(f"onnxruntime: {str(error).splitlines()[0][:150]}", file=sys.stderr)
        return None


class Case:
    """One compiled graph with its input."""

    def __init__(self, seed: int, folder: Path) -> None:
        model, x = random_graph(seed)
        self.seed, self.folder = seed, folder
        self.wanted = wanted(model, x)
        onnx.save(model, folder / "model.onnx")
        np.savez(folder / "in.npz", x=x)
        self.compiled = flexnn("compile", folder / "model.onnx", "-o", folder / "model.flexnn")

    def run(self, memory: int) -> dict[str, Any]:
        files = "--input", self.folder / "in.npz", "--output", self.folder / "out.npz"
        return flexnn("run", self.folder / "model.flexnn", *files, "--memory", memory, "--repeat", 1, "--json")

    def named(self) -> tuple[int, int]:
        """Return the budget that runs, and how many refusals named a larger one before."""
        memory = 1
        for attempt in range(ATTEMPTS_MAX):
            done = self.run(memory)
            if done["status"] == 0:
                return memory, attempt
            named = named_minimum(done)
            if named is None or named <= memory:
                raise RuntimeError(f"a budget of {memory} bytes: {told(done)}")
            memory = named
        raise RuntimeError(f"{ATTEMPTS_MAX} refusals, each of which names more")

    def differences(self) -> str:
        """Return the name of an output that differs from onnxruntime's, or nothing."""
        with np.load(self.folder / "out.npz") as got:
            for name, value in (self.wanted or {}).items():
                if name not in got:
                    return f"{name} is missing"
                own = got[name]
                # small whole numbers, and spectra, of which onnxruntime's are off by up to 1.2e-3 of the largest
                scale = np.abs(value).max(initial=1) if value.dtype.kind == "f" else 0
                if own.shape != value.shape or not np.allclose(own, value, rtol=1e-5, atol=5e-3 * scale):
                    return f"{name} {own.shape} differs from {value.shape}"
        return ""


def told(done: dict[str, Any]) -> str:
    return (done["err"].strip().splitlines() or ["nothing was said"])[-1][:160]


def named_minimum(done: dict[str, Any]) -> int | None:
    """Return the budget that a refusal names: the number of bytes after "smallest"."""
    found = re.search(r"smallest.* is .*\(([\d,]+) bytes\)", done["err"])
    return int(found[1].replace(",", "")) if done["status"] == 2 and found else None


def measure(seed: int) -> list[dict[str, Any]]:
    """One row for each budget, or one that says why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(seed, Path(folder))
        if case.compiled["status"]:
            return [{"seed": seed, "fault": f"compile: {told(case.compiled)}"}]
        try:
            named, refusals = case.named()
        except RuntimeError as error:
            return [{"seed": seed, "fault": str(error)}]
        rows, baseline, smallest = list[dict[str, Any]](), 0, 0
        for factor in (None, 1.0, FACTOR):
            budget = int(smallest * factor) if factor else named
            done = case.run(budget)
            row: dict[str, Any] = {"seed": seed, "budget": budget, "refusals": refusals, "fault": ""}
            if done["status"]:
                rows.append({**row, "fault": f"status {done['status']}: {told(done)}"})
                continue
            report = json.loads(done["out"])
            baseline, smallest = report["baseline_rss"], smallest or report["minimum_memory"]
            row["over"] = report["peak_rss"] - baseline - budget
            if row["over"] > ALLOWANCE:
                row["fault"] = f"took {row['over'] / MIB:.1f} MiB more than its budget"
            if budget < smallest:
                row["fault"] = f"needs {smallest} bytes, and runs"
            rows.append({**row, "fault": row["fault"] or case.differences(), "compared": case.wanted is not None})
        done = case.run(smallest - 1)
        row = {"seed": seed, "budget": smallest - 1, "over": done["peak"] - baseline - smallest, "fault": ""}
        if named_minimum(done) is None or len(done["err"].strip().splitlines()) != 1:
            row["fault"] = f"not refused: status {done['status']}, {told(done)}"
        elif row["over"] > ALLOWANCE:
            row["fault"] = f"refused after {row['over'] / MIB:.1f} MiB more than its budget"
        return [*rows, row]


def show(rows: list[dict[str, Any]], console: Console) -> None:
    grid = table("random graphs: budgets (MiB)", "graph", "budget", "beyond it", "fault")
    for row in rows:
        if row["fault"]:
            budget, over = (f"{row[k] / MIB:.2f}" if k in row else "" for k in ("budget", "over"))
            grid.add_row(str(row["seed"]), budget, over, row["fault"])
    console.print(grid)
    graphs = {row["seed"] for row in rows}
    bad = {row["seed"] for row in rows if row["fault"]}
    first = list({row["seed"]: row["refusals"] for row in rows if "refusals" in row}.values())
    console.print(
        f"{len(graphs)} graphs: {len(graphs - bad)} keep every budget; the first refusal's number works in"
        f" {sum(n <= 1 for n in first)}; at most {max(first, default=0)} refusals"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets dynamic", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help="number of graphs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first graph; the next ones follow")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for seed in track(range(options.seed, options.seed + options.count), "running", console=Console(stderr=True)):
        rows += measure(seed)
    write_json(options.json, rows)
    show(rows, tables(options.json))
    return 1 if any(row["fault"] for row in rows) else 0
