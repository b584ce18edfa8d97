"""Layers whose weights decide the size of an open dimension."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.regions import BOOL, check_run, graph_of, model_of, numbers, opened, value

node = onnx.helper.make_node
FRAMES = value("x", dims=["frames", "features"])


def made(
    nodes: list[onnx.NodeProto], x: onnx.ValueInfoProto, constants: dict[str, Any], rank: int = 2
) -> onnx.ModelProto:
    return model_of(graph_of(nodes, [x], [value("y", dims=[None] * rank)], constants))


def recurrent() -> onnx.ModelProto:
    """An LSTM over the frames of one sound."""
    nodes = [node("Unsqueeze", ["x", "one"], ["b"]), node("LSTM", ["b", "w", "r"], ["y"], hidden_size=5)]
    return made(nodes, FRAMES, {"w": numbers(1, 20, 37), "r": numbers(1, 20, 5), "one": np.array([1])}, rank=4)


def filtered() -> onnx.ModelProto:
    """A bank of filters before frames, as columns: the features are rows of the second operand."""
    return made([node("MatMul", ["w", "x"], ["y"])], value("x", dims=["features", "frames"]), {"w": numbers(40, 37)})


def turned(transposed: int) -> onnx.ModelProto:
    weights = numbers(6, 37) if transposed else numbers(37, 6)
    return made([node("Gemm", ["x", "w"], ["y"], transB=transposed)], FRAMES, {"w": weights})


def grouped() -> onnx.ModelProto:
    x = value("x", dims=["frames", "features", 9])
    return made([node("Conv", ["x", "w"], ["y"], group=2)], x, {"w": numbers(6, 19, 3)}, rank=3)


def normed() -> onnx.ModelProto:
    """Features less their mean, before all else."""
    nodes = [node("Sub", ["x", "mean"], ["m"]), node("Elu", ["m"], ["e"]), node("MatMul", ["e", "w"], ["y"])]
    return made(nodes, FRAMES, {"mean": numbers(37), "w": numbers(37, 4)})


def flattened() -> onnx.ModelProto:
    """Windows over frames and features, and a product over all features that they leave of a frame: 4 x 24 of 50."""
    nodes = [
        node("Unsqueeze", ["x", "first"], ["i"]),
        node("Conv", ["i", "k"], ["c"]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[1, 2], strides=[1, 2]),
        node("Squeeze", ["p", "zero"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[1, 2, 0]),
        node("Reshape", ["t", "rows"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    constants = {"k": numbers(4, 1, 3, 3), "w": numbers(96, 5), "rows": np.array([-1, 96])}
    return made(nodes, FRAMES, constants | {"first": np.array([0, 1]), "zero": np.array([0])})


CASES = {
    "recurrent": (recurrent(), (None, 37)),
    "filtered": (filtered(), (37, None)),
    "Gemm": (turned(0), (None, 37)),
    "Gemm, transposed": (turned(1), (None, 37)),
    "grouped": (grouped(), (None, 38, 9)),
    "normed": (normed(), (None, 37)),
    "flattened": (flattened(), (None, 50)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_decides_its_features(name: str, tmp_path: Path) -> None:
    """numpy computes nothing of the model at any number of frames, and the model's inputs are told as they were."""
    model, dims = CASES[name]
    declared = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    with opened(tmp_path, model) as session:
        assert session.get_inputs()[0].shape == declared
        for frames in (3, 40, 11):
            check_run(session, model, {"x": numbers(*(frames if d is None else d for d in dims))})
        assert session.statistics()["hosted_operators"] == {}


def test_layers_in_branches_decide_nothing(tmp_path: Path) -> None:
    """Each branch takes another number of features."""
    one = graph_of([node("MatMul", ["x", "w"], ["a"])], [], [value("a", dims=[None, 4])])
    two = graph_of([node("MatMul", ["x", "v"], ["b"])], [], [value("b", dims=[None, 4])])
    nodes = [node("If", ["is_wide"], ["y"], then_branch=one, else_branch=two)]
    inputs = [FRAMES, value("is_wide", BOOL, [])]
    model = model_of(graph_of(nodes, inputs, [value("y", dims=[None, 4])], {"w": numbers(48, 4), "v": numbers(24, 4)}))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(7, 48), "is_wide": np.array(True)})
        check_run(session, model, {"x": numbers(7, 24), "is_wide": np.array(False)})


def test_a_size_that_another_dimension_decides_is_left(tmp_path: Path) -> None:
    """The product needs as many numbers as both dimensions hold together: each of many pairs of sizes would do."""
    nodes = [
        node("Reshape", ["x", "flat"], ["f"]),
        node("Concat", ["f", "f"], ["d"], axis=1),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    model = made(nodes, FRAMES, {"flat": np.array([1, -1]), "w": numbers(240, 3)})
    with opened(tmp_path, model) as session:
        for shape in ((10, 12), (2, 60), (1, 120)):
            check_run(session, model, {"x": numbers(*shape)})
