"""If, Loop and Scan: nesting, captures, carried values, and budgets over all their programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import flexnn
from flexnn import cli
from flexnn.regions import walk
from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value

WIDE = 96


def branch(name: str, kind: str, weights: str = "") -> object:
    nodes = [helper.make_node("MatMul", ["h", weights], [f"{name}.m"])] if weights else []
    last = f"{name}.m" if weights else "h"
    nodes.append(helper.make_node(kind, [last], [f"{name}.y"]))
    return graph_of(nodes, [], [value(f"{name}.y", F32, ["n", WIDE])], name=name)


def detector_model():
    """A light product decides by its sum which of three heavier ones runs: an If inside an If, weights outside both."""
    ways = branch("a", "Relu", "w1"), branch("b", "Tanh", "w2")
    inner = graph_of(
        [
            helper.make_node("ReduceMax", ["h"], ["top"], keepdims=0),
            helper.make_node("Greater", ["top", "limit"], ["high"]),
            helper.make_node("If", ["high"], ["inner.y"], then_branch=ways[0], else_branch=ways[1]),
        ],
        [],
        [value("inner.y", F32, ["n", WIDE])],
        {"limit": np.array(2.0, np.float32)},
        name="inner",
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["fires"]),
        helper.make_node("If", ["fires"], ["z"], then_branch=inner, else_branch=branch("c", "Neg")),
        helper.make_node("Add", ["z", "h"], ["y"]),
    ]
    constants = {"zero": np.array(0, np.float32), "w0": numbers(16, WIDE)}
    constants |= {"w1": numbers(WIDE, WIDE, seed=1), "w2": numbers(WIDE, WIDE, seed=2)}
    return model_of(graph_of(nodes, [value("x", F32, ["n", 16])], [value("y", F32, ["n", WIDE])], constants))


def test_branches_inside_branches(tmp_path: Path) -> None:
    model = detector_model()
    seen = set()
    with opened(tmp_path, model) as session:
        for seed in range(10):
            x = numbers(2 + seed % 2, 16, seed=seed) * (0.05 if seed > 3 else 1)
            check_run(session, model, {"x": x})
            h = x @ numbers(16, WIDE)
            seen.add((bool(h.sum() > 0), bool(h.max() > 2)))
    assert len(seen) >= 3


@pytest.mark.parametrize("extra", [0, 40 << 10])
def test_all_programs_share_one_budget(tmp_path: Path, extra: int) -> None:
    model = detector_model()
    feeds = [{"x": numbers(3, 16, seed=seed)} for seed in range(6)]
    with opened(tmp_path, model) as session:
        least = 0
        for feed in feeds:
            session.run(None, feed)
            least = max(least, session.session_bytes)
    with pytest.raises(flexnn.BudgetError) as error, opened(tmp_path, model, memory=1) as session:
        session.run(None, feeds[0])
    budget = error.value.minimum + extra
    while True:  # the first program's minimum need not be the largest
        try:
            with opened(tmp_path, model, memory=budget) as session:
                for feed in feeds * 2:
                    check_run(session, model, feed)
                    assert session.session_bytes <= budget
            break
        except flexnn.BudgetError as again:
            assert again.minimum > budget
            budget = again.minimum
    assert budget < least


def test_a_loop_carries_captures_and_stacks(tmp_path: Path) -> None:
    """h = tanh(h w) until its sum is below a limit or five rounds are over; each h is stacked."""
    body = graph_of(
        [
            helper.make_node("MatMul", ["h_in", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["h_out"]),
            helper.make_node("ReduceSum", ["h_out"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "limit"], ["go"]),
            helper.make_node("Mul", ["h_out", "scale"], ["row"]),
        ],
        [value("i", I64, []), value("going", BOOL, []), value("h_in", F32, ["n", 12])],
        [value("go", BOOL, []), value("h_out", F32, ["n", 12]), value("row", F32, ["n", 12])],
        {"limit": np.array(-4, np.float32)},
        name="body",
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["scale"]),
        helper.make_node("Loop", ["count", "", "x"], ["last", "rows"], body=body),
    ]
    inputs = [value("x", F32, ["n", 12]), value("count", I64, [])]
    outputs = [value("last", F32, ["n", 12]), value("rows", F32, ["k", "n", 12])]
    model = model_of(graph_of(nodes, inputs, outputs, {"w": numbers(12, 12) / 2}))
    with opened(tmp_path, model) as session:
        for seed, count in ((0, 5), (1, 5), (2, 1), (3, 3)):
            check_run(session, model, {"x": numbers(2, 12, seed=seed), "count": np.array(count)})


def test_a_loop_that_counts_into_a_slice(tmp_path: Path) -> None:
    """Each iteration takes another row by its counter: the body stays bound, whatever the counter is."""
    body = graph_of(
        [
            helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
            helper.make_node("Add", ["sum_in", "row"], ["sum_out"]),
            helper.make_node("Identity", ["going"], ["go"]),
        ],
        [value("i", I64, []), value("going", BOOL, []), value("sum_in", F32, [6])],
        [value("go", BOOL, []), value("sum_out", F32, [6])],
        name="body",
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Squeeze", ["shape"], ["count"]),
        helper.make_node("Loop", ["count", "", "start"], ["y"], body=body),
    ]
    graph = graph_of(nodes, [value("x", F32, ["n", 6])], [value("y", F32, [6])], {"start": np.zeros(6, np.float32)})
    model = model_of(graph)
    with opened(tmp_path, model) as session:
        for n in (20, 3, 20):
            check_run(session, model, {"x": numbers(n, 6)})


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_both_ways(tmp_path: Path, back: int) -> None:
    body = graph_of(
        [
            helper.make_node("Add", ["s_in", "v"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["s_out"]),
            helper.make_node("Identity", ["s_out"], ["o"]),
        ],
        [value("s_in", F32, [4]), value("v", F32, [4])],
        [value("s_out", F32, [4]), value("o", F32, [4])],
        name="body",
    )
    scan = helper.make_node(
        "Scan",
        ["s", "x"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[back],
        scan_output_axes=[1],
        scan_output_directions=[back],
    )
    inputs = [value("s", F32, [4]), value("x", F32, [4, "t"])]
    model = model_of(graph_of([scan], inputs, [value("last", F32, [4]), value("all", F32, [4, "t"])]))
    with opened(tmp_path, model) as session:
        for steps in (7, 2):
            check_run(session, model, {"s": numbers(4), "x": numbers(4, steps, seed=1)})


def test_plan_shows_the_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(detector_model().SerializeToString())
    artifact = flexnn.compile(path)
    assert cli.main(["plan", artifact, "--json", "--check", "--shape", "x=3,16"]) == 0
    plan = json.loads(capsys.readouterr().out)
    paths = {row["region"] for row in plan["regions"]}
    inner = {f"z.then_branch > inner.y.{way}_branch" for way in ("then", "else")}
    assert paths == {"", "z.then_branch", "z.else_branch"} | inner
    memory = plan["memory_by_strategy"]
    assert list(memory) == ["naive", "apart", "branches", "joint"]
    assert memory["joint"] < memory["branches"] < memory["apart"] <= memory["naive"]
    assert memory["joint"] == plan["arena_bytes"]
    assert memory["naive"] == sum(row["arena_bytes"] for row in plan["regions"])
    assert cli.main(["plan", artifact]) == 2
    assert "--shape x=" in capsys.readouterr().err
    assert cli.main(["run", artifact, "--repeat", "2", "--json", "--shape", "x=3,16"]) == 0
    assert json.loads(capsys.readouterr().out)["latency_ms"]["runs"] == 2


def test_layers_of_branches_run_on_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window longer than the first lengths that the compiler tries, and weights that the graph around computes."""
    branches = {}
    for name, weights in (("then", "w"), ("else", "short")):
        nodes = [helper.make_node("Conv", ["x", weights], [f"{name}.y"])]
        outputs = [value(f"{name}.y", F32, [1, 80, None])]
        branches[f"{name}_branch"] = graph_of(nodes, [], outputs, name=name)
    nodes = [
        helper.make_node("Transpose", ["turned"], ["w"], perm=[2, 1, 0]),
        helper.make_node("Reshape", ["x", "flat"], ["v"]),
        helper.make_node("ReduceMax", ["v"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "limit"], ["is"]),
        helper.make_node("If", ["is"], ["y"], **branches),
    ]
    constants = {"turned": numbers(200, 1, 80), "short": numbers(80, 1, 20), "limit": np.float32(4)}
    constants["flat"] = np.array([-1])
    model = model_of(graph_of(nodes, [value("x", F32, [1, 1, "t"])], [value("y", F32, [1, 80, None])], constants))
    hosted: list[str] = []
    with opened(tmp_path, model) as session:
        real = walk.evaluate_node
        monkeypatch.setattr(walk, "evaluate_node", lambda node, *rest: hosted.append(node.op_type) or real(node, *rest))
        for length, top in ((280, 5), (360, 3)):
            x = np.tanh(numbers(1, 1, length))
            x[0, 0, 7] = top
            check_run(session, model, {"x": x})
    assert "Conv" not in hosted


