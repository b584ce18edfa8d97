"""Graphs in bands of rows: branches, joins, maps of several sizes, all operators that can compute some rows alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import flexnn
from bench.models import segmentation
from bench.models.net import Net
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.ir import Graph
from flexnn.planning import Planner, Setting, apart, band_search, bands, late
from flexnn.planning.band_tables import BandTables
from flexnn.planning.banding import Region, rows_of, written
from flexnn.planning.check import check_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.overhead import BASE_BYTES
from flexnn.planning.twice import Twice
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.run import fixed
from flexnn.session import open_for_tests
from tests.support.plans import FAST_DISK

CHANNELS = 8
SETTING = Setting(FAST_DISK, threads=2)


class _Net:
    """A random model under way: nodes, and the maps that later nodes may read, by their height and width."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.maps: list[tuple[str, int, int, int]] = []

    def add(self, op: str, inputs: list[str], shape: tuple[int, int, int], **attrs: Any) -> None:
        """Add a node whose output has ``shape``: channels, height, width."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.maps.append((name, *shape))

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def step(self) -> None:
        """Add a node that reads late maps, or sometimes an early one."""
        name, c, h, w = self.rng.choice(self.maps[-3:] if self.rng.random() < 0.8 else self.maps)
        kind = self.rng.choice(KINDS)
        getattr(self, f"_{kind}")(name, c, h, w)

    def _conv(self, name: str, c: int, h: int, w: int) -> None:
        kernel, out = self.rng.choice([1, 3, 5]), self.rng.choice([8, 12, 16])
        dilation = self.rng.choice([1, 1, 2])
        values = self.numbers.standard_normal((out, c, kernel, kernel)) / (c * kernel * kernel) ** 0.5
        pad = (kernel - 1) * dilation // 2
        where = {"kernel_shape": [kernel] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2}
        self.add("Conv", [name, self.constant(values)], (out, h, w), **where)

    def _depthwise(self, name: str, c: int, h: int, w: int) -> None:
        values = self.numbers.standard_normal((c, 1, 3, 3)) / 3
        self.add("Conv", [name, self.constant(values)], (c, h, w), group=c, kernel_shape=[3, 3], pads=[1] * 4)

    def _down(self, name: str, c: int, h: int, w: int) -> None:
        if min(h, w) < 12:
            return
        op = self.rng.choice(["MaxPool", "AveragePool"])
        kernel = self.rng.choice([2, 3])
        size = tuple((d + 2 * (kernel // 2) - kernel) // 2 + 1 for d in (h, w))
        self.add(op, [name], (c, *size), kernel_shape=[kernel] * 2, strides=[2, 2], pads=[kernel // 2] * 4)

    def _up(self, name: str, c: int, h: int, w: int) -> None:
        if max(h, w) > 100:
            return
        mode, coord = self.rng.choice(["nearest", "linear", "cubic"]), self.rng.choice(COORDINATES)
        factor = self.rng.choice([2.0, 2.0, 1.5, 3.0])
        if coord == "align_corners" and (h * factor % 1 or w * factor % 1):
            factor = 2.0  # onnxruntime departs from ONNX where a length is no whole number
        size = tuple(int(d * factor) for d in (h, w))
        how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coord}
        if mode == "nearest":
            coord = "asymmetric" if coord == "align_corners" else coord  # whose ties are decided by rounding
            how["coordinate_transformation_mode"] = coord
            how["nearest_mode"] = self.rng.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
        given = [self.constant([1, 1, factor, factor])]
        self.add("Resize", [name, "", *given], (c, *size), **how)

    def _join(self, name: str, c: int, h: int, w: int) -> None:
        """Concat with a map of the same size, or a sum with one of the same shape."""
        same = [m for m in self.maps if m[2:] == (h, w) and m[0] != name]
        if not same:
            return
        other, channels, _, _ = self.rng.choice(same)
        if channels == c and self.rng.random() < 0.5:
            self.add(self.rng.choice(["Add", "Mul"]), [name, other], (c, h, w))
        else:
            self.add("Concat", [name, other], (c + channels, h, w), axis=1)

    def _activation(self, name: str, c: int, h: int, w: int) -> None:
        self.add(self.rng.choice(["Relu", "Sigmoid", "HardSwish"]), [name], (c, h, w))

    def _slice(self, name: str, c: int, h: int, w: int) -> None:
        low, high = self.rng.randint(0, h // 4), h - self.rng.randint(0, h // 4)
        ends = [self.constant([v], np.int64) for v in (low, high, 2)]
        self.add("Slice", [name, *ends], (c, high - low, w))

    def _pad(self, name: str, c: int, h: int, w: int) -> None:
        top, bottom, left = (self.rng.randint(0, 3) for _ in range(3))
        pads = self.constant([0, 0, top, left, 0, 0, bottom, 0], np.int64)
        self.add("Pad", [name, pads], (c, h + top + bottom, w + left), mode=self.rng.choice(["constant", "edge"]))

    def _transposed(self, name: str, c: int, h: int, w: int) -> None:
        if max(h, w) > 60:
            return
        kernel, pad = self.rng.choice([(2, 0), (4, 1), (3, 0)])
        values = self.numbers.standard_normal((c, 8, kernel, kernel)) / (c * kernel) ** 0.5
        size = tuple((d - 1) * 2 + kernel - 2 * pad for d in (h, w))
        self.add("ConvTranspose", [name, self.constant(values)], (8, *size), strides=[2, 2], pads=[pad] * 4)

    def _shuffle(self, name: str, c: int, h: int, w: int) -> None:
        if c % 4 == 0 and c > 4 and max(h, w) < 60:
            self.add("DepthToSpace", [name], (c // 4, 2 * h, 2 * w), blocksize=2, mode=self.rng.choice(["DCR", "CRD"]))

    def _gate(self, name: str, c: int, h: int, w: int) -> None:
        """A product with a vector of channels, which is computed of the whole map."""
        self.add("GlobalAveragePool", [name], (c, 1, 1))
        self.add("Mul", [name, self.maps.pop()[0]], (c, h, w))

    def model(self, height: int, width: int) -> onnx.ModelProto:
        """The model, whose outputs are all maps that nobody reads."""
        read = {name for node in self.nodes for name in node.input}
        ends = [name for name, *_ in self.maps if name not in read]
        outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ends]
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", CHANNELS, height, width])
        graph = helper.make_graph(self.nodes, "net", [x], outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


KINDS = (
    *("conv", "conv", "depthwise", "down", "up", "up", "join", "join", "join", "activation"),
    *("slice", "pad", "transposed", "shuffle", "gate"),
)
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _made(seed: int, path: Path) -> tuple[int, int]:
    net = _Net(seed)
    height, width = net.rng.randint(24, 60), net.rng.randint(16, 40)
    net.maps.append(("x", CHANNELS, height, width))
    net._conv("x", CHANNELS, height, width)
    while len(net.nodes) < net.rng.randint(10, 24):
        net.step()
    onnx.save(net.model(height, width), path)
    return height, width


@pytest.mark.parametrize("seed", range(60))
def test_smallest_budget_computes_the_same(seed: int, tmp_path: Path) -> None:
    """Memory starts as NaN; onnxruntime has the same numbers."""
    height, width = _made(seed, tmp_path / "m.onnx")
    images = 1 + seed % 3 // 2
    x = np.random.default_rng(seed).standard_normal((images, CHANNELS, height, width)).astype(np.float32)
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn", shapes={"x": x.shape})
    wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        whole = session.run(None, {"x": x})
        session.memory = session.plan.minimum_memory
        for _ in range(2):
            for got, expected, reference in zip(session.run(None, {"x": x}), whole, wanted, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(got, reference, rtol=1e-3, atol=1e-4)


def _any_region(graph: Graph, rng: random.Random) -> Graph | None:
    """Return the graph with some nodes in bands, None where these cannot be."""
    costs = graph_costs(graph, SETTING)
    walks, tables = BandTables().of(graph, costs)
    first = rng.randrange(len(walks))
    last = first
    while last + 1 < len(walks) and walks[last + 1] is not None and rng.random() < 0.9:
        last += 1
    region = Region(first, last, rng.choice([2, 3, 5, 8, 16]), int(rng.random() < 0.7))
    if walks[first] is None or len({walk.images for walk in walks[first : last + 1] if walk}) > 1:
        return None
    try:
        return written(graph, costs, walks, tables, [region])
    except ValueError:
        return None


@pytest.mark.parametrize("seed", range(60))
def test_any_region_computes_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that follow each other, in any number of bands, whether that spares memory or not."""
    height, width = _made(1000 + seed, tmp_path / "m.onnx")
    images = 1 + seed % 3 // 2
    shape = images, CHANNELS, height, width
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn", shapes={"x": shape})
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    rng = random.Random(seed)
    with open_artifact(str(artifact)) as opened:
        if isinstance(opened.contents, StoredModel):
            return  # numpy computes a part
        graph = opened.graph
    with open_for_tests(artifact, threads=2, profile="analytic") as session:
        whole = session.run(None, {"x": x})
    found = [banded for _ in range(40) if (banded := _any_region(graph, rng)) is not None]
    for banded in found[:6]:
        plan = VariantPlanner(banded, SETTING).plan(None)
        check_plan(plan.graph, plan.program)
        monkeypatch.setattr(fixed.Planner, "plan", lambda self, memory, p=plan: p)
        with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
            assert session.plan.graph is banded
            for got, expected in zip(session.run(None, {"x": x}), whole, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def _padded(path: Path, pads: list[int], kernel: tuple[int, int], stride: int) -> None:
    """Write a model of convolutions some of whose windows lie in the padding alone."""
    rng = np.random.default_rng(sum(pads))
    weights = [numpy_helper.from_array(rng.standard_normal((8, 8, *kernel)).astype(np.float32) / 4, "w")]
    weights.append(numpy_helper.from_array(rng.standard_normal(8).astype(np.float32), "b"))
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, strides=[stride, 1]),
        helper.make_node("Sigmoid", ["y"], ["s"]),
        helper.make_node("Conv", ["s", "w", "b"], ["z"], pads=pads, strides=[stride, 1]),
    ]
    given = helper.make_tensor_value_info("x", 1, (1, 8, 9, 6))
    result = helper.make_tensor_value_info("z", 1, None)
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [given], [result], weights), ir_version=8), path)


