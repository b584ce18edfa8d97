"""Values that loops carry and never change are read from the graph around the loop."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.graph import load_model
from flexnn.graph.model import Model, ModelNode
from flexnn.graph.unchanged import read_from_outside
from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node
W = 24
WEIGHTS = {"w": numbers(W, W, seed=3) / 8, "yes": np.array(True)}


def body(*, through: int = 1, more: list[str] | None = None) -> onnx.GraphProto:
    """h = tanh(h w), with w carried through Identity nodes, and outputs ``more``."""
    names = ["w_in", *(f"w_{i}" for i in range(through))]
    nodes = [node("MatMul", ["h", "w_in"], ["m"]), node("Tanh", ["m"], ["h_"]), node("Identity", ["on"], ["go"])]
    nodes += [node("Identity", [a], [b]) for a, b in itertools.pairwise(names)]
    inputs = [value("i", I64, []), value("on", BOOL, []), value("h", F32, ["n", W]), value("w_in", F32, [W, W])]
    outputs = [value("go", BOOL, []), value("h_", F32, ["n", W]), value(names[-1], F32, [W, W])]
    return graph_of(nodes, inputs, outputs + [value(name, F32, [W, W]) for name in more or ()], name="body")


def looped(inner: onnx.GraphProto, made: list[str], extra: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    nodes = [node("Loop", ["turns", "", "x", "w"], made, "loop", body=inner), *(extra or [])]
    outputs = [value("last", F32, ["n", W])]
    if "w_last" in made:
        outputs.append(value("w_last", F32, [W, W]))
    return model_of(graph_of(nodes, [value("x", F32, ["n", W]), value("turns", I64, [])], outputs, WEIGHTS))


def found(folder: Path, model: onnx.ModelProto) -> tuple[Model, ModelNode]:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    loaded = load_model(str(path))
    read_from_outside(loaded)
    return loaded, next(n for n in loaded.graph.nodes if n.op_type in ("Loop", "Scan"))


def check(folder: Path, model: onnx.ModelProto) -> None:
    with opened(folder, model) as session:
        for turns in (0, 1, 4):
            check_run(session, model, {"x": numbers(3, W), "turns": np.array(turns)})


@pytest.mark.parametrize("through", [0, 1, 2])
@pytest.mark.parametrize("made", [["last", "unread"], ["last", "w_last"]])
def test_a_carried_weight_is_a_constant_again(tmp_path: Path, through: int, made: list[str]) -> None:
    model = looped(body(through=through), made)
    _, loop = found(tmp_path, model)
    assert loop.input == ["turns", "", "x"]
    assert loop.output == ["last"]
    inner = loop.graphs[0]
    assert [port.name for port in inner.inputs] == ["i", "on", "h"]
    assert "w" in inner.captures()
    assert all(n.op_type != "Identity" or n.output == ["go"] for n in inner.nodes)
    check(tmp_path, model)


def test_a_budget_need_not_hold_it_twice(tmp_path: Path) -> None:
    """Carried, it was copied from turn to turn, and nothing of it could be streamed."""
    weights = {"w": numbers(512, 512, seed=3) / 32, "yes": np.array(True)}
    inputs = [value("i", I64, []), value("on", BOOL, []), value("h", F32, ["n", 512]), value("w_in", F32, [512, 512])]
    nodes = [node("MatMul", ["h", "w_in"], ["m"]), node("Tanh", ["m"], ["h_"]), node("Identity", ["on"], ["go"])]
    nodes.append(node("Identity", ["w_in"], ["w_"]))
    outputs = [value("go", BOOL, []), value("h_", F32, ["n", 512]), value("w_", F32, [512, 512])]
    inner = graph_of(nodes, inputs, outputs, name="body")
    loop = node("Loop", ["turns", "", "x", "w"], ["last", "unread"], body=inner)
    graph = graph_of([loop], [value("x", F32, ["n", 512]), value("turns", I64, [])], [value("last", F32, ["n", 512])])
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    path = tmp_path / "wide.onnx"
    path.write_bytes(model_of(graph).SerializeToString())
    with flexnn.Session(path, threads=1) as session:
        (wanted,) = session.run(None, {"x": numbers(1, 512), "turns": np.array(3)})
        whole = session.session_bytes
    with flexnn.Session(path, memory=whole - (512 << 10), threads=1) as session:  # less than half of the weight
        (y,) = session.run(None, {"x": numbers(1, 512), "turns": np.array(3)})
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_an_inner_loop_leaves_its_outer_ones_value_unchanged(tmp_path: Path) -> None:
    inner = node("Loop", ["two", "", "h0", "w0"], ["h1", "w1"], "inner", body=body())
    inputs = [value("j", I64, []), value("on0", BOOL, []), value("h0", F32, ["n", W]), value("w0", F32, [W, W])]
    outputs = [value("go0", BOOL, []), value("h1", F32, ["n", W]), value("w1", F32, [W, W])]
    outer = graph_of([inner, node("Identity", ["on0"], ["go0"])], inputs, outputs, {"two": np.array(2)}, name="outer")
    model = looped(outer, ["last", "w_last"])
    _, loop = found(tmp_path, model)
    assert loop.output == ["last"]
    assert all(n.input == ["two", "", "h0"] for n in loop.graphs[0].nodes if n.op_type == "Loop")
    check(tmp_path, model)


def test_a_branch_inside_reads_it_from_outside_too(tmp_path: Path) -> None:
    inner = body()
    inner.node[0].CopyFrom(node("If", ["on"], ["m"]))
    for name in ("then_branch", "else_branch"):
        made = [node("MatMul", ["h", "w_in"], [f"{name}_m"])]
        branch = graph_of(made, [], [value(f"{name}_m", F32, ["n", W])], name=name)
        inner.node[0].attribute.append(helper.make_attribute(name, branch))
    model = looped(inner, ["last", "unread"])
    _, loop = found(tmp_path, model)
    assert loop.output == ["last"]
    check(tmp_path, model)


def test_what_changes_or_is_read_elsewhere_stays_carried(tmp_path: Path) -> None:
    """Changed in a turn; stacked as it is; hidden by a value of the body's that has the outer one's name."""
    changed = body()
    next(n for n in changed.node if n.output == ["w_0"]).op_type = "Neg"
    stacked = body(through=0, more=["w_in"])
    for inner, made in ((changed, ["last", "w_last"]), (stacked, ["last", "w_last", "rows"])):
        _, loop = found(tmp_path, looped(inner, made))
        assert loop.input == ["turns", "", "x", "w"]
        assert len(loop.output) == len(made)
    graph = load_model(str(tmp_path / "model.onnx"))  # names that hide others are refused when a model is read
    inner_graph = next(n for n in graph.graph.nodes if n.op_type == "Loop").graphs[0]
    inner_graph.outputs.pop()
    next(n for n in graph.graph.nodes if n.op_type == "Loop").output.pop()
    inner_graph.nodes.append(ModelNode("Neg", "", ["h"], ["w"]))
    read_from_outside(graph)
    assert next(n for n in graph.graph.nodes if n.op_type == "Loop").input == ["turns", "", "x", "w"]
    check(tmp_path, looped(changed, ["last", "w_last"]))


def test_a_scan_carries_it_no_more(tmp_path: Path) -> None:
    inputs = [value("h", F32, [1, W]), value("w_in", F32, [W, W]), value("row", F32, [1, W])]
    nodes = [
        node("MatMul", ["h", "w_in"], ["m"]),
        node("Add", ["m", "row"], ["h_"]),
        node("Identity", ["w_in"], ["w_"]),
    ]
    nodes.append(node("Identity", ["h_"], ["seen"]))
    outputs = [value("h_", F32, [1, W]), value("w_", F32, [W, W]), value("seen", F32, [1, W])]
    inner = graph_of(nodes, inputs, outputs, name="body")
    scan = node("Scan", ["x", "w", "rows"], ["last", "w_last", "all"], body=inner, num_scan_inputs=1)
    given = [value("x", F32, [1, W]), value("rows", F32, ["n", 1, W])]
    made = [value("last", F32, [1, W]), value("w_last", F32, [W, W]), value("all", F32, ["n", 1, W])]
    model = model_of(graph_of([scan], given, made, {"w": WEIGHTS["w"]}))
    _, found_scan = found(tmp_path, model)
    assert found_scan.input == ["x", "rows"]
    assert found_scan.output == ["last", "all"]
    with opened(tmp_path, model) as session:
        for rows in (1, 5):
            check_run(session, model, {"x": numbers(1, W), "rows": numbers(rows, 1, W)})
