"""How far plans are from their bound, and how long planning takes, over budgets and machines that are made up.

python -m bench.planner plans       four classics at 1, 1.25, 1.5, 2 and 4 times the smallest budget, 1 thread
python -m bench.planner plans resnet152 --json -
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import chosen
from bench.summary import geometric_mean, median
from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Setting, make_plan

MACHINES = {
    "257 MB/s, 20 GFLOP/s": MachineProfile(20e9, 5e9, 257e6, 100e-6),
    "1 GB/s, 115 GFLOP/s": MachineProfile(115e9, 12e9, 1e9, 60e-6),
    "4 GB/s, 200 GFLOP/s": MachineProfile(200e9, 20e9, 4e9, 60e-6),
}
FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
DEFAULT = ("vgg19", "resnet152", "mobilenet_v2", "squeezenet1_1")
ROUNDS = 3


def measure(graph: Graph, machine: MachineProfile, factors: list[float]) -> list[dict[str, Any]]:
    """Predicted time and bound in ms, and the median of planning's time, at each factor of the smallest budget."""
    minimum = make_plan(graph, Setting(machine)).minimum_memory
    rows = []
    for factor in factors:
        memory, times = int(minimum * factor), []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            plan = make_plan(graph, Setting(machine), memory)
            times.append((time.perf_counter() - started) * 1e3)
        rows.append(
            {"memory": memory, "predicted_ms": plan.predicted_ms, "bound_ms": plan.bound_ms, "plan_ms": median(times)}
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner plans", __doc__, models=DEFAULT)
    parser.add_argument("--factors", type=float, nargs="+", default=list(FACTORS), help="of the smallest budget")
    options = parser.parse_args(arguments)
    report: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for label, machine in MACHINES.items():
        report[label] = {}
        for model in chosen(options.names, DEFAULT):
            with open_artifact(str(artifact(model.make(), model.shapes))) as opened:
                report[label][model.name] = measure(opened.graph, machine, options.factors)
    write_json(options.json, report)
    for label, models in report.items():
        title = f"{label}: predicted over bound (planning, ms) at multiples of the smallest budget"
        grid = table(title, "model", *(f"{factor:g}" for factor in options.factors))
        for name, rows in models.items():
            cells = [f"{row['predicted_ms'] / row['bound_ms']:.3f} ({row['plan_ms']:.0f})" for row in rows]
            grid.add_row(name, *cells)
        ratios = [row["predicted_ms"] / row["bound_ms"] for rows in models.values() for row in rows]
        grid.add_section()
        grid.add_row("geometric mean", f"{geometric_mean(ratios):.3f}")
        tables(options.json).print(grid)
    return 0
