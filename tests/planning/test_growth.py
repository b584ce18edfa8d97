"""Growth of opening and planning with the nodes of a graph, and how long Ctrl-C may wait for planning."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flexnn
from bench.planner.growth import KINDS, SETTING, measure, write
from flexnn import _core
from flexnn.artifact import open_artifact
from flexnn.planning import Planner
from flexnn.planning.ladder import Ladder
from flexnn.planning.layout import strategies
from flexnn.planning.layout.activations import DENSE
from tests.support.plans import checked

GROWTH = 2.2
"""Largest multiple of the time and memory of half the nodes."""
CALLS_GROWTH = 2.05
"""The same of Python's calls."""
FEWEST, MOST = 1000, 8000
LONG_MOST = 64_000
CALL_S = 0.05
SPARE = 1.3
"""Part of a measured multiple that noise may add: doublings are not judged one by one, but all together."""
HELD_NODES, HELD_PART = 8000, 0.05
"""Nodes of a graph, and the part of the CPU of opening, planning and binding it for which Ctrl-C may wait: of what the
same machine takes in the same run, so that a slow one or other work beside it changes nothing.
"""
LOOKS = 3
"""Measurements that the machine's noise may spoil, all but one."""


def beyond(kind: str, most: int) -> dict[str, float]:
    """Return the multiples of a kind of graph, from the fewest nodes to the most, that are too large."""
    fewest = measure(kind, FEWEST)
    limit = GROWTH ** ((most // FEWEST).bit_length() - 1) * SPARE
    multiples = {name: value / fewest[name] for name, value in measure(kind, most).items()}
    return {name: multiple for name, multiple in multiples.items() if multiple > limit}


@pytest.mark.parametrize("kind", KINDS)
def test_time_and_memory_grow_with_the_nodes(kind: str) -> None:
    most = LONG_MOST if os.environ.get("LONG") else MOST
    looks = []
    while len(looks) < LOOKS and (not looks or looks[-1]):
        looks.append(beyond(kind, most))
    assert not looks[-1], looks


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_compiling_grow_with_the_nodes(kind: str, tmp_path: Path) -> None:
    """Python's calls are the same each time, unlike seconds. The first graph is for what is imported with it."""
    taken = []
    for nodes in (FEWEST // 2, FEWEST, 2 * FEWEST):
        source = write(kind, nodes, tmp_path / f"{nodes}.onnx")
        calls = 0

        def counted(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(counted)
        try:
            flexnn.compile(source)
        finally:
            sys.setprofile(None)
        taken.append(calls)
    assert taken[2] < taken[1] * CALLS_GROWTH, taken


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {}
    for kind in KINDS:
        source = write(kind, 4000, tmp_path_factory.mktemp(kind) / "m.onnx")
        with open_artifact(str(flexnn.compile(source, source.with_suffix(".flexnn")))) as opened:
            found[kind] = opened.graph
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_large_graphs_have_plans(graphs: dict[str, Any], kind: str) -> None:
    graph = graphs[kind]
    minimum = Planner(graph, SETTING).minimum
    for memory in (None, minimum, minimum + (4 << 20)):
        checked(graph, memory, machine=SETTING.machine)


def test_no_rung_is_searched_that_saves_little(graphs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of 4,000 nodes had one rung more than those of 2,000 and 8,000: the same plan in 2.45 times the time."""
    searched = []
    drafted = Ladder._drafted
    monkeypatch.setattr(Ladder, "_drafted", lambda ladder, *rest: (searched.append(rest), drafted(ladder, *rest))[1])
    planner = Planner(graphs["chain"], SETTING)
    planner.plan(planner.minimum + sum(weight.nbytes for weight in graphs["chain"].weights) // 2)
    assert len(searched) == 1


def _timed(calls: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        started = time.thread_time()
        try:
            return function(*args, **options)
        finally:
            calls.append(time.thread_time() - started)

    return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of CPU of the C calls that plans make and that, unlike ``fill``, look for no signals themselves.
    Python looks for them between two calls.
    """
    found: list[float] = []
    for name in ("place_in_order", "place_by_time", "place_gaps", "place_search", "fluid_bound", "node_needs"):
        monkeypatch.setattr(_core, name, _timed(found, getattr(_core, name)))
    whole = _core.Drafts

    class Drafts:
        def __init__(self, **tables: Any) -> None:
            self._drafts = whole(**tables)

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._drafts, name)
            return method if name == "fill" else _timed(found, method)

    monkeypatch.setattr(_core, "Drafts", Drafts)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_call_holds_ctrl_c_up(graphs: dict[str, Any], kind: str, calls: list[float]) -> None:
    longest = []
    while len(longest) < LOOKS and (not longest or longest[-1] >= CALL_S):
        calls.clear()
        planner = Planner(graphs[kind], SETTING)
        for memory in (None, planner.minimum, planner.minimum + (4 << 20)):
            planner.plan(memory)
        assert len(calls) > 10
        longest.append(max(calls))
    assert longest[-1] < CALL_S, longest


def longest_hold(act: Callable[[], Any]) -> float:
    """Return the most CPU for which ``act`` lets no signal handler run, as a part of all that it takes."""
    started = last = time.thread_time()
    longest = 0.0

    def tick(*_: Any) -> None:
        nonlocal last, longest
        longest = max(longest, time.thread_time() - last)
        last = time.thread_time()

    before = signal.signal(signal.SIGALRM, tick)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        act()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return longest / (time.thread_time() - started)


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["chain", "skips"])
def test_ctrl_c_waits_for_no_part_of_large_graphs(kind: str, tmp_path: Path) -> None:
    artifact = flexnn.compile(write(kind, HELD_NODES, tmp_path / "m.onnx"), tmp_path / "m.flexnn")
    memory = flexnn.plan(artifact, profile="analytic").minimum_memory * 6 // 5
    acts = {
        "plan": lambda: flexnn.plan(artifact, memory=memory, profile="analytic"),
        "session": lambda: flexnn.Session(artifact, threads=1, profile="analytic").close(),
    }
    for name, act in acts.items():
        holds = []
        while len(holds) < LOOKS and (not holds or holds[-1] > HELD_PART):
            holds.append(longest_hold(act))
        assert holds[-1] <= HELD_PART, (name, holds)


def test_long_products_compile(tmp_path: Path) -> None:
    """No pass walks along a chain of products node by node, or in a recursion."""
    from onnx import TensorProto, helper, save

    nodes = [helper.make_node("Mul", [f"t{i}" if i else "x"] * 2, [f"t{i + 1}"]) for i in range(2000)]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "t2000")]
    graph = helper.make_graph(nodes, "products", ports[:1], ports[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")


def test_skips_are_dense(graphs: dict[str, Any]) -> None:
    """The graph of long skips is one whose blocks the orders do not place."""
    planner = Planner(graphs["skips"], SETTING)
    costs = planner.tightest.costs
    blocks = strategies.Blocks.of(costs.root_bytes, costs.first_node, costs.last_node)
    assert blocks.pairs > DENSE
