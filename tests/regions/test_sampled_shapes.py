"""Shapes at which models with open shapes are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.artifact.model_section import weight_key
from flexnn.graph import load_model, passes
from flexnn.graph.ir import Array
from flexnn.regions import sampling


def test_a_size_that_is_fixed_does_not_make_all_walks_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with 64 columns takes no height but 64, though the file leaves it open."""
    nodes = [helper.make_node("MatMul", ["w", "x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "h", "w_"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weight = numpy_helper.from_array(np.ones((8, 64), np.float32), "w")
    graph = helper.make_graph(nodes, "g", ports, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    walked: list[tuple[int, ...]] = []
    run = sampling.Sampler.run

    def noted(self: sampling.Sampler, feeds: Mapping[str, Array]) -> None:
        walked.append(feeds["x"].shape)
        run(self, feeds)

    monkeypatch.setattr(sampling.Sampler, "run", noted)
    sampled = sampling.sample(load_model(str(tmp_path / "m.onnx")))
    assert sampled.shapes == [[(1, 64, 64)], [(1, 64, 128)]]
    assert len(walked) == 4, walked


def test_lengths_are_those_of_the_other_inputs(tmp_path: Path) -> None:
    """A row of as many ones as ``l`` says is multiplied by x, which has as many rows; a layer stands behind it."""
    nodes = [
        helper.make_node("Range", ["zero", "l", "one"], ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["f", "x"], ["m"]),
        helper.make_node("MatMul", ["m", "w"], ["y"]),
    ]
    check_native(tmp_path, nodes, {"zero": np.int64(0), "one": np.int64(1)}, {"l": np.array(77)}, 77)


def test_sizes_that_constants_name_are_tried(tmp_path: Path) -> None:
    """An exporter left a mask of its example's size in the model."""
    nodes = [
        helper.make_node("MatMul", ["mask", "x"], ["m"]),
        helper.make_node("MatMul", ["m", "w"], ["y"]),
        helper.make_node("Gather", ["x", "at"], ["z"], axis=1),
    ]
    constants = {"mask": np.ones(77, np.float32), "at": np.arange(77)}
    check_native(tmp_path, nodes, constants, {}, 77)


def check_native(
    folder: Path, nodes: list[onnx.NodeProto], constants: Mapping[str, Array], lengths: Mapping[str, Array], rows: int
) -> None:
    """Run a model at one shape; numpy computes nothing of it."""
    constants = dict(constants) | {"w": np.ones((8, 16), np.float32)}
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "t", 8])]
    ports += [helper.make_tensor_value_info(name, TensorProto.INT64, []) for name in lengths]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    with flexnn.Session(flexnn.compile(folder / "m.onnx"), threads=1, profile="analytic") as session:
        (y,) = session.run(None, {"x": np.ones((1, rows, 8), np.float32), **lengths})
        assert session.statistics()["hosted_operators"] == {}
        factor = rows * (rows - 1) // 2 if lengths else rows
        np.testing.assert_array_equal(y, np.full((1, 16), 8 * factor, np.float32))


def test_batches_are_tried_where_none_of_one_binds(tmp_path: Path) -> None:
    """A network that averages over four rows each, two inputs of as many rows: it takes no batch of one."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Concat", ["m", "z"], ["c"], axis=1),
        helper.make_node("Reshape", ["c", "fours"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["y"], axes=[1], keepdims=0),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"rows of {name}", 8]) for name in "xz"]
    constants = {"w": np.ones((8, 8), np.float32), "fours": np.array([-1, 4, 16])}
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ports, outputs, held), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "m.onnx")
    assert sampling.sample(load_model(str(tmp_path / "m.onnx"))).shapes == [[(4, 8), (4, 8)]]
    with flexnn.Session(flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn"), threads=1) as session:
        (result,) = session.run(None, {"x": np.ones((8, 8), np.float32), "z": np.ones((8, 8), np.float32)})
    np.testing.assert_array_equal(result, np.tile(np.repeat(np.float32([8, 1]), 8), (2, 1)))


def test_walks_only_find_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody runs the graphs of sampled shapes: no order and no places are looked for, and the weights are the same."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w_"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weight = numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")
    graph = helper.make_graph(nodes, "g", ports, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    found = [sampling.sample(load_model(str(tmp_path / "m.onnx")))]
    with monkeypatch.context() as patched:
        patched.setattr(passes, "PLACING_PASSES", ())
        found.append(sampling.sample(load_model(str(tmp_path / "m.onnx"))))
    bare, whole = ([graph for graph in sampled.graphs if graph.nodes] for sampled in found)
    assert bare
    assert all(node.params is None for graph in bare for node in graph.nodes)
    keys = [[weight_key(weight) for graph in graphs for weight in graph.weights] for graphs in (bare, whole)]
    assert keys[0] == keys[1]
