"""LSTM, GRU and RNN through the core, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.graph.ir import GraphError
from flexnn.session import open_for_tests
from tests.support.compare import check_model, load, model_of, ops_of, weights

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(op, hidden=5, width=3, steps=4, batch=2, direction="forward", bias=True, initial=True, opset=17, **attrs):
    count = 2 if direction == "bidirectional" else 1
    gates = GATES[op] * hidden
    constants = {"w": weights(count, gates, width), "r": weights(count, gates, hidden, seed=2) * 0.5}
    inputs = {"x": (steps, batch, width)}
    names = ["x", "w", "r", "", "", "", ""]
    if bias:
        constants["b"], names[3] = weights(count, 2 * gates, seed=3), "b"
    if initial:
        for name, at in (("h", 5), ("c", 6))[: 2 if op == "LSTM" else 1]:
            inputs[name], names[at] = (count, batch, hidden), name
    while not names[-1]:
        names.pop()
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, names, outputs, hidden_size=hidden, direction=direction, **attrs)
    return model_of([node], inputs, outputs, constants, opset)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op, direction):
    graph = check_model(model(op, direction=direction))
    assert ops_of(graph).count("recurrent") == 1
    assert ops_of(graph).count("conv") == (2 if direction == "bidirectional" else 1)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_without_bias_and_initial_state(op):
    check_model(model(op, bias=False, initial=False, hidden=17, batch=1))


@pytest.mark.parametrize("after", [0, 1])
def test_gru_resets_before_or_after(after):
    for hidden in (5, 16, 33):
        check_model(model("GRU", hidden=hidden, linear_before_reset=after))


def longer(made, lengths=None, peepholes=False):
    """The model with lengths of its sequences, or with peepholes."""
    node = made.graph.node[0]
    node.input.extend([""] * (8 - len(node.input)))
    if lengths is not None:
        node.input[4] = "lengths"
        made.graph.initializer.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
    if peepholes:
        node.input[7] = "p"
        count = 2 if "bidirectional" in str(node) else 1
        hidden = helper.get_node_attr_value(node, "hidden_size")
        made.graph.initializer.append(numpy_helper.from_array(weights(count, 3 * hidden, seed=7), "p"))
    while not node.input[-1]:
        del node.input[-1]
    return made


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequences_of_different_lengths(op, direction):
    graph = check_model(longer(model(op, direction=direction, batch=5), [4, 2, 2, 1, 3]))
    assert "recurrent" in ops_of(graph)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_peepholes(direction):
    check_model(longer(model("LSTM", direction=direction), peepholes=True))
    check_model(longer(model("LSTM", direction=direction, batch=3), [1, 4, 2], peepholes=True))


def test_lengths_that_the_run_knows(tmp_path):
    made = longer(model("LSTM", batch=3, direction="bidirectional"), [1, 1, 1])
    del made.graph.initializer[-1]
    made.graph.input.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [3]))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(4, 3, 3)), "h": rng.normal(size=(2, 3, 5)), "c": rng.normal(size=(2, 3, 5))}
    feeds = {name: v.astype(np.float32) for name, v in feeds.items()} | {"lengths": np.array([3, 1, 4], np.int32)}
    wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, feeds)
    with flexnn.Session(flexnn.compile(tmp_path / "m.onnx")) as session:
        for mine, theirs in zip(session.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    ("hidden", "batch", "direction", "lengths", "wtype"),
    [
        (64, 1, "forward", None, "f32"),
        (100, 1, "reverse", None, "f32"),
        (75, 2, "bidirectional", [3, 1], "f32"),
        (193, 3, "forward", [1, 4, 3], "f32"),
        (208, 5, "forward", None, "f32"),
        (100, 1, "bidirectional", None, "f16"),
        (96, 1, "forward", None, "s8"),
    ],
)
def test_threads_share_a_step_of_few_rows(tmp_path, op, hidden, batch, direction, lengths, wtype):
    attrs = {"linear_before_reset": 1} if op == "GRU" else {}
    made = model(op, hidden, 3, 4, batch, direction, clip=2.0, **attrs)
    if lengths or op == "LSTM":
        made = longer(made, lengths, peepholes=op == "LSTM")
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    artifact = flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn", weights=wtype)
    rng = np.random.default_rng(hidden)
    feeds = {
        i.name: rng.normal(size=[d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in made.graph.input
    }
    with flexnn.Session(artifact, threads=1) as session:
        alone = session.run(None, feeds)
    if wtype == "f32":
        for mine, theirs in zip(alone, onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, feeds), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    for threads in (2, 3, 4, 7):
        with open_for_tests(artifact, threads=threads, poison=True, jitter_seed=threads) as session:
            for _ in range(3):
                for mine, same in zip(session.run(None, feeds), alone, strict=True):
                    np.testing.assert_array_equal(mine, same)


def test_only_the_last_state_is_read():
    whole = model("LSTM")
    whole.graph.node[0].output[0] = ""
    del whole.graph.output[0]
    check_model(whole)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("clip", [0.3, 1.0])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_gates_are_clipped(op, clip, direction):
    graph = check_model(model(op, direction=direction, clip=clip))
    assert "recurrent" in ops_of(graph)


@pytest.mark.parametrize("clip", [0.0, 0.4])
def test_forget_gates_that_are_what_input_gates_leave(clip):
    check_model(model("LSTM", input_forget=1, **({"clip": clip} if clip else {})))
    check_model(model("LSTM", input_forget=1, hidden=20, direction="bidirectional"))


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    "name", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu", "Softsign", "Softplus"]
)
def test_functions_of_gates(op, name):
    names = {"RNN": [name], "GRU": [name, "Tanh"], "LSTM": ["Sigmoid", name, "Tanh"]}[op]
    given = (
        {"activation_alpha": [0.3]} if name == "ThresholdedRelu" else {}
    )  # onnxruntime has another default than ONNX
    check_model(model(op, activations=names, steps=3, **given))


def test_functions_with_numbers_take_them_in_order():
    names = ["HardSigmoid", "LeakyRelu", "HardSigmoid"]
    check_model(model("LSTM", activations=names, activation_alpha=[0.3, 0.05, 0.1], activation_beta=[0.4, 0.6]))
    twice = {"activation_alpha": [0.3, 0.3], "activation_beta": [0.4, 0.4]}
    check_model(model("GRU", direction="bidirectional", activations=["HardSigmoid", "Tanh"] * 2, **twice))


def test_gates_of_sequences_of_different_lengths_are_clipped_too():
    check_model(longer(model("LSTM", clip=0.5, input_forget=1, batch=3), [1, 4, 2], peepholes=True))


@pytest.mark.parametrize(
    "attrs",
    [
        {"activations": ["ScaledTanh", "Tanh", "Tanh"]},
        {"activations": ["Sigmoid", "Tanh", "Tanh", "Relu", "Tanh", "Tanh"], "direction": "bidirectional"},
    ],
)
def test_what_the_core_does_not_compute_is_refused(attrs):
    with pytest.raises(GraphError):
        load(model("LSTM", **attrs))
