"""The smallest budget with activations whole and in bands of rows, and what bands cost where memory is plenty.

python -m bench.planner bands                    every model of fixed shapes, published sizes and trained ones
python -m bench.planner bands vgg19 mobilenet_v2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import chosen
from bench.process import MIB
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.planning.variant_planner import VariantPlanner

DEFAULT = ["full", "trained"]
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


def main(arguments: Sequence[str] | None = None) -> int:
    options = cli("bench.planner bands", __doc__, models=DEFAULT).parse_args(arguments)
    rows = {}
    for model in chosen(options.names, DEFAULT):
        with open_artifact(str(artifact(model.make(), model.shapes))) as opened:
            if not isinstance(opened.contents, StoredModel):
                rows[model.name] = measure(opened.graph)
    write_json(options.json, rows)
    columns = "model", "whole, MiB", "bands", "nodes", "everything pinned, ms", "at the first budget, ms"
    grid = table(None, *columns)
    for name, row in rows.items():
        pairs = [f"{a:.2f} → {b:.2f}" for a, b in (row["pinned_ms"], row["tight_ms"])]
        nodes = "{} → {}".format(*row["nodes"])
        grid.add_row(name, f"{row['whole'] / MIB:.2f}", f"{row['bands'] / MIB:.2f}", nodes, *pairs)
    tables(options.json).print(grid)
    return 0
