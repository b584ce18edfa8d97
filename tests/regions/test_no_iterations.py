"""Loops that never run: their stacked outputs are empty, of the shape and type that rows would have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value

Dims = list[int | str | None] | None


def loop_model(row: Dims, carried: Dims, x: Dims) -> onnx.ModelProto:
    """A loop whose scan outputs are a product and a counter."""
    body = graph_of(
        [
            helper.make_node("Add", ["c", "x"], ["c_out"]),
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("MatMul", ["c_out", "w"], ["row"]),
            helper.make_node("Cast", ["i"], ["count"], to=TensorProto.INT32),
        ],
        [value("i", I64, []), value("go", BOOL, []), value("c", F32, carried)],
        [value("go_out", BOOL, []), value("c_out", F32, carried), value("row", F32, row), value("count", 6, [])],
        name="body",
    )
    node = helper.make_node("Loop", ["times", "", "x"], ["l", "rows", "counts"], body=body)
    outputs = [value("l", F32, ["a", 3]), value("rows", F32, ["t", "r", 5]), value("counts", 6, ["t"])]
    graph = graph_of([node], [value("x", F32, x), value("times", I64, [])], outputs, {"w": numbers(3, 5)})
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("row", "carried"),
    [(["n", 5], ["n", 3]), ([None, 5], None), ([2, 5], None), (None, ["n", 3]), (None, [2, 3]), (None, None)],
)
def test_rows_of_a_loop(tmp_path: Path, row: Dims, carried: Dims) -> None:
    """Dimensions that nothing declares are those of a row; onnxruntime makes them 0, or leaves them out."""
    model = loop_model(row, carried, ["n", 3])
    with opened(tmp_path, model) as session:
        for times in (0, 2, 0):
            feed = {"x": numbers(2, 3), "times": np.array(times)}
            last, stack, counts = check_run(session, model, feed) if times else session.run(None, feed)
            assert (stack.shape, stack.dtype) == ((times, 2, 5), np.float32)
            assert (counts.shape, counts.dtype) == ((times,), np.int32)
            assert times or (last == feed["x"]).all()


def test_rows_of_a_loop_that_python_walks(tmp_path: Path) -> None:
    """Its carried value grows; where one iteration fails, open dimensions are 0."""
    body = graph_of(
        [
            helper.make_node("Concat", ["c", "x"], ["c_out"], axis=0),
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("Gather", ["x", "at"], ["row"]),
        ],
        [value("i", I64, []), value("go", BOOL, []), value("c", F32, ["m", 3])],
        [value("go_out", BOOL, []), value("c_out", F32, ["m", 3]), value("row", F32, ["k", 3])],
        name="body",
    )
    node = helper.make_node("Loop", ["times", "", "x"], ["l", "rows"], body=body)
    inputs = [value("x", F32, ["n", 3]), value("times", I64, []), value("at", I64, ["k"])]
    model = model_of(graph_of([node], inputs, [value("l", F32, ["a", 3]), value("rows", F32, ["t", "k", 3])]))
    with opened(tmp_path, model) as session:
        for place, times, shape in ((1, 0, (0, 2, 3)), (1, 2, (2, 2, 3)), (9, 0, (0, 0, 3))):
            feed = {"x": numbers(2, 3), "times": np.array(times), "at": np.array([place, 0])}
            assert session.run(None, feed)[1].shape == shape


def test_what_reads_the_stack(tmp_path: Path) -> None:
    """Empty stacks flow on: a sum of no rows is zero."""
    model = loop_model([2, 5], [2, 3], [2, 3])
    model.graph.node.append(helper.make_node("ReduceSum", ["rows", "axes"], ["sum"], keepdims=0))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    model.graph.output.append(value("sum", F32, [2, 5]))
    with opened(tmp_path, model) as session:
        for times in (0, 2):
            check_run(session, model, {"x": numbers(2, 3), "times": np.array(times)})


def scan_model(axis: int) -> onnx.ModelProto:
    body = graph_of(
        [helper.make_node("Add", ["s", "e"], ["s_out"]), helper.make_node("MatMul", ["s_out", "w"], ["row"])],
        [value("s", F32, [2, 3]), value("e", F32, [2, 3])],
        [value("s_out", F32, [2, 3]), value("row", F32, [2, 5])],
        name="body",
    )
    node = helper.make_node(
        "Scan", ["s0", "x"], ["s1", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[axis]
    )
    inputs = [value("s0", F32, [2, 3]), value("x", F32, [2, "t", 3])]
    graph = graph_of([node], inputs, [value("s1", F32, [2, 3]), value("y", F32, [None] * 3)], {"w": numbers(3, 5)})
    return model_of(graph)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_of_nothing(tmp_path: Path, axis: int) -> None:
    model = scan_model(axis)
    with opened(tmp_path, model) as session:
        for length in (0, 3):
            feed = {"s0": numbers(2, 3), "x": numbers(2, length, 3)}
            state, stack = session.run(None, feed)
            assert stack.shape == tuple(np.insert(np.array([2, 5]), axis if axis >= 0 else 2, length))
            if length:
                check_run(session, model, feed)
            else:
                np.testing.assert_array_equal(state, feed["s0"])


def test_a_loop_in_a_loop_that_never_runs(tmp_path: Path) -> None:
    """The outer body binds the inner one, whose rows nothing declares."""
    inner = graph_of(
        [helper.make_node("Identity", ["g"], ["g_out"]), helper.make_node("MatMul", ["c", "w"], ["r"])],
        [value("j", I64, []), value("g", BOOL, [])],
        [value("g_out", BOOL, []), value("r", F32)],
        name="inner",
    )
    outer = graph_of(
        [
            helper.make_node("Add", ["c", "c"], ["c_out"]),
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("Loop", ["times", ""], ["rows"], body=inner),
        ],
        [value("i", I64, []), value("go", BOOL, []), value("c", F32)],
        [value("go_out", BOOL, []), value("c_out", F32), value("rows", F32)],
        name="outer",
    )
    node = helper.make_node("Loop", ["turns", "", "x"], ["l", "stack"], body=outer)
    inputs = [value("x", F32, ["n", 3]), value("times", I64, []), value("turns", I64, [])]
    outputs = [value("l", F32, ["n", 3]), value("stack", F32, [None] * 4)]
    model = helper.make_model(
        graph_of([node], inputs, outputs, {"w": numbers(3, 5)}),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    with opened(tmp_path, model) as session:
        for times, turns in ((0, 2), (2, 2)):
            feed = {"x": numbers(2, 3), "times": np.array(times), "turns": np.array(turns)}
            assert session.run(None, feed)[1].shape == (turns, times, 2, 5)
        assert session.run(None, feed | {"turns": np.array(0)})[1].shape == (0, 2, 2, 5)