@pytest.mark.parametrize("pads", [[1, 0, 1, 0], [0, 0, 3, 0], [4, 0, 0, 0], [3, 1, 5, 1]])
@pytest.mark.parametrize("kernel", [(1, 1), (2, 1), (3, 3)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_windows_in_the_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pads: list[int], kernel: tuple[int, int], stride: int
) -> None:
    """Bands may hold nothing but such windows, which have the bias."""
    _padded(tmp_path / "m.onnx", pads, kernel, stride)
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    x = np.random.default_rng(1).standard_normal((1, 8, 9, 6)).astype(np.float32)
    with open_artifact(str(artifact)) as opened:
        assert isinstance(opened.graph, Graph)
        graph = opened.graph
    with open_for_tests(artifact, threads=2, profile="analytic") as session:
        (whole,) = session.run(None, {"x": x})
    costs = graph_costs(graph, SETTING)
    walks, tables = BandTables().of(graph, costs)
    first, last = (index for index, node in enumerate(graph.nodes) if node.op == "conv")
    heights = [graph.tensors[node.outputs[0]].shape[1] for node in graph.nodes]
    for count in {2, 3, heights[last]}:
        for end in (first, last):
            region = Region(first, end, min(count, heights[end]))
            if None in walks[region.first : region.last + 1]:  # a map of one row; what a kept plan says may be wrong
                with pytest.raises(ValueError, match="no bands"):
                    rows_of(tables, region)
                continue
            banded = written(graph, costs, walks, tables, [region])
            plan = VariantPlanner(banded, SETTING).plan(None)
            check_plan(plan.graph, plan.program)
            monkeypatch.setattr(fixed.Planner, "plan", lambda self, memory, p=plan: p)
            with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
                assert session.plan.graph is banded
                np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, rtol=1e-5, atol=1e-6)
            monkeypatch.undo()


