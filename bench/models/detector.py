"""A model that branches: a light detector and, if it fires, one of two heavy ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
from onnx import helper, numpy_helper

F32 = onnx.TensorProto.FLOAT
SIDE = 192
"""Height and width of the pictures that the benches give it."""


class Body:
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
    light, fires, wide, deep, none = (Body(name) for name in ("light", "fires", "wide", "deep", "none"))
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
