"""Nodes in any order: sorted where the model is imported, in nested graphs too."""

from __future__ import annotations

import gc
import random
import time

import numpy as np
import onnx
import pytest
from onnx import helper

from flexnn.graph.ir import GraphError
from flexnn.graph.node_order import sort_nodes
from tests.support.compare import check_model, load, model_of, weights
from tests.support.regions import BOOL, F32, check_run, graph_of, numbers, opened, value
from tests.support.regions import model_of as region_model

NAMES = [f"v{i}" for i in range(40)]


def chained(count, seed):
    """Nodes that each read one or two values of nodes before them."""
    pick = random.Random(seed)
    nodes = []
    for i in range(1, count):
        reads = [NAMES[pick.randrange(i)] for _ in range(pick.randint(1, 2))]
        nodes.append(helper.make_node("Add" if len(reads) == 2 else "Tanh", reads, [NAMES[i]], name=f"n{i}"))
    return nodes


def of(nodes):
    return helper.make_graph(nodes, "g", [], [])


@pytest.mark.parametrize("seed", range(4))
def test_a_shuffled_model_computes_what_the_sorted_one_does(seed):
    nodes = chained(12, seed)
    random.Random(seed).shuffle(nodes)
    made = model_of(nodes, {"v0": (2, 3)}, ["v11"])
    graph = load(made)
    sorted_graph = load(model_of(chained(12, seed), {"v0": (2, 3)}, ["v11"]))
    assert len(graph.nodes) == len(sorted_graph.nodes)
    sort_nodes(made.graph)
    check_model(made)


def test_sorted_nodes_stay_where_they_are():
    graph = of(chained(40, 1))
    before = [node.name for node in graph.node]
    assert sort_nodes(graph) == {"v0"}
    assert [node.name for node in graph.node] == before


def test_a_late_node_goes_before_its_first_reader():
    """Converters to float16 put their casts last."""
    names = ("a", "b", "c", "d")
    nodes = [helper.make_node("Neg", [f"{name}16"], [f"{name}y"], name=name) for name in names]
    nodes += [helper.make_node("Cast", [name], [f"{name}16"], name=f"cast_{name}", to=10) for name in names[1:]]
    graph = of(nodes)
    sort_nodes(graph)
    assert [node.name for node in graph.node] == ["a", "cast_b", "b", "cast_c", "c", "cast_d", "d"]


def test_casts_at_the_end(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["h", "w16"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=1),
        helper.make_node("Cast", ["x"], ["h"], to=10),
        helper.make_node("Cast", ["w"], ["w16"], to=10),
    ]
    made = model_of(nodes, {"x": (3, 8)}, ["y"], {"w": weights(8, 4)})
    assert [node.op for node in load(made).nodes]
    with opened(tmp_path, made) as session:
        x = numbers(3, 8)
        (got,) = session.run(None, {"x": x})
    np.testing.assert_allclose(got, x @ weights(8, 4), rtol=0, atol=0.05)


def nested(order):
    """An If whose branches read values of the graph around it, and whose own nodes are in another order, too."""
    then = graph_of([helper.make_node("Relu", ["p"], ["q"]), helper.make_node("Add", ["late", "x"], ["p"])][order:]
                    + [helper.make_node("Relu", ["p"], ["q"])][:order], [], [value("q")])  # fmt: skip
    other = graph_of([helper.make_node("Neg", ["late"], ["r"])], [], [value("r")])
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["late"], name="late"),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="if"),
    ]
    return graph_of(
        nodes if order else nodes[::-1], [value("x", F32, ["n", 3]), value("c", BOOL, [])], [value("y", F32, ["n", 3])]
    )


@pytest.mark.parametrize("taken", [True, False])
def test_values_that_nested_graphs_capture(tmp_path, taken):
    disordered = helper.make_model(nested(0), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with opened(tmp_path, disordered) as session:
        got = session.run(None, {"x": numbers(2, 3), "c": np.array(taken)})
        check_run(session, region_model(nested(1)), {"x": numbers(2, 3), "c": np.array(taken)})
    x = numbers(2, 3)
    np.testing.assert_allclose(got[0], np.maximum(x * x + x, 0) if taken else -(x * x), rtol=1e-6)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Neg", ["y"], "y")],
        [("Neg", ["b"], "y"), ("Abs", ["y"], "b")],
        [("Abs", ["x"], "z"), ("Neg", ["c"], "a"), ("Neg", ["a"], "b"), ("Add", ["b", "z"], "c"), ("Relu", ["c"], "y")],
    ],
)
def test_a_cycle_is_one_error_that_names_a_node_of_it(nodes):
    made = model_of([helper.make_node(op, reads, [name]) for op, reads, name in nodes], {"x": (2,)}, ["y"])
    with pytest.raises(GraphError, match=r"\w+ node '[yabc]': needs its own output: the graph has a cycle") as caught:
        load(made)
    assert "\n" not in str(caught.value)


def test_a_cycle_through_a_nested_graph():
    inner = helper.make_graph([helper.make_node("Neg", ["y"], ["r"])], "g", [], [onnx.ValueInfoProto(name="r")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    with pytest.raises(GraphError, match=r"If node 'y': needs its own output"):
        sort_nodes(of([node]))


def seconds_to_sort(count):
    graph = of([helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in reversed(range(count))])
    gc.disable()  # a collection looks at all that other tests left
    try:
        before = time.thread_time()
        sort_nodes(graph)
        took = time.thread_time() - before
    finally:
        gc.enable()
    assert [node.input[0] for node in graph.node[:3]] == ["v0", "v1", "v2"]
    return took


@pytest.mark.alone
def test_the_time_is_linear():
    """A chain of many nodes, the last first: no recursion, no search, which would take 64 times as long for 8 times as
    many.
    """
    pairs = [(seconds_to_sort(5000), seconds_to_sort(40_000)) for _ in range(3)]
    few, many = map(min, zip(*pairs, strict=True))
    assert many < 24 * few
