"""Placement of activations: strategies against the live-bytes bound, published tables, MiniMalloc's hard instances.

    python -m bench.planner placement                     everything
    python -m bench.planner placement --json out.json

A network is counted as Oplachko's thesis does: one block for each tensor of the unfused graph, from the node that
makes it to the last that reads it; the network's own inputs and outputs are the caller's.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper, shape_inference
from rich.console import Console
from rich.progress import track

from bench import ROOT, WIDTH
from bench.cli import cli, table, tables, write_json
from bench.models.net import Net
from bench.models.zoo import ZOO, make
from flexnn import _core
from flexnn.planning.layout import STRATEGIES, Blocks, search

THESIS = {
    "resnext50_split": (393.7, 108.8),
    "googlenet": (67.9, 42.4),
    "mobilenet_v2": (78.3, 30.3),
    "xception": (268.5, 113.2),
    "inception_v3": (198.1, 122.6),
}
"""MB without reuse and greedy by size: table 1, "basic implementation" and "memory optimisation"."""
INSTANCES = ROOT / "tests" / "data" / "minimalloc"
NODES_MAX = 1_000_000


def shaped(net: Net) -> ModelProto:
    """The network with the shape of every tensor; of the initializers only those that are values."""
    model = net.skeleton()
    for init in net.inits:
        if init.values is None:
            kind = onnx.TensorProto.FLOAT
            model.graph.input.append(helper.make_tensor_value_info(init.name, kind, init.shape))
        else:
            model.graph.initializer.append(numpy_helper.from_array(init.values, init.name))
    return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def blocks_of(model: ModelProto) -> Blocks:
    """Return the blocks of the activations."""
    graph = model.graph
    sizes = {}
    for info in graph.value_info:
        tensor = info.type.tensor_type
        width = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).itemsize
        sizes[info.name] = width * int(np.prod([d.dim_value for d in tensor.shape.dim], dtype=np.int64))
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, node in enumerate(graph.node):
        for name in node.output:
            if node.op_type != "Constant":
                first[name] = last[name] = i
        for name in node.input:
            if name in first:
                last[name] = i
    names = [name for name in first if sizes.get(name, 0) > 0]
    return Blocks.of([sizes[n] for n in names], [first[n] for n in names], [last[n] for n in names])


def measure_network(name: str) -> dict[str, Any]:
    """Bytes that each strategy takes, and ms of the search."""
    net = make(name)
    blocks = blocks_of(shaped(net))
    row: dict[str, Any] = {"network": name, "blocks": len(blocks), "bound": blocks.bound}
    row["weights"] = sum(i.size * (4 if i.values is None else i.values.itemsize) for i in net.inits)
    row["strategies"] = {key: blocks.top(place(blocks)) for key, place in STRATEGIES.items()}
    start = time.perf_counter_ns()
    search(blocks)
    row["search_ms"] = (time.perf_counter_ns() - start) / 1e6
    return row


def measure_instance(path: Path) -> dict[str, Any]:
    """Return whether a MiniMalloc instance fits the capacity that its name states."""
    capacity = int(path.name.split(".")[1])
    with path.open() as file:
        rows = [(int(r["size"]), int(r["lower"]), int(r["upper"]) - 1) for r in csv.DictReader(file)]
    blocks = Blocks.of(*(list(column) for column in zip(*rows, strict=True)))
    address = np.zeros(len(blocks), np.int64)
    start = time.perf_counter_ns()
    outcome, nodes = _core.place_search(blocks.sizes, blocks.first, blocks.last, capacity, NODES_MAX, address)
    seconds = (time.perf_counter_ns() - start) / 1e9
    fits = outcome == "some" and blocks.top(address) <= capacity
    return {"instance": path.name[0], "blocks": len(blocks), "fits": fits, "nodes": nodes, "seconds": seconds}


def show(networks: list[dict[str, Any]], instances: list[dict[str, Any]], console: Console) -> None:
    by_name = {row["network"]: row for row in networks}
    heads = "network", "naive, thesis", "ours", "with weights", "by size, thesis", "ours", "with weights"
    grid = table("MB (10^6): thesis, table 1, beside ours", *heads)
    for name, (naive, greedy) in THESIS.items():
        row = by_name[name]
        ours = [row["strategies"][key] for key in ("naive", "large first")]
        cells = [[f"{size / 1e6:.1f}", f"{(size + row['weights']) / 1e6:.1f}"] for size in ours]
        grid.add_row(name, f"{naive:.1f}", *cells[0], f"{greedy:.1f}", *cells[1])
    console.print(grid)
    grid = table("% above the live-bytes bound; ms of the search", "network", "blocks", "bound MiB", *STRATEGIES, "ms")
    for row in networks:
        gaps = [f"{100 * (top / row['bound'] - 1):.1f}" for top in row["strategies"].values()]
        bound = f"{row['bound'] / 2**20:.2f}"
        grid.add_row(row["network"], str(row["blocks"]), bound, *gaps, f"{row['search_ms']:.1f}")
    console.print(grid)
    grid = table("MiniMalloc's instances at their capacity", "instance", "blocks", "fits", "nodes", "s")
    for row in instances:
        fits = "yes" if row["fits"] else "NO"
        grid.add_row(row["instance"], str(row["blocks"]), fits, f"{row['nodes']:,}", f"{row['seconds']:.2f}")
    grid.add_section()
    grid.add_row("together", "", "", "", f"{sum(row['seconds'] for row in instances):.2f}")
    console.print(grid)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner placement", __doc__)
    options = parser.parse_args(arguments)
    progress = Console(stderr=True)
    networks = [measure_network(name) for name in track(ZOO, "placing", console=progress)]
    instances = [measure_instance(path) for path in track(sorted(INSTANCES.glob("*.csv")), console=progress)]
    write_json(options.json, {"networks": networks, "instances": instances})
    show(networks, instances, tables(options.json, max(WIDTH, 150)))
    missed = [row["network"] for row in networks if row["strategies"]["search"] > 1.01 * row["bound"]]
    missed += [row["instance"] for row in instances if not row["fits"]]
    if missed:
        print(f"error: more than 1 % above the bound, or not placed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0
