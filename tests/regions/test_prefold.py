"""Constants of constants of open models are made once: bindings and templates take them from the artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.graph import bind, load_model
from flexnn.graph.model import ModelGraph
from flexnn.graph.prefold import fold_constants
from flexnn.regions import Recorder
from flexnn.regions.scope import Scope, Value
from flexnn.regions.templates import Templates
from tests.support.regions import F32, Binds, check_run, compiled, graph_of, model_of, numbers, value

node = helper.make_node
ROWS, WIDTH = 768, 512
CONSTANTS = {
    "table": 0.01 * numbers(ROWS, 64), "weight": numbers(64, WIDTH, seed=1), "bias": 0.01 * numbers(WIDTH, seed=2),
    "first": np.array([0]), "ends": np.array([1, 1]), "two": np.array(2.0, np.float32), "axis": np.array([1]),
}  # fmt: skip


def positions() -> onnx.ModelProto:
    """A product of constants, tiled by the batch, whose rows meet those of an input."""
    nodes = [
        node("MatMul", ["table", "weight"], ["product"]),
        node("Add", ["product", "bias"], ["summed"]),
        node("Unsqueeze", ["summed", "first"], ["one"]),
        node("Shape", ["x"], ["shape"], end=1),
        node("Concat", ["shape", "ends"], ["repeats"], axis=0),
        node("Tile", ["one", "repeats"], ["tiled"]),
        node("Transpose", ["tiled"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["x", "turned"], ["y"]),
    ]
    return model_of(
        graph_of(nodes, [value("x", F32, ["n", "t", WIDTH])], [value("y", F32, ["n", "t", ROWS])], CONSTANTS)
    )


def test_first_runs_make_no_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = positions()
    path = compiled(tmp_path, model)
    folded: list[str] = []
    own = bind.fold

    def fold(made: Any, *given: Any) -> Any:
        folded.append(made.op_type)
        return own(made, *given)

    monkeypatch.setattr(bind, "fold", fold)
    binds = Binds(monkeypatch)
    for shape in ((1, 9, WIDTH), (3, 40, WIDTH), (2, 17, WIDTH), (1, 70, WIDTH)):
        with flexnn.Session(path) as session:
            check_run(session, model, {"x": numbers(*shape)})
    assert not binds.count
    assert not {"MatMul", "Add"}.intersection(folded)


def folded(model: onnx.ModelProto, folder: Path) -> ModelGraph:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    found = load_model(path)
    fold_constants(found)
    return found.graph


def test_what_is_between_is_dropped(tmp_path: Path) -> None:
    graph = folded(positions(), tmp_path)
    assert [n.op_type for n in graph.nodes][:3] == ["Unsqueeze", "Shape", "Concat"]
    assert "product" not in graph.constants
    wanted = CONSTANTS["table"] @ CONSTANTS["weight"] + CONSTANTS["bias"]
    np.testing.assert_allclose(graph.constants["summed"].source.load(), wanted, rtol=1e-5, atol=1e-5)


def test_outputs_halves_and_operands_of_bodies_stay_right(tmp_path: Path) -> None:
    inner = [
        node("Mul", ["two", "two"], ["four"]),
        node("Mul", ["six", "four"], ["big"]),
        node("Add", ["x", "big"], ["t"]),
    ]
    branch = graph_of(inner, [], [value("t", F32, ["n"])], name="then")
    other = graph_of([node("Sub", ["x", "six"], ["e"])], [], [value("e", F32, ["n"])], name="else")
    nodes = [
        node("Add", ["two", "two"], ["sum"]),
        node("Add", ["sum", "two"], ["six"]),
        node("Cast", ["two"], ["half"], to=onnx.TensorProto.FLOAT16),
        node("Add", ["half", "half"], ["halves"]),
        node("Cast", ["halves"], ["wide"], to=F32),
        node("ReduceSum", ["x"], ["all"], keepdims=0),
        node("Less", ["all", "two"], ["c"]),
        node("If", ["c"], ["i"], then_branch=branch, else_branch=other),
        node("Add", ["i", "wide"], ["y"]),
    ]
    outputs = [value("y", F32, ["n"]), value("sum", F32, [])]
    model = model_of(graph_of(nodes, [value("x", F32, ["n"])], outputs, CONSTANTS))
    graph = folded(model, tmp_path)
    assert [n.op_type for n in graph.nodes if n.output[0] in ("sum", "six", "half", "halves")] == [
        "Add",
        "Add",
        "Cast",
        "Add",
    ]
    with flexnn.Session(compiled(tmp_path, model)) as session:
        for shift in (-100, 100):
            check_run(session, model, {"x": numbers(5) + np.float32(shift)})


def test_a_node_that_is_wrong_is_left_to_binding(tmp_path: Path) -> None:
    nodes = [node("Gather", ["bias", "far"], ["g"]), node("Add", ["x", "g"], ["y"])]
    constants = CONSTANTS | {"far": np.array([WIDTH])}
    model = model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])], constants))
    assert len(folded(model, tmp_path).nodes) == 2
    with flexnn.Session(compiled(tmp_path, model)) as session, pytest.raises(flexnn.FlexNNError):
        session.run(None, {"x": numbers(1)})


def test_few_numbers_are_folded_when_many_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of all pairs are more than binding folds; a shape behind them is folded all the same."""
    monkeypatch.setattr(bind, "FOLDED_BYTES_ALL", 1 << 14)
    nodes = [node("Shape", ["x"], ["shape"]), node("Squeeze", ["shape", "first"], ["n"])]
    nodes += [node("Range", ["zero", "n", "step"], ["r"]), node("Unsqueeze", ["r", "axis"], ["column"])]
    for i in range(4):
        nodes += [node("Mul", ["r", f"by{i}"], [f"m{i}"]), node("Sub", [f"m{i}", "column"], [f"d{i}"])]
        nodes += [node("Cast", [f"d{i}"], [f"f{i}"], to=F32), node("Add", ["x", f"f{i}"], [f"a{i}"])]
    nodes += [node("Sum", [f"a{i}" for i in range(4)], ["sum"]), node("Concat", ["shape", "shape"], ["both"], axis=0)]
    nodes += [node("Abs", ["both"], ["wanted"]), node("Expand", ["sum", "wanted"], ["y"])]
    constants = CONSTANTS | {"zero": np.array(0), "step": np.array(1)} | {f"by{i}": np.array(i + 1) for i in range(4)}
    model = model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n", "n"])], constants))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    recorder = Recorder(load_model(path))
    recorder.templates = Templates(recorder.model.opset)
    recorder.record(recorder.region, Scope({"x": Value((60,), np.dtype(np.float32))}), recorder.region.all)
    assert not recorder.region.forced
    with flexnn.Session(compiled(tmp_path, model)) as session:
        for count in (60, 50, 1, 70):
            check_run(session, model, {"x": numbers(count)})


