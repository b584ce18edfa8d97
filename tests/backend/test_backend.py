"""The standard ONNX backend interface."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.backend import Backend


def relu_model():
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


X = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)


@pytest.mark.parametrize("inputs", [X, [X], {"x": X}, [X.tolist()]])
def test_inputs_as_array_list_or_mapping(inputs):
    if isinstance(inputs, list) and not isinstance(inputs[0], np.ndarray):
        with pytest.raises(ValueError, match="float64"):
            Backend.run_model(relu_model(), inputs)
        return
    (y,) = Backend.run_model(relu_model(), inputs)
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_prepared_model_runs_again_within_a_budget():
    prepared = Backend.prepare(relu_model(), memory="8MiB", threads=1)
    for scale in (1, 2):
        np.testing.assert_array_equal(prepared.run([X * scale])[0], np.maximum(X * scale, 0))
    with pytest.raises(flexnn.BudgetError):
        Backend.prepare(relu_model(), memory=1)


def test_one_node():
    node = helper.make_node("Add", ["a", "b"], ["y"])
    (y,) = Backend.run_node(node, [X, X])
    np.testing.assert_array_equal(y, X + X)


def test_what_is_not_supported_says_so():
    assert Backend.supports_device("CPU")
    assert not Backend.supports_device("CUDA:1")
    with pytest.raises(ValueError, match="CUDA"):
        Backend.prepare(relu_model(), "CUDA")
    model = relu_model()
    assert Backend.is_compatible(model)
    model.graph.node[0].op_type = "NoSuchOperator"
    assert not Backend.is_compatible(model)
    with pytest.raises(ValueError, match="2 inputs"):
        Backend.run_model(relu_model(), [X, X])
