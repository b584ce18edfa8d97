"""Groups of independent nodes: time, memory and barriers against k (Oplachko's figure 6), everything pinned.

    python -m bench.planner groups                                ResNeXt-50 with a Conv for each of its 32 groups
    python -m bench.planner groups googlenet inception_v3 --threads 2 --k 1 2 4

"off" is the graph's own order, one node after the other, each by all threads; with k, each layer of independent nodes
is split into k groups, and the nodes of a group run at the same time. Outputs are compared with "off", bit for bit.
Predictions are by the profile that a session measures; "auto" marks what it would take.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bench.cli import cli, table, tables, write_json
from bench.models.catalogue import chosen
from bench.process import MIB
from bench.summary import median
from flexnn import compile as compile_model
from flexnn.artifact import Artifact, open_artifact
from flexnn.graph import passes
from flexnn.graph.passes.grouped import merge_groups
from flexnn.measure.parts import measured_machine
from flexnn.planning import MachineProfile, Setting, make_plan
from flexnn.planning.grouping import Grouping
from flexnn.planning.groups import layers
from flexnn.run.engine import BoundProgram, Engine, Switches

DEFAULT = ["resnext50_split"]
K = (1, 2, 4, 8, 16, 32)
TURNS = 60
BLOCK_SECONDS = 0.06
"""Short, so that a machine that gets slower does so for all of a turn; the first run of a block is not counted."""
AGAIN = -1
"""Value of k for "off" a second time, in an engine of its own. Its ratio to "off" shows the noise."""


def compile_apart(source: Path, target: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Compiles without the pass that would make one node of the convolutions whose groups were exported apart."""
    every = passes.IN_PLACE_PASSES
    passes.IN_PLACE_PASSES = tuple(step for step in every if step is not merge_groups)
    try:
        compile_model(source, target, shapes=shapes)
    finally:
        passes.IN_PLACE_PASSES = every


def measure(artifact: Artifact, feed: dict[str, Any], threads: int, ks: list[int]) -> list[dict[str, Any]]:
    """A row for "off" and each k: the p50 of blocks of runs in turns, the median ratio to "off" of the same turn, and
    what the plan says.
    """
    graph = artifact.graph
    arena = make_plan(graph, Setting(MachineProfile.measure(), threads)).arena_bytes
    machine = measured_machine(artifact, -1, threads, arena)
    setting = Setting(machine, threads)
    off, grouping = make_plan(graph, setting), Grouping(graph, setting)
    taken = grouping.better(off).groups or 0
    plans = {0: off, AGAIN: off} | {k: grouping.plan(k) for k in ks}
    inputs = [np.ascontiguousarray(feed[graph.tensors[i].name]) for i in graph.inputs]
    engines, outputs, rows = {}, {}, []
    for k, plan in plans.items():
        engines[k] = BoundProgram(Engine(Switches(threads)), artifact, plan)
        outputs[k] = [np.empty(graph.tensors[i].shape, np.float32) for i in graph.outputs]
        row = {"k": k, "auto": k == taken, "nodes": len(graph.nodes), "barriers": plan.barriers}
        sizes = {"activation_bytes": plan.activation_bytes, "working_bytes": plan.working_bytes}
        rows.append(row | sizes | {"predicted_ms": plan.predicted_ms, "plan_ms": plan.plan_ms})
    times: dict[int, list[float]] = {k: [] for k in engines}
    for turn in range(TURNS):
        for k in list(engines)[:: 1 if turn % 2 else -1]:
            times[k].append(block(engines[k], [*inputs, *outputs[k]]))
    for row in rows:
        row["p50_ms"] = median(times[row["k"]])
        row["of_off"] = median(np.divide(times[row["k"]], times[0]).tolist())
        row["equal"] = all(np.array_equal(a, b) for a, b in zip(outputs[row["k"]], outputs[0], strict=True))
        engines[row["k"]].engine.close()
    return rows


def block(engine: BoundProgram, buffers: list[Any]) -> float:
    """The median time of a few runs, in ms."""
    engine.run(buffers, [engine])
    times: list[float] = []
    end = time.perf_counter() + BLOCK_SECONDS
    while not times or time.perf_counter() < end:
        times.append(engine.run(buffers, [engine])["run_ns"] / 1e6)
    return median(times)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner groups", __doc__, models=DEFAULT, threads=2)
    parser.add_argument("--k", type=int, nargs="+", default=list(K))
    options = parser.parse_args(arguments)
    results = {}
    for model in chosen(options.names, DEFAULT):
        path = model.make()
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "apart.flexnn"
            compile_apart(path, target, model.shapes)
            artifact = open_artifact(target)
            rows = results[model.name] = measure(artifact, model.feed(seed=0), options.threads, options.k)
            widest = max(len(layer) for layer in layers(artifact.graph))
            artifact.close()
        title = f"{model.name}, {options.threads} threads: {rows[0]['nodes']} nodes, at most {widest} in a layer"
        show(rows, title, tables(options.json))
    write_json(options.json, results)
    wrong = [name for name, rows in results.items() if not all(row["equal"] for row in rows)]
    if wrong:
        print(f"error: groups change the output: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def show(rows: list[dict[str, Any]], title: str, console: Console) -> None:
    names = "k", "barriers", "p50 ms", "of off", "predicted ms", "of off", "activations MiB", "region MiB"
    grid = table(title, *names)
    for row in rows:
        times = [f"{row['p50_ms']:.2f}", f"{row['of_off']:.3f}", f"{row['predicted_ms']:.2f}"]
        times.append(f"{row['predicted_ms'] / rows[0]['predicted_ms']:.3f}")
        mib = [f"{row[n] / MIB:.2f}" for n in ("activation_bytes", "working_bytes")]
        k = {0: "off", AGAIN: "off again"}.get(row["k"], str(row["k"])) + (" (auto)" if row["auto"] else "")
        grid.add_row(k, str(row["barriers"]), *times, *mib)
    console.print(grid)
