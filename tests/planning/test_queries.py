"""Queries that are made just before they are read: the same numbers, and smaller budgets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import flexnn
from bench.models.inputs import input_shapes, random_feed
from bench.models.net import Net
from bench.models.transformers import TRANSFORMERS, Size
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.ir import Graph
from flexnn.planning import Planner, Setting, queries
from flexnn.planning.band_tables import BandTables
from flexnn.planning.banding import Region, written
from flexnn.planning.check import check_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.queries import queries_last
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.run import fixed
from flexnn.session import open_for_tests
from tests.support.plans import FAST_DISK

SETTING = Setting(FAST_DISK, threads=2)
TOKENS = 1000
SIZES = {
    "vit_b16": Size(2, 384, 6, 1536, 10, 512, batch=1),  # 1,025 tokens
    "gpt2": Size(2, 192, 3, 768, 100, TOKENS),
    "minilm": Size(2, 192, 3, 768, 100, TOKENS),
    "llama": Size(2, 192, 3, 512, 100, 0, kv_heads=1),
}


@pytest.fixture(scope="module", params=SIZES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A shallow transformer over many tokens, and its artifact."""
    name, folder = str(request.param), tmp_path_factory.mktemp("queries")
    entry = TRANSFORMERS[name]
    net = Net(name, entry.opset)
    entry.build(net, SIZES[name])
    net.write(folder / "m.onnx")
    shapes = {given: (1, TOKENS) for given in entry.inputs if entry.tokens}
    return name, flexnn.compile(folder / "m.onnx", folder / "m.flexnn", shapes=shapes)


def _graph(path: Path) -> Graph:
    with open_artifact(str(path)) as opened:
        assert not isinstance(opened.contents, StoredModel)
        return opened.graph


def test_queries_are_never_whole(model: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    name, path = model
    graph = _graph(path)
    planner = Planner(graph, SETTING)
    least, whole = planner.minimum, planner.whole.minimum
    for memory in (least, int(1.1 * least), whole):
        plan = planner.plan(memory)
        check_plan(plan.graph, plan.program)
    monkeypatch.setattr(queries, "queries_last", lambda graph, costs, wanted: graph)
    before = Planner(graph, SETTING).minimum
    assert least <= before
    if name in ("vit_b16", "minilm"):
        assert least < before - (256 << 10)


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_are_the_same(model: tuple[str, Path], threads: int) -> None:
    """Memory starts as NaN; runs repeat; other budgets come and go."""
    name, path = model
    entry = TRANSFORMERS[name]
    ranges = {given: (1, 2) if "mask" in given else (0, 2) for given in entry.inputs if entry.tokens}
    shapes = {given: (1, TOKENS) for given in entry.inputs if entry.tokens}
    feed = random_feed(input_shapes(Path(path).with_name("m.onnx"), shapes), 1, 1.0, ranges)
    with open_for_tests(path, threads=threads, profile="analytic", poison=True) as session:
        whole = session.run(None, feed)[0]
        least = session.plan.minimum_memory
        for factor in (1, 1.1, 1.3, 1):
            session.memory = int(factor * least)
            for _ in range(2):
                got = session.run(None, feed)[0]
                np.testing.assert_allclose(got, whole, rtol=0, atol=1e-6 * np.abs(whole).max())


HEADS, KEYS, WIDTH = 2, 13, 8


def _attention(path: Path, mask: tuple[int, ...], is_causal: bool) -> dict[str, np.ndarray]:
    """Write a model of an attention whose queries, keys and values are products; return inputs."""
    rng, wide = np.random.default_rng(0), HEADS * WIDTH
    given = {name: rng.standard_normal((1, 11 if name == "q" else KEYS, wide)).astype(np.float32) for name in "qkv"}
    weights = rng.standard_normal((3, wide, wide)).astype(np.float32) / np.float32(wide**0.5)
    constants = [numpy_helper.from_array(weight, f"w{name}") for name, weight in zip("qkv", weights, strict=True)]
    constants.append(numpy_helper.from_array(np.array([1, -1, HEADS, WIDTH]), "shape"))
    nodes, operands = [], []
    for name in "qkv":
        nodes.append(helper.make_node("MatMul", [name, f"w{name}"], [f"{name}1"]))
        nodes.append(helper.make_node("Reshape", [f"{name}1", "shape"], [f"{name}2"]))
        nodes.append(helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], perm=[0, 2, 1, 3]))
        operands.append(f"{name}3")
    if mask:
        given["m"] = rng.standard_normal(mask).astype(np.float32)
        nodes.append(helper.make_node("Mul", ["m", "m"], ["m3"]))
        operands.append("m3")
    nodes.append(helper.make_node("Attention", operands, ["y"], is_causal=int(is_causal)))
    nodes.append(helper.make_node("Tanh", ["y"], ["z"]))
    stated = [helper.make_tensor_value_info(name, 1, x.shape) for name, x in given.items()]
    result = helper.make_tensor_value_info("z", 1, (1, HEADS, 11, WIDTH))
    graph = helper.make_graph(nodes, "g", stated, [result], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return given


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", [(), (11, KEYS), (1, KEYS), (1, HEADS, 11, KEYS), (1, 1, 11, 1)])
@pytest.mark.parametrize("count", [2, 3, 5, 11])
def test_bands_of_queries_compute_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_causal: bool, mask: tuple[int, ...], count: int
) -> None:
    """Rows of a mask go with their queries, and the first query of a band sees the keys of those before it."""
    feed = _attention(tmp_path / "m.onnx", mask, is_causal)
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    graph = _graph(artifact)
    with open_for_tests(artifact, threads=2, profile="analytic") as session:
        (whole,) = session.run(None, feed)
    costs = graph_costs(graph, SETTING)
    walks, tables = BandTables().of(graph, costs)
    (place,) = (index for index, node in enumerate(graph.nodes) if node.op == "attention")
    assert walks[place] is not None
    region = Region(place, place, count)
    banded = written(graph, costs, walks, tables, [region])
    assert sum(node.op == "attention" for node in banded.nodes) == count
    plan = VariantPlanner(banded, SETTING).plan(None)
    check_plan(plan.graph, plan.program)
    monkeypatch.setattr(fixed.Planner, "plan", lambda self, memory: plan)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        assert session.plan.graph is banded
        np.testing.assert_allclose(session.run(None, feed)[0], whole, rtol=0, atol=1e-6 * np.abs(whole).max())


def test_parts_of_a_weight_are_its_panels(model: tuple[str, Path]) -> None:
    """A convolution of queries, keys and values becomes two, whose panels together are those of the one."""
    name, path = model
    graph = _graph(path)
    last = queries_last(graph, graph_costs(graph, SETTING))
    parts = last.weights[len(graph.weights) :]
    assert bool(parts) == (name in ("vit_b16", "gpt2"))
    assert sum(weight.nbytes for weight in last.weights) == sum(weight.nbytes for weight in graph.weights)
    for weight in parts:
        (owner,) = (w for w in graph.weights if w.offset < weight.offset < w.offset + w.nbytes)
        assert weight.crc_first - owner.crc_first == (weight.offset - owner.offset) // owner.chunk_bytes
        assert weight.offset + weight.nbytes <= owner.offset + owner.nbytes
    assert queries_last(graph, graph_costs(graph, SETTING), 1 << 30) is graph
