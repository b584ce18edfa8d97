"""LSTM, GRU and RNN through the core, against onnxruntime."""

from __future__ import annotations

import pytest
from onnx import helper

from flexnn.graph.ir import GraphError
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
    assert ops_of(graph).count("recurrent") == (2 if direction == "bidirectional" else 1)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_without_bias_and_initial_state(op):
    check_model(model(op, bias=False, initial=False, hidden=17, batch=1))


@pytest.mark.parametrize("after", [0, 1])
def test_gru_resets_before_or_after(after):
    for hidden in (5, 16, 33):
        check_model(model("GRU", hidden=hidden, linear_before_reset=after))


def test_rnn_with_relu():
    check_model(model("RNN", activations=["Relu"]))


def test_only_the_last_state_is_read():
    whole = model("LSTM")
    whole.graph.node[0].output[0] = ""
    del whole.graph.output[0]
    check_model(whole)


@pytest.mark.parametrize("attrs", [{"clip": 1.0}, {"activations": ["Elu", "Tanh", "Tanh"]}, {"input_forget": 1}])
def test_what_the_core_does_not_compute_is_refused(attrs):
    with pytest.raises(GraphError):
        load(model("LSTM", **attrs))
