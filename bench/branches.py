"""Memory of a model with control flow by the ways in which its programs may share it (Wang et al.): planned, not run.

    python -m bench.branches                                  a light detector and, if it fires, one of two heavy ones
    python -m bench.branches model.onnx --shape input=1,512   any model that branches

Without a budget, and at the smallest one; MiB of all arenas.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

import flexnn
from bench import WIDTH
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.bind import known_shape
from flexnn.graph.ir import DTYPES
from flexnn.planning import MachineProfile, Setting
from flexnn.run.region_plan import plan_regions
from flexnn.run.segments import BoundSegments
from flexnn.units import parse_shape

F32, MIB = onnx.TensorProto.FLOAT, 1 << 20
SIDE, THREADS = 192, 2


class Net:
    """The nodes and weights of one graph."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def conv(self, x: str, cin: int, cout: int, stride: int = 1) -> str:
        """A 3x3 convolution."""
        made = f"{self.name}.{len(self.nodes)}"
        weight = np.random.default_rng(len(self.nodes)).standard_normal((cout, cin, 3, 3)).astype(np.float32)
        self.weights.append(numpy_helper.from_array(weight / np.float32(3 * cin**0.5), f"{made}.w"))
        where = {"pads": [1, 1, 1, 1], "strides": [stride] * 2}
        self.nodes.append(helper.make_node("Conv", [x, f"{made}.w"], [made], **where))
        return made

    def convs(self, x: str, *channels: int) -> str:
        """3x3 convolutions, the first of stride 2."""
        for i, (cin, cout) in enumerate(pairwise(channels)):
            x = self.conv(x, cin, cout, 1 if i else 2)
        return x

    def branch(self, x: str, **bodies: onnx.GraphProto) -> str:
        """An If on whether the mean is positive."""
        made = f"{self.name}.{len(self.nodes)}"
        self.weights.append(numpy_helper.from_array(np.zeros((), np.float32), f"{made}.zero"))
        self.nodes += [
            helper.make_node("ReduceMean", [x], [f"{made}.mean"], keepdims=0),
            helper.make_node("Greater", [f"{made}.mean", f"{made}.zero"], [f"{made}.is"]),
            helper.make_node("If", [f"{made}.is"], [made], **bodies),
        ]
        return made

    def graph(self, result: str, channels: int, inputs: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """All of it, with an output of its own."""
        output = helper.make_tensor_value_info(f"{self.name}.out", F32, [1, channels, None, None])
        self.nodes.append(helper.make_node("Relu", [result], [f"{self.name}.out"]))
        return helper.make_graph(self.nodes, self.name, inputs, [output], self.weights)


def detector() -> onnx.ModelProto:
    """A light detector and, if it fires, one of two heavier ones; what either found goes through the same layers."""
    light, fires, wide, deep, none = (Net(name) for name in ("light", "fires", "wide", "deep", "none"))
    x = light.conv(light.convs(light.convs("x", 3, 16), 16, 32), 32, 64)
    heavy = {
        "then_branch": wide.graph(wide.convs(x, 64, 192, 192, 192, 192, 32), 32, []),
        "else_branch": deep.graph(deep.convs(x, 64, *[128] * 8, 32), 32, []),
    }
    y = light.branch(
        x,
        then_branch=fires.graph(fires.branch(fires.conv(x, 64, 64), **heavy), 32, []),
        else_branch=none.graph(none.convs(x, 64, 32), 32, []),
    )
    y = light.conv(light.conv(light.conv(y, 32, 128), 128, 128), 128, 8)
    graph = light.graph(y, 8, [helper.make_tensor_value_info("x", F32, [1, 3, "h", "w"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def strategies(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, dict[str, int]]:
    """Bytes by strategy, without a budget and at the smallest one, and the number of programs."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        made = flexnn.compile(path, Path(folder) / "m.flexnn")
        with open_artifact(str(made)) as artifact:
            if not isinstance(artifact.contents, StoredModel):
                raise SystemExit(f"error: {path} neither branches nor has open shapes")
            ports = artifact.contents.model.graph.inputs
            sizes = {port.name: shapes.get(port.name) or known_shape(port) for port in ports}
            feeds = {port.name: np.ones(sizes[port.name], DTYPES[str(port.dtype)]) for port in ports}
            memory, setting = None, Setting(MachineProfile.measure(), THREADS)
            for label in ("no limit", "smallest"):
                plan = plan_regions(BoundSegments(artifact.contents, memory, setting), feeds)
                found[label] = plan.memory_by_strategy() | {"programs": len(plan.parts)}
                memory = plan.describe()["minimum_memory"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.branches", description=__doc__.split("\n\n")[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--shape", type=parse_shape, action="append", default=[], metavar="NAME=1,3,224,224")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, shapes = options.model, dict(options.shape)
        if path is None:
            path, shapes = Path(folder) / "detector.onnx", {"x": (1, 3, SIDE, SIDE)}
            onnx.save(detector(), path)
        rows = strategies(path, shapes)
    if options.json:
        print(json.dumps(rows))
        return 0
    table = Table("budget", *next(iter(rows.values())))
    for label, row in rows.items():
        table.add_row(label, *(str(n) if name == "programs" else f"{n / MIB:.2f}" for name, n in row.items()))
    Console(width=WIDTH).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
