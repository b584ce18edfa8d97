"""Plans of two trees, compared: smallest budgets, predicted times at equal bytes, equal plans, time of planning.

    python -m bench.planner compare FILE.flexnn... --json BEFORE             in one tree
    python -m bench.planner compare FILE.flexnn... --before BEFORE           in the other one: what has changed

Budgets are multiples of the smallest one that the first tree has. Planning's time is seconds of CPU of a planner of its
own, the least of ``--turns``; a plan is its program's bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.cli import cli, table, tables, write_json
from bench.process import MIB
from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph
from flexnn.planning import BudgetError, MachineProfile, Planner, Setting
from flexnn.planning.types import Program

FACTORS = (1.0, 1.1, 1.5, 2.5)
MACHINE = MachineProfile(2e11, 2e10)


def digest(program: Program) -> str:
    """Return a digest of all that a program says."""
    made = hashlib.sha256()
    for name in sorted(program.__dataclass_fields__):
        value = getattr(program, name)
        made.update(name.encode())
        made.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return made.hexdigest()[:12]


def measure(graph: Graph, setting: Setting, budgets: Sequence[int], turns: int) -> dict[str, Any]:
    """Smallest budget in bytes, and at each of ``budgets`` (none: multiples of the smallest) what its plan is."""
    smallest = Planner(graph, setting).minimum
    rows = []
    for memory in budgets or [int(smallest * factor) for factor in FACTORS]:
        taken = []
        row: dict[str, Any] = {"memory": memory, "predicted_ms": None, "digest": "refused"}
        for _ in range(turns):
            started = time.process_time()
            try:
                plan = Planner(graph, setting).plan(memory)
            except BudgetError:
                break
            taken.append((time.process_time() - started) * 1e3)
            row |= {"predicted_ms": plan.predicted_ms, "digest": digest(plan.program)}
        rows.append(row | {"cpu_ms": min(taken, default=0.0)})
    return {"smallest": smallest, "plans": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner compare", __doc__, threads=2)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="artifacts of fixed shapes")
    parser.add_argument("--before", type=Path, metavar="JSON", help="figures of the other tree")
    parser.add_argument("--turns", type=int, default=1, metavar="N", help="planners of each budget that are timed (1)")
    parser.add_argument("--spills", action="store_true", help="activations may be spilled")
    options = parser.parse_args(arguments)
    before = json.loads(options.before.read_text()) if options.before else {}
    setting = Setting(MACHINE, threads=options.threads, spills=options.spills)
    rows = {}
    for path in options.files:
        known = before.get(path.stem)
        with open_artifact(str(path)) as opened:
            budgets = [row["memory"] for row in known["plans"]] if known else []
            rows[path.stem] = measure(opened.graph, setting, budgets, options.turns)
    write_json(options.json, rows)
    columns = "smallest, MiB", "time at these budgets", "equal plans", "planning, ms of CPU"
    grid = table(None, "model", *columns)
    for name, row in rows.items():
        grid.add_row(name, *_cells(row, before.get(name, row)))
    tables(options.json).print(grid)
    return 0


def _cells(row: dict[str, Any], known: dict[str, Any]) -> list[str]:
    pairs = list(zip(known["plans"], row["plans"], strict=True))
    times = [
        f"{b['predicted_ms'] / a['predicted_ms']:.3f}" if a["predicted_ms"] and b["predicted_ms"] else "–"
        for a, b in pairs
    ]
    equal = sum(a["digest"] == b["digest"] for a, b in pairs)
    most = [max(plan["cpu_ms"] for plan in side["plans"]) for side in (known, row)]
    return [
        f"{known['smallest'] / MIB:.2f} → {row['smallest'] / MIB:.2f}",
        " ".join(times),
        f"{equal} of {len(pairs)}",
        f"{most[0]:.0f} → {most[1]:.0f}",
    ]
