"""Recurrent layers whose weights are 8-bit integers or halves: they stay as narrow, and DynamicQuantizeLSTM rounds what
meets them as onnxruntime does.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from tests.support.compare import check_model, load, model_of, ops_of, weights

STEPS, WIDTH = 6, 12


def quantised(batch, hidden, direction, lengths=None, **attrs):
    """A model of one DynamicQuantizeLSTM, with initial states where ``lengths`` are given."""
    rng = np.random.default_rng(batch * hidden)
    count = 2 if direction == "bidirectional" else 1
    constants = {
        "w": rng.integers(-127, 128, (count, WIDTH, 4 * hidden)).astype(np.int8),
        "r": rng.integers(-127, 128, (count, hidden, 4 * hidden)).astype(np.int8),
        "b": weights(count, 8 * hidden),
        "scale": np.linspace(0.004, 0.006, count).astype(np.float32),
        "zero": np.zeros(count, np.int8),
    }
    names = ["x", "w", "r", "b", "", "", "", "", "scale", "zero", "scale", "zero"]
    if lengths is not None:
        constants |= {"lengths": np.array(lengths, np.int32), "h": weights(count, batch, hidden)}
        names[4:6] = ["lengths", "h"]
    attrs |= {"hidden_size": hidden, "direction": direction}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "yh", "yc"], domain="com.microsoft", **attrs)
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, batch, WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output],
        [numpy_helper.from_array(v, name) for name, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compare(model, path, batch):
    """onnxruntime with one thread: with more it rounds the rows of each by their own range."""
    path.write_bytes(model.SerializeToString())
    x = np.random.default_rng(0).normal(size=(STEPS, batch, WIDTH)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    wanted = onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})
    for threads in (1, 2):
        with flexnn.Session(path, threads=threads) as session:
            for mine, theirs in zip(session.run(None, {"x": x}), wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 16), (3, 20), (9, 33)])
def test_hidden_values_are_rounded_as_onnxruntime_does(tmp_path, direction, batch, hidden):
    compare(quantised(batch, hidden, direction), tmp_path / "m.onnx", batch)


def test_initial_states_are_rounded(tmp_path):
    compare(quantised(3, 16, "bidirectional", [STEPS] * 3), tmp_path / "m.onnx", 3)


def test_clipped_gates(tmp_path):
    compare(quantised(3, 16, "forward", clip=0.5), tmp_path / "m.onnx", 3)


def test_what_the_core_does_not_compute_is_rounded_in_numpy(tmp_path):
    functions = {"activations": ["Affine", "Tanh", "Tanh"], "activation_alpha": [0.5], "activation_beta": [0.1]}
    compare(quantised(3, 16, "forward", **functions), tmp_path / "m.onnx", 3)


def forms(graph):
    """Types of the recurrent weights."""
    return [graph.tensors[node.inputs[1]].dtype for node in graph.nodes if node.op == "recurrent"]


def test_integers_stay_integers():
    assert forms(load(quantised(1, 20, "bidirectional"))) == ["i8"]


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", ["halves", "integers", "unsigned"])
def test_restored_weights_stay_narrow(op, after, kind):
    gates, hidden, batch = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 37, 10
    shape = (1, gates * hidden, hidden)
    constants = {"w": weights(1, gates * hidden, WIDTH), "b": weights(1, 2 * gates * hidden, seed=3)}
    if kind == "halves":
        constants["narrow"] = (weights(*shape, seed=2) * 0.5).astype(np.float16)
        first = helper.make_node("Cast", ["narrow"], ["r"], to=TensorProto.FLOAT)
    else:
        dtype, middle = (np.int8, 0) if kind == "integers" else (np.uint8, 128)
        constants["narrow"] = (np.random.default_rng(1).integers(-128, 128, shape) + middle).astype(dtype)
        constants["scale"] = np.linspace(0.001, 0.003, gates * hidden).astype(np.float32)
        constants["zero"] = np.full(gates * hidden, middle, dtype)
        first = helper.make_node("DequantizeLinear", ["narrow", "scale", "zero"], ["r"], axis=1)
    attrs = {"linear_before_reset": after} if op == "GRU" else {}
    second = helper.make_node(op, ["x", "w", "r", "b"], ["y", "yh"], hidden_size=hidden, **attrs)
    model = model_of([first, second], {"x": (STEPS, batch, WIDTH)}, ["y", "yh"], constants)
    graph = check_model(model, tolerance=1e-4)
    assert ops_of(graph).count("recurrent") == 1
    assert forms(graph) == ["f16" if kind == "halves" else "i8"]
