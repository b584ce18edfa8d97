"""The smallest budget with activations whole and in bands of rows, and what bands cost where memory is plenty.

python -m bench.bands                    every model of fixed shapes, published sizes and trained ones
python -m bench.bands vgg19 mobilenet_v2
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import WIDTH
from bench.catalogue import chosen
from bench.peers import artifact
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.planning.variant_planner import VariantPlanner

MIB = 1 << 20
SETTING = Setting(MachineProfile(2e11, 2e10), threads=2)


def measure(graph: Graph) -> dict[str, Any]:
    """Smallest budgets in bytes, nodes, and predicted times in ms of both forms with everything pinned, and at the
    smallest budget of the whole one.
    """
    whole, planner = (
        VariantPlanner(graph, SETTING),
        Planner(graph, SETTING),
    )
    tightest = planner.tightest
    return {
        "whole": whole.minimum,
        "bands": planner.minimum,
        "nodes": (len(graph.nodes), len(tightest.graph.nodes)),
        "pinned_ms": (whole.plan(None).predicted_ms, tightest.plan(None).predicted_ms),
        "tight_ms": (whole.plan(whole.minimum).predicted_ms, planner.plan(whole.minimum).predicted_ms),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bands", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="models, or a kind: full, trained; default: both")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    rows = {}
    for model in chosen(options.names, ["full", "trained"]):
        with open_artifact(str(artifact(model.make(), model.shapes))) as opened:
            if not isinstance(opened.contents, StoredModel):
                rows[model.name] = measure(opened.graph)
    if options.json:
        print(json.dumps(rows))
        return 0
    table = Table("model", "whole, MiB", "bands", "nodes", "everything pinned, ms", "at the first budget, ms")
    for name, row in rows.items():
        pairs = [f"{a:.2f} → {b:.2f}" for a, b in (row["pinned_ms"], row["tight_ms"])]
        nodes = "{} → {}".format(*row["nodes"])
        table.add_row(name, f"{row['whole'] / MIB:.2f}", f"{row['bands'] / MIB:.2f}", nodes, *pairs)
    Console(width=WIDTH).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
