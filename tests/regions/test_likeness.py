"""Plans that serve templates which differ in sizes only: a batch of one and larger ones share plan and weights."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import pytest

from flexnn.graph.ir import Graph, Node, Tensor, Weight
from flexnn.graph.likeness import Likeness, likeness, skeleton
from flexnn.planning import Planner
from flexnn.planning.refit import Sizes
from tests.support.regions import F32, check_run, graph_of, model_of, numbers, opened, value

node = onnx.helper.make_node


def in_order(sizes: Sizes, found: Likeness) -> Sizes | None:
    """Sizes of a graph as those of one that it is like, as the core orders them (fx_refit_order), in numpy."""
    (one, other), order = found.also, found.order
    if (sizes.nbytes[one] != sizes.nbytes[other]).any() or (sizes.offsets[one] != sizes.offsets[other]).any():
        return None
    return Sizes(sizes.params, sizes.nbytes[order], sizes.offsets[order])


def gated(width: int = 24) -> onnx.ModelProto:
    """Convolutions and a gate that is reshaped: at a batch of one the reshape changes nothing but the rank."""
    weights = {f"w{i}": numbers(width, 3 if i == 0 else width, 3, 3) / 5 for i in range(3)}
    weights |= {"s": np.array([0, -1, 1, 1], np.int64), "flat": np.array([0, -1], np.int64)}
    weights |= {"g": numbers(width, width) / 5}
    nodes = []
    last = "x"
    for i in range(3):
        nodes += [node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]), node("Relu", [f"c{i}"], [f"r{i}"])]
        last = f"r{i}"
    nodes += [node("GlobalAveragePool", [last], ["p"]), node("Reshape", ["p", "flat"], ["f"])]
    nodes += [node("MatMul", ["f", "g"], ["m"]), node("Sigmoid", ["m"], ["q"]), node("Reshape", ["q", "s"], ["k"])]
    nodes += [node("Mul", [last, "k"], ["y"])]
    ports = [value("x", F32, ["n", 3, "h", "w"])], [value("y", F32, ["n", width, "h", "w"])]
    return model_of(graph_of(nodes, *ports, weights))


def test_a_batch_runs_with_the_plan_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening plans once; a first run of a batch, and of one after it, read no weights and plan nothing."""
    made = []
    plan = Planner.plan
    monkeypatch.setattr(Planner, "plan", lambda planner, memory: made.append(1) or plan(planner, memory))
    model = gated()
    with opened(tmp_path, model) as session:
        assert len(made) == 1
        for batch in 3, 1, 8, 2, 1:
            check_run(session, model, {"x": numbers(batch, 3, 40, 56)})
        assert len(made) == 1
        assert session.statistics()["pinning"]["read"] <= session.plan.pinned_bytes


def small() -> Graph:
    """x, weight → conv → view → y, as likeness sees it."""
    tensors = [Tensor("x", (1, 8, 8, 3)), Tensor("c", (1, 6, 6, 4)), Tensor("v", (144,), root=1), Tensor("y", (144,))]
    nodes = [Node("conv", "conv", [0], [1], weight=0), Node("relu", "unary", [2], [3])]
    return Graph(tensors, nodes, [Weight("w", "panels", 64, 64, offset=4096)], [0], [3])


def sizes(*nbytes: int, offsets: tuple[int, ...] | None = None) -> Sizes:
    starts = np.array(offsets or (0,) * len(nbytes), np.int64)
    return Sizes(np.zeros((2, 4), np.int32), np.array(nbytes, np.int64), starts)


def test_tensors_come_in_the_order_of_the_base() -> None:
    """A graph with the same nodes, whose tensors have other numbers, gets them in the base's order."""
    own = Graph(
        [Tensor("y", (9,)), Tensor("v", (9,), root=3), Tensor("x", (9,)), Tensor("c", (9,))],
        [Node("conv", "conv", [2], [3], weight=0), Node("relu", "unary", [1], [0])],
        [Weight("other name", "panels", 64, 64, offset=4096)],
        [2],
        [0],
    )
    found = likeness(skeleton(own), skeleton(small()))
    assert found is not None
    made = in_order(sizes(10, 11, 12, 13, offsets=(0, 4, 0, 0)), found)
    assert made is not None
    assert made.nbytes.tolist() == [12, 13, 11, 10]
    assert made.offsets.tolist() == [0, 0, 4, 0]


def test_a_view_that_the_base_has_not_is_one_only_where_it_is_the_whole() -> None:
    base = small()
    base.nodes[1].inputs = [1]
    found = likeness(skeleton(small()), skeleton(base))
    assert found is not None
    whole = in_order(sizes(12, 16, 16, 16), found)
    assert whole is not None
    assert whole.nbytes[[0, 1, 3]].tolist() == [12, 16, 16]  # no node has the other one
    assert in_order(sizes(12, 16, 12, 16), found) is None
    assert in_order(sizes(12, 16, 16, 16, offsets=(0, 0, 4, 0)), found) is None


CHANGES = {
    "another operator": lambda g: setattr(g.nodes[1], "op", "binary"),
    "another weight": lambda g: setattr(g.weights[0], "offset", 8192),
    "no weight": lambda g: setattr(g.nodes[0], "weight", -1),
    "another type": lambda g: setattr(g.tensors[3], "dtype", "i32"),
    "another input": lambda g: setattr(g.nodes[1], "inputs", [0]),
    "more inputs": lambda g: setattr(g.nodes[1], "inputs", [2, 2]),
    "a node less": lambda g: g.nodes.pop(),
    "another output": lambda g: setattr(g, "outputs", [1]),
    "two tensors in one place": lambda g: (setattr(g.tensors[3], "root", 1), setattr(g, "outputs", [3])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_graphs_are_not_alike(name: str) -> None:
    own = deepcopy(small())
    CHANGES[name](own)
    assert likeness(skeleton(own), skeleton(small())) is None