def test_transposed_convolutions_are_never_whole(tmp_path: Path) -> None:
    """Places that have a tap fewer end in windows of padding alone; bands go through them as through the others."""
    rng = np.random.default_rng(0)
    nodes, weights, name, channels = [], list[onnx.TensorProto](), "x", 64
    for index, out in enumerate((32, 32, 16)):
        kernel = rng.standard_normal((channels, out, 3, 3)).astype(np.float32) / 16
        weights.append(numpy_helper.from_array(kernel, f"w{index}"))
        where = {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}
        nodes.append(helper.make_node("ConvTranspose", [name, f"w{index}"], [f"c{index}"], **where))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"]))
        name, channels = f"r{index}", out
    nodes.append(helper.make_node("ReduceMean", [name], ["y"], axes=[1, 3]))
    given = helper.make_tensor_value_info("x", 1, (1, 64, 32, 32))
    result = helper.make_tensor_value_info("y", 1, (1, 1, 256, 1))
    graph = helper.make_graph(nodes, "g", [given], [result], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    x = rng.standard_normal((1, 64, 32, 32)).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        (whole,) = session.run(None, {"x": x})
        least = session.memory = session.plan.minimum_memory
        assert least < 5 << 20  # the last layer's map of places and its output take 4 MiB each
        np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, rtol=0, atol=1e-6 * np.abs(whole).max())


