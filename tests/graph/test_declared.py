"""Outputs of models before they run: names, types and dimensions, as declared and as onnx infers them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.graph import bind_shapes, declared, load_model
from flexnn.graph.declared import declared_port
from tests.support.compare import expected
from tests.support.regions import BOOL, F32, I64, graph_of, opened, value


def outputs_of(tmp_path, graph, opset=17):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return load_model(str(path)).graph.outputs


X = value("x", F32, ["batch", 3, "tokens"])


@pytest.mark.parametrize(
    ("declared", "dims"),
    [
        (None, ("batch", "tokens", 3)),
        (["batch", "tokens", 3], ("batch", "tokens", 3)),
        (["n", None, None], ("n", "tokens", 3)),
        ([1, "tokens", 3], (1, "tokens", 3)),
        (["batch", "tokens", 4], ("batch", "tokens", None)),
        ([], ("batch", "tokens", 3)),
        (["batch", "tokens"], ("batch", "tokens", 3)),
    ],
)
def test_declared_and_inferred_dimensions(tmp_path, declared, dims):
    """A size that inference contradicts is not known; a name that onnx made up is none."""
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])
    (port,) = outputs_of(tmp_path, graph_of([node], [X], [value("y", F32, declared)]))
    assert port == ("y", "f32", dims)


def test_made_up_names(tmp_path):
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Reshape", ["x", "s"], ["r"])]
    ports = [X, value("s", I64, [2])]
    found = outputs_of(tmp_path, graph_of(nodes, ports, [value("n", I64), value("r", F32)]))
    assert [port.dims for port in found] == [(3, None), (None, None)]
    assert [port.dtype for port in found] == ["i64", "f32"]


def test_what_cannot_be_inferred(tmp_path):
    """Operators that onnx does not know: what the model declares is what there is."""
    node = helper.make_node("BiasGelu", ["x", "b"], ["y"], domain="com.microsoft")
    graph = graph_of([node], [X, value("b", F32, ["tokens"])], [value("y", F32, ["batch", 3, None])])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (port,) = load_model(str(tmp_path / "m.onnx")).graph.outputs
    assert port.dims == ("batch", 3, None)


def test_sessions_describe_them(tmp_path):
    """In the artifact, and with shapes given where it opens."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1]),
        helper.make_node("Greater", ["x", "x"], ["z"]),
    ]
    graph = graph_of(nodes, [X], [value("y", F32, None), value("z", BOOL, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with opened(tmp_path, model) as session:
        assert session.get_outputs() == [
            flexnn.session.NodeArg("y", ["batch", "tokens", 3], "tensor(float)"),
            flexnn.session.NodeArg("z", ["batch", 3, "tokens"], "tensor(bool)"),
        ]
    with opened(tmp_path, model, shapes={"x": (2, 3, 7)}) as session:
        assert [port.shape for port in session.get_outputs()] == [[2, 7, 3], [2, 3, 7]]
        got = session.run(None, {"x": np.ones((2, 3, 7), np.float32)})
        assert [list(array.shape) for array in got] == [[2, 7, 3], [2, 3, 7]]


def test_shapes_given_to_a_model(tmp_path):
    node = helper.make_node("Concat", ["x", "z"], ["y"], axis=2)
    ports = [value("x", F32, ["n", 3, "a"]), value("z", F32, ["n", 3, "b"])]
    model = helper.make_model(graph_of([node], ports, [value("y", F32, ["n", 3, "c"])]), ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    loaded = load_model(str(tmp_path / "m.onnx"))
    bind_shapes(loaded, {"x": (4, 3, 5)})
    assert loaded.graph.outputs[0].dims == (4, 3, "c")


def test_types_that_are_not_computed():
    """A sequence declares no tensor; nothing is refused before it has to be."""
    info = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    assert declared_port(info) == ("y", None, None)


def test_equal_to_what_runs(tmp_path):
    """Loops: shapes that onnx infers inside are those of the rows."""
    body = graph_of(
        [
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("Transpose", ["x"], ["row"], perm=[0, 2, 1]),
        ],
        [value("i", I64, []), value("go", BOOL, [])],
        [value("go_out", BOOL, []), value("row", F32, None)],
        name="body",
    )
    node = helper.make_node("Loop", ["times", ""], ["y"], body=body)
    graph = graph_of([node], [X, value("times", I64, [])], [value("y", F32, None)])
    (port,) = outputs_of(tmp_path, graph)
    assert port.dims == (None, "batch", "tokens", 3)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = expected(model, {"x": np.ones((2, 3, 4), np.float32), "times": np.array(5)})
    assert got["y"].shape == (5, 2, 4, 3)


def test_many_nodes_are_inferred_in_parts(tmp_path, monkeypatch):
    """In parts of one node, too: constants of earlier nodes count, names that onnx makes up in one are not another's,
    and graphs inside see values around them.
    """
    inner = graph_of([helper.make_node("Add", ["sum", "r"], ["more"])], [], [value("more", F32)])
    shape = numpy_helper.from_array(np.array([0, -1]), "")
    nodes = [
        helper.make_node("Constant", [], ["two"], value=shape),
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("NonZero", ["x2"], ["n2"]),
        helper.make_node("Reshape", ["x", "two"], ["r"]),
        helper.make_node("Neg", ["r"], ["sum"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Concat", ["n", "n2"], ["both"], axis=0),
    ]
    inputs = [value("x", F32, [4, 3, 6]), value("x2", F32, ["batch", 3]), value("c", BOOL, [])]
    graph = graph_of(nodes, inputs, [value("y", F32), value("both", I64), value("r", F32)])
    whole = outputs_of(tmp_path, graph)
    assert [port.dims for port in whole] == [(4, 18), (5, None), (4, 18)]
    monkeypatch.setattr(declared, "NODES_AT_ONCE", 1)
    assert outputs_of(tmp_path, graph) == whole
