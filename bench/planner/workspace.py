"""What layers take beside their tensors: FlexNN's largest workspace in each model, and what peers take for that layer.

    python -m bench.planner workspace                      the eight classics, 1 thread, against onnxruntime and ncnn
    python -m bench.planner workspace vgg19 --threads 2

FlexNN's bytes are those its plan counts, everything pinned, for each thread, and exact. A peer's are measured in a
process of its own that opens a model of the one layer and runs it: resident bytes at their peak while it runs, less
those before it opened, the layer's input, output and weights, and what a tiny layer adds in the same way. So weights
that a peer keeps in a second form count, and pages make the figures coarse. Exit 1 if a workspace of FlexNN's is above
2 MiB.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
from collections.abc import Sequence
from dataclasses import astuple
from math import prod
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.kernels.single import OPEN, installed
from bench.models.artifacts import artifact
from bench.models.catalogue import CLASSICS, Model, chosen
from bench.models.inputs import random_feed
from bench.peers.layers import Layer
from bench.peers.runtimes import MODULES
from bench.process import module, reset_peak, status

WORKSPACE_MAX = 2 << 20
SHOWN = ("onnxruntime", "ncnn")
TINY = Layer("Conv", 8, 8, 8)
RUNS = 3


def largest(model: Model, threads: int) -> tuple[Layer, str, int]:
    """The square convolution with the largest workspace of the plan, its kernel, and the bytes of one thread."""
    import flexnn

    path = artifact(model.make(), model.shapes)
    with flexnn.artifact.open_artifact(str(path)) as opened:
        graph = opened.graph
        planning = flexnn.planning
        plan = planning.make_plan(graph, planning.Setting(planning.MachineProfile.measure(), threads))
    found: list[tuple[int, Layer, str]] = []
    kernels = flexnn._core.ENUMS["conv_kernel"]
    for node, planned in zip(graph.nodes, plan.program.nodes, strict=True):
        kernel, strides = node.attrs.get("kernel"), node.attrs.get("strides")
        if node.op != "conv" or not isinstance(kernel, list) or kernel[0] != kernel[1]:
            continue
        x, y = (graph.tensors[t].shape for t in (node.inputs[0], node.outputs[0]))
        assert isinstance(strides, list)
        layer = Layer("Conv", x[1], x[3], y[3], int(kernel[0]), int(strides[0]), int(str(node.attrs["group"])))
        found.append((int(planned["workspace_bytes"]), layer, kernels[int(planned["kernel"])]))
    bytes_, layer, name = max(found, key=lambda f: f[0])
    return layer, name, bytes_


def tensors(layer: Layer) -> int:
    """Bytes of a layer's input, output and weights."""
    weights = layer.cout * layer.cin // layer.group * layer.kernel**2 + layer.cout
    return 4 * (prod(layer.shape) + prod(layer.out_shape) + weights)


def beside(peer: str, layer: Layer, threads: int) -> int:
    """Bytes that a peer adds to a process of its own beside the layer's tensors."""
    arguments = ("workspace", "--one", peer, json.dumps(astuple(layer)), "--threads", threads)
    return int(module("bench.planner", *arguments)) - tensors(layer)


def added(peer: str, layer: Layer, threads: int) -> int:
    """Bytes that this process grows by."""
    importlib.import_module(MODULES[peer])
    feed = random_feed({"x": layer.shape}, seed=0, scale=1.0)
    layer.make()
    gc.collect()
    before = reset_peak()
    opened = OPEN[peer](layer, threads)
    gc.collect()
    reset_peak()
    for _ in range(RUNS):
        opened.run(feed)
    return status("VmHWM") - before


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.planner workspace", __doc__, models=CLASSICS, threads=1)
    parser.add_argument("--one", nargs=2, metavar=("PEER", "LAYER"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(added(options.one[0], Layer(*json.loads(options.one[1])), options.threads))
        return 0
    peers = [name for name in SHOWN if name in installed()]
    idle = {name: beside(name, TINY, options.threads) for name in peers}
    rows: list[dict[str, Any]] = []
    for model in chosen(options.names, CLASSICS):
        layer, kernel, mine = largest(model, options.threads)
        others = {name: max(0, beside(name, layer, options.threads) - idle[name]) for name in peers}
        rows.append({"model": model.name, "layer": layer.name, "kernel": kernel, "flexnn": mine, **others})
    write_json(options.json, rows)
    title = f"KiB beside input, output and weights, {options.threads} threads"
    columns = "model", "its layer with the largest workspace", "kernel", "FlexNN, a thread", *peers
    grid = table(title, *columns, left=3)
    for row in rows:
        sizes = (f"{row[name] >> 10}" for name in ("flexnn", *peers))
        grid.add_row(row["model"], row["layer"], row["kernel"], *sizes)
    tables(options.json).print(grid)
    return 1 if max(row["flexnn"] for row in rows) > WORKSPACE_MAX else 0
