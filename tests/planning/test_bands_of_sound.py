"""Maps of one line, as of sound, in bands along that line: the same numbers in less memory."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.planning import Planner, Setting
from flexnn.session import Session, open_for_tests
from tests.support.plans import FAST_DISK

CHANNELS = 16


class _Net:
    """A random network over one line: convolutions with dilations, sums around them, more and fewer samples."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.last, self.length = "x", 0

    def constant(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        values = self.numbers.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def add(self, op: str, inputs: list[str], **attrs: object) -> str:
        self.last = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [self.last], **attrs))
        return self.last

    def block(self) -> None:
        """Two convolutions, added to what they read."""
        before = self.last
        for _ in range(2):
            kernel, dilation = self.rng.choice([3, 5, 7]), self.rng.choice([1, 2, 6])
            self.add("LeakyRelu", [self.last], alpha=0.1)
            pads, weight = [(kernel - 1) * dilation // 2] * 2, self.constant(CHANNELS, CHANNELS, kernel)
            self.add("Conv", [self.last, weight], kernel_shape=[kernel], dilations=[dilation], pads=pads)
        self.add("Add", [self.last, before])

    def up(self) -> None:
        """Twice or four times as many samples."""
        step = self.rng.choice([2, 4])
        weight = self.constant(CHANNELS, CHANNELS, 2 * step)
        self.add("ConvTranspose", [self.last, weight], strides=[step], pads=[step // 2] * 2)

    def down(self) -> None:
        """Half as many samples."""
        if self.rng.random() < 0.5:
            self.add("AveragePool", [self.last], kernel_shape=[2], strides=[2])
        else:
            self.add("Conv", [self.last, self.constant(CHANNELS, CHANNELS, 4)], strides=[2], pads=[1, 1])

    def depthwise(self) -> None:
        weight = self.constant(CHANNELS, 1, 5)
        self.add("Conv", [self.last, weight], group=CHANNELS, pads=[2, 2])
        self.add("Tanh", [self.last])

    def model(self) -> onnx.ModelProto:
        weight = self.constant(1, CHANNELS, 7)
        self.add("Conv", [self.last, weight], pads=[3, 3])
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, CHANNELS, "n"])
        y = helper.make_tensor_value_info(self.last, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [x], [y], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _vocoder() -> onnx.ModelProto:
    """16 times as many samples as it is given, and blocks whose outputs are added up, as HiFi-GAN has them."""
    net = _Net(1)
    for _ in range(2):
        step = 4
        net.add("ConvTranspose", [net.last, net.constant(CHANNELS, CHANNELS, 2 * step)], strides=[4], pads=[2, 2])
        start, sums = net.last, []
        for _ in range(3):
            net.last = start
            net.block()
            sums.append(net.last)
        net.add("Add", [net.add("Add", sums[:2]), sums[2]])
    return net.model()


def _artifact(model: onnx.ModelProto, folder: Path, length: int) -> str:
    path = folder / "m.onnx"
    onnx.save(model, path)
    return flexnn.compile(path, folder / "m.flexnn", shapes={"x": (1, CHANNELS, length)})


def _check(session: Session, model: onnx.ModelProto, x: np.ndarray) -> None:
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(2):
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, wanted.run(None, {"x": x})[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(30))
def test_smallest_budget_computes_the_same(seed: int, tmp_path: Path) -> None:
    """Memory starts as NaN."""
    net = _Net(seed)
    for _ in range(net.rng.randint(2, 5)):
        getattr(net, net.rng.choice(["block", "block", "up", "down", "depthwise"]))()
    model, length = net.model(), net.rng.randint(600, 1200) // 16 * 16
    x = np.random.default_rng(seed).standard_normal((1, CHANNELS, length)).astype(np.float32)
    with open_for_tests(_artifact(model, tmp_path, length), threads=2, profile="analytic", poison=True) as session:
        session.memory = session.plan.minimum_memory
        _check(session, model, x)


def test_the_smallest_budget_of_a_vocoder_is_a_part_of_its_maps(tmp_path: Path) -> None:
    """Its last maps have 1.5 MiB each, of which four live at a time."""
    length = 1536
    model = _vocoder()
    x = np.random.default_rng(0).standard_normal((1, CHANNELS, length)).astype(np.float32)
    with open_for_tests(_artifact(model, tmp_path, length), threads=2, profile="analytic", poison=True) as session:
        graph = session.plan.graph
        planner = Planner(graph, Setting(FAST_DISK, threads=2))
        activations = planner.whole.activation_bytes
        assert activations >= 4 << 20
        assert planner.minimum <= planner.whole.minimum - activations // 2
        session.memory = session.plan.minimum_memory
        assert len(session.plan.graph.nodes) > len(graph.nodes)
        _check(session, model, x)
