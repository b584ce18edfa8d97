"""Maps that are made twice, and orders of nodes for memory: the same numbers, and smaller budgets."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from bench.models.net import Net, Value
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.graph.ir import Graph, Node
from flexnn.graph.operators import OPERATORS
from flexnn.graph.operators.rows import Halves
from flexnn.planning import Planner, Setting, apart, bands, twice
from flexnn.planning.check import check_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.order import kept_bytes, ordered
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.run import fixed
from flexnn.session import open_for_tests
from tests.planning.test_band_graphs import CHANNELS, _made
from tests.support.plan_graphs import random_graph
from tests.support.plans import FAST_DISK

SETTING = Setting(FAST_DISK, threads=2)
KINDS = "mean", "sum", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp", "max", "min"
REDUCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda x: x.mean((1, 2)),
    "sum": lambda x: x.sum((1, 2)),
    "prod": lambda x: x.prod((1, 2)),
    "l1": lambda x: np.abs(x).sum((1, 2)),
    "l2": lambda x: np.sqrt((x * x).sum((1, 2))),
    "sum_square": lambda x: (x * x).sum((1, 2)),
    "log_sum": lambda x: np.log(x.sum((1, 2))),
    "log_sum_exp": lambda x: np.log(np.exp(x).sum((1, 2))),
    "max": lambda x: x.max((1, 2)),
    "min": lambda x: x.min((1, 2)),
}


def _halves(kind: str, dtype: str = "f32", axes: tuple[int, ...] = (1, 2)) -> Halves | None:
    node = Node("pool", "reduce", [0], [1], {"kind": kind, "axes": list(axes), "keepdims": 1})
    return OPERATORS["reduce"].halves(node, (1, 12, 9, 5), dtype, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_halves_compute_the_whole(kind: str) -> None:
    """Each kind is that of rows, then that of what these leave."""
    halves = _halves(kind)
    assert halves is not None
    first, then = (str(attrs["kind"]) for attrs in halves)
    x = np.random.default_rng(1).uniform(0.6, 1.4, (1, 12, 9, 5))
    rows = REDUCE[first](x.reshape(12, 9, 1, 5))
    np.testing.assert_allclose(REDUCE[then](rows.reshape(1, 12, 1, 5)), REDUCE[kind](x), rtol=1e-12)


def test_what_has_no_halves() -> None:
    """Integers wrap in each row, and an axis that is not reduced needs no halves; extremes are exact in every type."""
    assert _halves("mean", "u8") is None
    assert _halves("max", "u8") is not None
    assert _halves("mean", axes=(2,)) is None


def _gated(net: Net, size: int, blocks: int) -> Value:
    """Blocks of a MobileNetV3's kind on large maps: wide in the middle, with a gate of the whole map."""
    x = net.conv(net.input("x", 1, 3, size, size), 8, 3, pad=1)
    for _ in range(blocks):
        deep = net.relu(net.conv(net.relu(net.conv(x, 64, 1)), 64, 3, pad=1, groups=64))
        small = net.relu(net.conv(net.global_pool(deep), 16, 1))
        gate = net.add("HardSigmoid", [net.conv(small, 64, 1).name], (1, 64, 1, 1), 0.3)
        x = net.conv(net.add("Mul", [deep.name, gate.name], deep.shape, 0.3), 8, 1)
    return x


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of a network with gates."""
    folder = tmp_path_factory.mktemp("gated")
    net = Net("gated")
    result = _gated(net, 128, 3)
    net.output(result.name, result.shape)
    net.write(folder / "m.onnx")
    return flexnn.compile(folder / "m.onnx", folder / "m.flexnn")


def _graph(path: Path) -> Graph:
    with open_artifact(str(path)) as opened:
        assert not isinstance(opened.contents, StoredModel)
        return opened.graph


def test_a_gated_map_is_never_whole(gated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map before a gate takes 4 MiB; what it is made of, and what the block leaves, an eighth of that."""
    graph = _graph(gated)
    least = Planner(graph, SETTING).minimum
    monkeypatch.setattr(bands, "twice", lambda graph, costs: twice.Twice(graph, 0))
    once = Planner(graph, SETTING).minimum
    assert least < once - (2 << 20)
    assert sum(node.op == "reduce" for node in Planner(graph, SETTING).tightest.graph.nodes) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_gates_compute_the_same(gated: Path, threads: int) -> None:
    """Memory starts as NaN; runs repeat; other budgets come and go; a refused input leaves the session usable."""
    x = np.random.default_rng(0).standard_normal((1, 3, 128, 128)).astype(np.float32)
    with open_for_tests(gated, threads=threads, profile="analytic", poison=True) as session:
        whole = session.run(None, {"x": x})[0]
        least = session.plan.minimum_memory
        for factor in (1, 1.1, 1.3, 1):
            session.memory = int(factor * least)
            for _ in range(2):
                got = session.run(None, {"x": x})[0]
                np.testing.assert_allclose(got, whole, rtol=0, atol=1e-6 * np.abs(whole).max())
        with pytest.raises(ValueError, match="the model takes"):
            session.run(None, {"x": x[:, :, :64]})
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], got)


