"""How far plans are from their bound, and how long planning takes, over budgets and machines that are made up.

python -m bench.plans                     the four classics at 1, 1.25, 1.5, 2 and 4 times the smallest budget, 1 thread
python -m bench.plans resnet152 --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import geometric_mean, median
from typing import Any

from bench.catalogue import CATALOGUE, FULL
from bench.peers import artifact
from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Setting, make_plan

MACHINES = {
    "257 MB/s, 20 GFLOP/s": MachineProfile(20e9, 5e9, 257e6, 100e-6),
    "1 GB/s, 115 GFLOP/s": MachineProfile(115e9, 12e9, 1e9, 60e-6),
    "4 GB/s, 200 GFLOP/s": MachineProfile(200e9, 20e9, 4e9, 60e-6),
}
FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
CLASSICS = ("vgg19", "resnet152", "mobilenet_v2", "squeezenet1_1")
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.plans", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[m.name for m in FULL] + [[]], help="default: the four classics"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--factors", type=float, nargs="+", default=list(FACTORS), help="of the smallest budget")
    options = parser.parse_args()
    report: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for label, machine in MACHINES.items():
        report[label] = {}
        for name in options.names or CLASSICS:
            with open_artifact(str(artifact(CATALOGUE[name].make(), CATALOGUE[name].shapes))) as opened:
                report[label][name] = measure(opened.graph, machine, options.factors)
    if options.json:
        print(json.dumps(report))
        return 0
    for label, models in report.items():
        print(
            f"{label}: predicted over bound (planning, ms) at {', '.join(f'{f:g}' for f in options.factors)} x smallest"
        )
        for name, rows in models.items():
            cells = [f"{row['predicted_ms'] / row['bound_ms']:.3f} ({row['plan_ms']:.0f})" for row in rows]
            print(f"  {name:14} {'  '.join(cells)}")
        ratios = [row["predicted_ms"] / row["bound_ms"] for rows in models.values() for row in rows]
        print(f"  geometric mean {geometric_mean(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