def test_maps_that_wait_for_their_concatenation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A U-Net's first map waits alone, and its bands reach through all levels."""
    net = Net("unet")
    result = segmentation.unet(net, size=128, base=32, levels=3)
    net.output(result.name, result.shape)
    net.write(tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    x = np.random.default_rng(0).standard_normal((1, 3, 128, 128)).astype(np.float32)
    with open_artifact(str(artifact)) as opened:
        assert isinstance(opened.graph, Graph)
        least = Planner(opened.graph, SETTING).minimum
        whole = VariantPlanner(opened.graph, SETTING).minimum
        assert least - BASE_BYTES < 0.75 * (whole - BASE_BYTES)  # of what bands can change
        monkeypatch.setattr(bands, "apart", lambda graph, costs, **_: graph)
        monkeypatch.setattr(late, "late", lambda graph, waiting: Twice(graph, 0))  # which spares as much here
        assert least < 0.9 * Planner(opened.graph, SETTING).minimum
        monkeypatch.undo()
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        expected = session.run(None, {"input": x})[0]
        session.memory = session.plan.minimum_memory
        np.testing.assert_allclose(session.run(None, {"input": x})[0], expected, rtol=1e-4, atol=1e-6)


def _of_blocks(path: Path, size: int, base: int, levels: int, depth: int) -> None:
    """Write a U of residual U-blocks without side maps, of the kind of IS-Net (Qin et al. 2022)."""
    net = Net("blocks")
    x = segmentation._conv(net, net.input("input", 1, 3, size, size), base)
    skips = []
    for level in range(levels):
        x = segmentation._nested(net, x, depth - level, base // 2 << max(level - 1, 0), base << level)
        skips.append(x)
        x = net.pool(x, "MaxPool", 2, 2)
    x = segmentation._nested(net, x, 2, base << levels - 1, base << levels - 1)
    for level in reversed(range(levels)):
        both = net.concat(skips[level], segmentation._resized(net, x, 2, "linear"))
        x = segmentation._nested(net, both, depth - level, base // 4 << level, base << max(level - 1, 0))
    result = net.conv(x, 1, 3, pad=1)
    net.output(result.name, result.shape)
    net.write(path)


def test_sums_lie_where_an_old_map_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block's result is added to its first map and waits for a concatenation: it takes that map's storage, and walks
    reach the sum behind them.
    """
    _of_blocks(tmp_path / "m.onnx", 128, 64, 3, 5)
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    x = np.random.default_rng(0).standard_normal((1, 3, 128, 128)).astype(np.float32)
    with open_artifact(str(artifact)) as opened:
        assert isinstance(opened.graph, Graph)
        with monkeypatch.context() as alone:  # maps that grow over others or are made again spare as much here
            alone.setattr(bands, "WORTH_PAIRS", 0)
            alone.setattr(band_search, "WORTH_PAIRS", 0)
            alone.setattr(late, "late", lambda graph, waiting: Twice(graph, 0))
            least = Planner(opened.graph, SETTING).minimum
            alone.setattr(band_search.Search, "_joined", lambda *_: (None, None))
            assert least < 0.97 * Planner(opened.graph, SETTING).minimum
        with monkeypatch.context() as alone:
            alone.setattr(bands, "WORTH_PAIRS", 0)
            alone.setattr(band_search, "WORTH_PAIRS", 0)
            alone.setattr(late, "late", lambda graph, waiting: Twice(graph, 0))
            alone.setattr(apart, "_dying", lambda *_: -1)
            assert least < 0.97 * Planner(opened.graph, SETTING).minimum
        assert Planner(opened.graph, SETTING).minimum <= least
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        expected = session.run(None, {"input": x})[0]
        session.memory = session.plan.minimum_memory
        np.testing.assert_allclose(session.run(None, {"input": x})[0], expected, rtol=1e-4, atol=1e-5)


def test_side_maps_are_made_before_their_sources_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net("u2net")
    result = segmentation.u2net(net, size=256, base=32)
    net.output(result.name, result.shape)
    net.write(tmp_path / "m.onnx")
    with open_artifact(flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")) as opened:
        assert isinstance(opened.graph, Graph)
        least = Planner(opened.graph, SETTING).minimum
        monkeypatch.setattr(bands, "ordered", lambda graph: graph)
        assert least < 0.9 * Planner(opened.graph, SETTING).minimum