@pytest.mark.parametrize("is_known", [False, True])
def test_an_if_without_a_branch(tmp_path: Path, is_known: bool) -> None:
    """Whether data decide it, or numbers that the caller hands in."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("ReduceSum", ["count" if is_known else "x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["fires"], to=BOOL),
        helper.make_node("If", ["fires"], ["y"], then_branch=branch("a", "Neg"), else_branch=branch("b", "Abs")),
    ]
    inputs = [value("x", F32, ["n", WIDE]), value("count", I64, [1])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, ["n", WIDE])]))
    lacking = model.graph.node[-1].attribute
    del lacking[[attribute.name for attribute in lacking].index("else_branch")]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(flexnn.GraphError, match="If node 'y': attribute else_branch is missing"):
        flexnn.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["Loop", "Scan"])
def test_a_body_that_returns_too_little(tmp_path: Path, kind: str) -> None:
    taken = [value("i", I64, []), value("go", BOOL, [])] if kind == "Loop" else []
    taken += [value("s", F32, [4])] + ([value("row", F32, [4])] if kind == "Scan" else [])
    nodes = [helper.make_node("Tanh", ["s"], ["t"])]
    made = [value("t", F32, [4])]
    if kind == "Loop":
        nodes.append(helper.make_node("Identity", ["go"], ["on"]))
        made = [value("on", BOOL, []), *made]
    body = graph_of(nodes, taken, made, name="body")
    given = ["two", "", "first"] if kind == "Loop" else ["first", "x"]
    attrs = {} if kind == "Loop" else {"num_scan_inputs": 1}
    node = helper.make_node(kind, given, ["last", "stacked"], body=body, **attrs)
    outputs = [value("last", F32, [4]), value("stacked", F32, ["n", 4])]
    constants = {"two": np.array(2), "first": numbers(4)}
    model = model_of(graph_of([node], [value("x", F32, ["n", 4])], outputs, constants))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(flexnn.GraphError, match=f"{kind} node 'last': outputs of its body"):
        flexnn.compile(tmp_path / "m.onnx")