def sized() -> onnx.ModelProto:
    """A picture whose batch alone is open: its height makes a table, its batch another, which a branch decides, too."""
    body = [node("Shape", ["s"], ["inner"]), node("Gather", ["inner", "last"], ["own"]), node("Cast", ["own"], ["f"])]
    body[-1].attribute.append(helper.make_attribute("to", F32))
    then = graph_of([*body, node("Add", ["s", "f"], ["t"])], [], [value("t", F32, ["n", 3, 8, 6])], name="then")
    other = graph_of([node("Neg", ["s"], ["e"])], [], [value("e", F32, ["n", 3, 8, 6])], name="else")
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "place"], ["height"]),
        node("Gather", ["shape", "none"], ["batch"]),
        node("Range", ["none", "height", "one"], ["rows"]),
        node("Cast", ["rows"], ["real"], to=F32),
        node("Unsqueeze", ["real", "axis"], ["column"]),
        node("Mul", ["column", "two"], ["lines"]),
        node("Mul", ["height", "batch"], ["pixels"]),
        node("Cast", ["pixels"], ["many"], to=F32),
        node("Add", ["x", "lines"], ["moved"]),
        node("Mul", ["moved", "many"], ["s"]),
        node("Greater", ["batch", "one"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Slice", ["shape", "begin", "end"], ["size"]),
    ]
    constants = CONSTANTS | {
        "place": np.array(2), "none": np.array(0), "one": np.array(1), "last": np.array(3), "begin": np.array([1]),
        "end": np.array([4]),
    }  # fmt: skip
    outputs = [value("y", F32, ["n", 3, 8, 6]), value("size", onnx.TensorProto.INT64, [3])]
    return model_of(graph_of(nodes, [value("x", F32, ["n", 3, 8, 6])], outputs, constants))


def test_stated_sizes_are_constants_and_open_ones_are_not(tmp_path: Path) -> None:
    graph = folded(sized(), tmp_path)
    left = [n.output[0] for n in graph.nodes]
    assert not {"height", "rows", "real", "column", "lines"}.intersection(left)
    assert {"batch", "pixels", "many", "c", "size"} <= set(left)  # an output stays a node's
    np.testing.assert_array_equal(graph.constants["lines"].source.load().reshape(-1), 2 * np.arange(8))
    with flexnn.Session(compiled(tmp_path, sized())) as session:
        for batch in (1, 2, 5):
            check_run(session, sized(), {"x": numbers(batch, 3, 8, 6)})
        with pytest.raises(ValueError, match="the model takes"):
            session.run(None, {"x": numbers(1, 3, 9, 6)})


def test_a_branch_may_give_an_inputs_name_to_something_else(tmp_path: Path) -> None:
    """Its shape is not the input's."""
    inner = [node("Transpose", ["two_d"], ["x"]), node("Shape", ["x"], ["t"])]
    branch = graph_of(inner, [], [value("t", onnx.TensorProto.INT64, [2])], name="then")
    plain = graph_of([node("Shape", ["two_d"], ["e"])], [], [value("e", onnx.TensorProto.INT64, [2])], name="else")
    nodes = [
        node("Relu", ["x"], ["two_d"]),
        node("ReduceSum", ["x"], ["all"], keepdims=0),
        node("Less", ["all", "two"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=plain),
    ]
    outputs = [value("y", onnx.TensorProto.INT64, [2])]
    graph = graph_of(nodes, [value("x", F32, ["n", 4])], outputs, CONSTANTS)
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    model = load_model(path)
    fold_constants(model)
    then = next(inner for inner in model.graph.walk() if inner.outputs[0].name == "t")
    assert [n.op_type for n in then.nodes] == ["Transpose", "Shape"]
