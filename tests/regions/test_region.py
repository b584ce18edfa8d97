"""Time and memory that regions take: they grow with the graph, however many values its nodes and bodies see, and
however many parts a run of them has.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper

from flexnn.graph.ir import GraphError
from flexnn.graph.model import Constant, ModelGraph, ModelNode
from flexnn.graph.ports import Port
from flexnn.graph.sources import ArraySource
from flexnn.regions.region import Region, members
from flexnn.session import open_for_tests
from tests.support.regions import check_run, compiled, graph_of, model_of, value

CONSTANT = Constant("c", (1,), "f32", ArraySource(np.ones(1, np.float32)))
GROWTH = 2.2
"""Largest multiple of what half the nodes take."""
DOUBLINGS = 3


def chain(nodes: int, *, with_bodies: bool = False) -> ModelGraph:
    """Nodes that read the one before and a constant each, by themselves or in both branches of an If."""
    made = []
    for i in range(nodes):
        inner = ModelNode("Add", f"n{i}", [f"t{i}", f"c{i}"], [f"o{i}" if with_bodies else f"t{i + 1}"], {})
        if with_bodies:
            bodies: dict[str, Any] = {
                way: ModelGraph([inner], {}, [], [Port(f"o{i}", "f32", (1,))]) for way in ("then_branch", "else_branch")
            }
            inner = ModelNode("If", f"if{i}", ["condition"], [f"t{i + 1}"], bodies)
        made.append(inner)
    inputs = [Port("t0", "f32", (1,)), Port("condition", "bool", (1,))]
    return ModelGraph(made, {f"c{i}": CONSTANT for i in range(nodes)}, inputs, [Port(f"t{nodes}", "f32", (1,))])


def seconds(graph: ModelGraph) -> float:
    started = time.process_time()
    Region(graph)
    return time.process_time() - started


def test_time_grows_with_the_nodes() -> None:
    """Each node copied the names of all values before it: 8,000 nodes took 0.6 s of opening a model of open shapes."""
    few, many = chain(2000), chain(2000 << DOUBLINGS)
    multiple = min(seconds(many) / seconds(few) for _ in range(5))
    assert multiple < GROWTH**DOUBLINGS


def test_memory_grows_with_the_bodies() -> None:
    """Each body had a copy of all constants around it."""
    peaks = []
    for nodes in (250, 250 << DOUBLINGS):
        graph = chain(nodes, with_bodies=True)
        tracemalloc.start()
        region = Region(graph)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(region.children) == nodes
    assert peaks[1] < peaks[0] * GROWTH**DOUBLINGS


def decided(branches: int) -> onnx.ModelProto:
    """A row of branches: the sum of what one makes decides which way the next one goes."""
    nodes = []
    for i in range(branches):
        ways = {
            f"{way}_branch": graph_of([helper.make_node(kind, [f"t{i}", "c"], [way])], [], [value(way)], name=way)
            for way, kind in (("then", "Sub"), ("else", "Add"))
        }
        nodes += [
            helper.make_node("ReduceSum", [f"t{i}"], [f"sum{i}"], keepdims=0),
            helper.make_node("Greater", [f"sum{i}", "zero"], [f"is{i}"]),
            helper.make_node("If", [f"is{i}"], [f"t{i + 1}"], **ways),
        ]
    constants = {"c": np.arange(1, 9, dtype=np.float32)[None], "zero": np.array(0, np.float32)}
    ports = value("t0", dims=[1, 8]), value(f"t{branches}", dims=[1, 8])
    return model_of(graph_of(nodes, ports[:1], ports[1:], constants))


def test_work_grows_with_the_branches_that_data_decide(tmp_path: Path) -> None:
    """Each part of a run looked at all nodes behind it, at all templates before it, and at what all of them read: 400
    branches opened in 16 s, 200 in 2. Python's calls are counted, which are the same each time.
    """
    calls = []
    for branches in (40, 80):
        model, count = decided(branches), 0

        def counted(_: object, event: str, __: object) -> None:
            nonlocal count
            count += event == "call"

        artifact = compiled(tmp_path, model)
        sys.setprofile(counted)
        try:
            session = open_for_tests(artifact, threads=1, poison=True)
        finally:
            sys.setprofile(None)
        with session:
            check_run(session, model, {"t0": np.full((1, 8), 0.5, np.float32)})
        calls.append(count)
    assert calls[1] < calls[0] * GROWTH, calls


@pytest.mark.parametrize("seed", range(10))
def test_what_some_nodes_need(seed: int) -> None:
    """The values that are looked up for any set of nodes are those that they read, and the outputs."""
    region, rng = Region(chain(30, with_bodies=bool(seed % 2))), random.Random(seed)
    names = {name for reads in region.reads for name in reads} | {*region.makers, "none"}
    for remaining in (0, region.all, *(rng.getrandbits(30) for _ in range(20))):
        read = {name for i in members(remaining) for name in region.reads[i]} | {*region.outputs}
        needed = region.needed(remaining)
        assert {name for name in names if name in needed} == read
        assert (set(needed), names & needed, names - needed) == (read, names & read, names - read)


def test_bodies_see_what_is_around_them() -> None:
    inner = ModelNode("Add", "a", ["t0", "own"], ["o"], {})
    inner_c0 = Constant("c", (2,), "f32", CONSTANT.source)
    body = ModelGraph([inner], {"own": CONSTANT, "c0": inner_c0}, [], [Port("o", "f32", (1,))])
    graph = chain(2)
    graph.nodes.insert(1, ModelNode("If", "if", ["condition"], ["y"], {"then_branch": body}))
    region = Region(graph)
    (child,) = region.children[1].values()
    assert child.path == "if.then_branch"
    assert {name: name in child.constants for name in ("own", "c0", "c1", "t0")} == {
        "own": True, "c0": True, "c1": True, "t0": False,
    }  # fmt: skip
    assert child.constants["c0"] is inner_c0
    assert "own" not in region.constants


@pytest.mark.parametrize("name", ["own", "o", "t2", "none"])
def test_values_that_are_not_seen_are_refused(name: str) -> None:
    """Values that a body makes end with it, and those of later nodes are not yet there."""
    inner = ModelNode("Add", "a", ["t0", "own"], ["o"], {})
    body = ModelGraph([inner], {"own": CONSTANT}, [], [Port("o", "f32", (1,))])
    graph = chain(2)
    graph.nodes.insert(1, ModelNode("If", "if", ["condition"], ["y"], {"then_branch": body}))
    graph.nodes.insert(2, ModelNode("Relu", "relu", [name], ["z"], {}))
    with pytest.raises(GraphError, match=f"no earlier node computes input '{name}'"):
        Region(graph)
    if name == "t2":
        cast("ModelGraph", graph.nodes[1].attrs["then_branch"]).nodes[0].input[0] = "t2"
        del graph.nodes[2]
        with pytest.raises(GraphError, match="no earlier node computes input 't2'"):
            Region(graph)
