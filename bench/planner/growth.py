"""How compiling, opening and planning grow with a graph: chains, wide graphs, long skips and one wide Concat, of 1,000
nodes and more.

    python -m bench.planner growth                      1k to 8k nodes
    python -m bench.planner growth --nodes 1000 64000   to 64k: half an hour

Each row is told on stderr as soon as it is measured. Seconds of CPU, the least of a few turns of all sizes: what slows
the machine for a minute meets more than one of them. Each figure is followed by its multiple of that of half the nodes.
Planning is without a limit ("free"), at the smallest budget, and with room for half of the weights beside it. "Session"
opens one without a limit, which reads, plans and binds. Memory is the peak of a process that opens the artifact and
makes these plans. A small graph goes first, so that no figure has what the first use of a module takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.process import module, status
from flexnn.artifact import open_artifact
from flexnn.planning import MachineProfile, Planner, Setting

CHANNELS, SIDE = 16, 8
SETTING = Setting(MachineProfile(2e11, 2e10, 1e9, 60e-6), threads=2)
STAGES = "compile", "open", "free", "smallest", "half", "session"
TURNS = 3
FIRST = 100
"""Nodes of the graph that goes first."""
KIB = 1 << 10


def chain(nodes: int) -> Iterator[NodeProto]:
    """Yield convolutions, one after the other."""
    for i in range(nodes):
        yield helper.make_node("Conv", [f"t{i - 1}" if i else "x", f"w{i}"], [f"t{i}"])


def wide(nodes: int) -> Iterator[NodeProto]:
    """Yield convolutions that all read the input, and the maxima of their outputs, one after the other."""
    half = nodes // 2
    for i in range(half):
        yield helper.make_node("Conv", ["x", f"w{i}"], [f"t{i}"])
    for i in range(half):
        yield helper.make_node("Max", [f"m{i - 1}" if i else "x", f"t{i}"], [f"m{i}"])


def skips(nodes: int) -> Iterator[NodeProto]:
    """Yield a chain of convolutions whose outputs are read again in the reverse order: the first lives the longest."""
    half = nodes // 2
    yield from chain(half)
    for i in range(half):
        yield helper.make_node("Max", [f"m{i - 1}" if i else "x", f"t{half - 1 - i}"], [f"m{i}"])


def concat(nodes: int) -> Iterator[NodeProto]:
    """Yield convolutions that all read the input, rectifiers of their outputs, and one node that joins them."""
    third = nodes // 3
    for i in range(third):
        yield helper.make_node("Conv", ["x", f"w{i}"], [f"t{i}"])
        yield helper.make_node("Relu", [f"t{i}"], [f"r{i}"])
        yield helper.make_node("Neg", [f"r{i}"], [f"n{i}"])
    yield helper.make_node("Concat", [f"n{i}" for i in range(third)], ["y"], axis=1)


KINDS: dict[str, Callable[[int], Iterator[NodeProto]]] = {
    "chain": chain,
    "wide": wide,
    "skips": skips,
    "concat": concat,
}


def write(kind: str, nodes: int, path: Path) -> Path:
    """Write a graph of a kind with about ``nodes`` nodes."""
    random = np.random.default_rng(0)
    made = list(KINDS[kind](nodes))
    weights = [name for node in made if node.op_type == "Conv" for name in node.input[1:]]
    shape = CHANNELS, CHANNELS, 1, 1
    arrays = [numpy_helper.from_array(random.random(shape, np.float32) * 0.1, name) for name in weights]
    dims = 1, CHANNELS, SIDE, SIDE
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    ports = [x, onnx.ValueInfoProto(name=made[-1].output[0])]
    graph = helper.make_graph(made, kind, ports[:1], ports[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of CPU that ``act`` takes, and what it returns."""
    started = time.process_time()
    found = act()
    return time.process_time() - started, found


def planned(artifact: Path) -> dict[str, float]:
    """Return seconds of opening and of planning, and the process's peak in KiB."""

    def opened() -> Any:
        with open_artifact(str(artifact)) as found:
            return found.graph

    times = {}
    times["open"], graph = timed(opened)
    times["free"], _ = timed(lambda: Planner(graph, SETTING).plan(None))
    minimum = Planner(graph, SETTING).minimum
    half = minimum + sum(weight.nbytes for weight in graph.weights) // 2
    times["smallest"], _ = timed(lambda: Planner(graph, SETTING).plan(minimum))
    times["half"], _ = timed(lambda: Planner(graph, SETTING).plan(half))
    peak = status("VmHWM") // KIB
    times["session"], _ = timed(lambda: flexnn.Session(artifact, threads=1, profile="analytic").close())
    return times | {"peak_kib": peak}


def measure(kind: str, nodes: int) -> dict[str, float]:
    """Return seconds of each stage and the peak in KiB, in a process of its own but for compiling."""
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for count in (FIRST, nodes):
            source, target = write(kind, count, Path(folder) / f"{count}.onnx"), Path(folder) / f"{count}.flexnn"
            compiling, _ = timed(lambda: flexnn.compile(source, target))  # noqa: B023 (it runs at once)
            made.append(target)
        told = module("bench.planner", "growth", "--artifacts", *made)
    return {"compile": compiling, **json.loads(told)}


def table_of(kind: str, options: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Return the least figures of a kind by nodes. Tells each row when a turn has measured it."""
    rows: dict[int, dict[str, float]] = {}
    fewest, most = options.nodes
    for _ in range(options.turns):
        nodes = fewest
        while nodes <= most:
            found = measure(kind, nodes)
            rows[nodes] = {name: min(value, rows.get(nodes, found)[name]) for name, value in found.items()}
            told = zip((*STAGES, "MiB"), cells(rows, nodes), strict=True)
            print(kind, nodes, ", ".join(map(" ".join, told)), sep="\t", file=sys.stderr, flush=True)
            nodes *= 2
    return rows


def cells(sizes: Mapping[int, Mapping[str, float]], nodes: int) -> list[str]:
    """Return the texts of a row: seconds of each stage and the peak, with their multiples of half the nodes."""
    row, half = sizes[nodes], sizes.get(nodes // 2)
    texts = [f"{row[s]:.3f}" for s in STAGES] + [f"{row['peak_kib'] / KIB:.0f}"]
    if half is None:
        return texts
    return [f"{text} ({row[s] / half[s]:.2f})" for text, s in zip(texts, (*STAGES, "peak_kib"), strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner growth", __doc__)
    parser.add_argument("--nodes", type=int, nargs=2, default=[1000, 8000], metavar="N", help="fewest and most nodes")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument(
        "--artifacts", type=Path, nargs="+", help="open and plan these, and print the figures of the last as JSON"
    )
    options = parser.parse_args(arguments)
    if options.artifacts is not None:
        print(json.dumps([planned(artifact) for artifact in options.artifacts][-1]))
        return 0
    rows = {kind: table_of(kind, options) for kind in options.kinds}
    write_json(options.json, rows)
    for kind, sizes in rows.items():
        grid = table(f"{kind}: CPU s (multiple of half the nodes)", "nodes", *STAGES, "peak, MiB")
        for nodes in sizes:
            grid.add_row(str(nodes), *cells(sizes, nodes))
        tables(options.json).print(grid)
    return 0