def test_bands_go_through_inverted_residuals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide maps in the middle of such blocks take 2 MiB each; a sum over the block's input would forbid bands."""
    net = Net("inverted")
    x = net.conv(net.input("x", 1, 3, 96, 96), 8, 3, pad=1)
    for _ in range(5):
        deep = net.relu(net.conv(net.relu(net.conv(x, 64, 1)), 64, 7, pad=3, groups=64))
        x = net.add_values(net.conv(deep, 8, 1), x)
    net.output(x.name, x.shape)
    net.write(tmp_path / "m.onnx")
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
    graph = _graph(artifact)
    least = Planner(graph, SETTING).minimum
    with monkeypatch.context() as patched:
        patched.setattr(bands, "sums_apart", lambda graph, costs: graph)
        assert least < Planner(graph, SETTING).minimum - (1 << 20)
    x_values = np.random.default_rng(0).standard_normal((1, 3, 96, 96)).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        whole = session.run(None, {"x": x_values})[0]
        session.memory = session.plan.minimum_memory
        for _ in range(2):
            got = session.run(None, {"x": x_values})[0]
            np.testing.assert_allclose(got, whole, rtol=0, atol=1e-6 * np.abs(whole).max())


def test_what_changes_between_is_not_made_again() -> None:
    """A map is not made again out of storage that something else has written over since."""
    for seed in range(200):
        graph = random_graph(seed)
        costs = graph_costs(graph, SETTING)
        made = ordered(twice.twice(graph, costs).graph)
        check_plan(made, VariantPlanner(made, SETTING).plan(None).program)


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_computes_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All maps that can be are made twice, in the other order, and sums lie apart, whether that spares or not."""
    monkeypatch.setattr(apart, "BESIDE", 0)
    monkeypatch.setattr(twice, "LARGE", 0)
    monkeypatch.setattr(twice, "KEPT", 10.0)
    monkeypatch.setattr(twice, "WORK_MAX", 10.0)
    height, width = _made(2000 + seed, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    name = random.Random(seed).choice([node.output[0] for node in model.graph.node])
    model.graph.node.append(helper.make_node("GlobalMaxPool", [name], ["most"]))
    model.graph.node.append(helper.make_node("Mul", [name, "most"], ["last"]))
    model.graph.output.append(helper.make_tensor_value_info("last", onnx.TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "m.onnx")
    shape = 1 + seed % 3 // 2, CHANNELS, height, width
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn", shapes={"x": shape})
    with open_artifact(str(artifact)) as opened:
        if isinstance(opened.contents, StoredModel):
            return  # numpy computes a part
        graph = opened.graph
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    with open_for_tests(artifact, threads=2, profile="analytic") as session:
        whole = session.run(None, {"x": x})
    summed = apart.sums_apart(graph, graph_costs(graph, SETTING))
    made = ordered(twice.twice(summed, graph_costs(summed, SETTING)).graph)
    plan = VariantPlanner(made, SETTING).plan(None)
    check_plan(plan.graph, plan.program)
    monkeypatch.setattr(fixed.Planner, "plan", lambda self, memory: plan)
    with open_for_tests(artifact, threads=2, profile="analytic", poison=True) as session:
        for got, expected in zip(session.run(None, {"x": x}), whole, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_branches_come_one_after_the_other(tmp_path: Path) -> None:
    """Laterals of a pyramid that a file states first wait for the level that reads them."""
    net = Net("pyramid")
    x = net.conv(net.input("x", 1, 3, 64, 64), 16, 3, pad=1)
    maps = [x]
    for _ in range(2):
        maps.append(net.pool(maps[-1], "MaxPool", 2, 2))
    laterals = [net.conv(one, 32, 1) for one in maps]
    top = laterals[-1]
    for lateral in reversed(laterals[:-1]):
        scales = net.add_constant(np.array([1, 1, 2, 2], np.float32))
        up = net.add("Resize", [top.name, "", scales], lateral.shape, 0.5, mode="nearest")
        top = net.add("Mul", [lateral.name, up.name], lateral.shape, 0.5)
    net.output(top.name, top.shape)
    net.write(tmp_path / "m.onnx")
    graph = _graph(flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn"))
    assert kept_bytes(ordered(graph)) < 0.9 * kept_bytes(graph)
