"""Sequences and optional values that a model builds itself: its nodes read their parts."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from flexnn.graph.ir import GraphError
from tests.support.compare import check_model, load, model_of
from tests.support.regions import F32, I64, check_run, graph_of, numbers, opened, value
from tests.support.regions import model_of as region_model


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


X = {"x": (4, 6, 5), "z": (4, 6, 5)}
CONSTANTS = {"zero": np.int64(0), "one": np.int64(1), "last": np.int64(-1), "two": np.int64(2), "sizes": ints(1, 3, 2)}
BUILD = node("SequenceConstruct", "x z x", "s")
SIZE = node("Size", "x", "k")
CASES = [
    [BUILD, node("SequenceAt", "s one", "a"), node("Neg", "a", "y")],
    [BUILD, node("SequenceErase", "s last", "t"), node("SequenceAt", "t last", "a"), node("Neg", "a", "y")],
    [BUILD, node("SequenceErase", "s", "t"), node("ConcatFromSequence", "t", "y", axis=1)],
    [BUILD, node("ConcatFromSequence", "s", "y", axis=-1, new_axis=1)],
    [BUILD, node("ConcatFromSequence", "s", "y", axis=0, new_axis=1)],
    [node("SequenceEmpty", "", "e"), node("SequenceInsert", "e x", "s"), node("SequenceInsert", "s z zero", "t"),
     node("Identity", "t", "u"), node("SequenceAt", "u zero", "a"), node("Exp", "a", "y")],
    [BUILD, node("SequenceInsert", "s z last", "t"), node("ConcatFromSequence", "t", "y", axis=2)],
    [node("SplitToSequence", "x", "s", axis=1), node("SequenceAt", "s two", "a"), node("Neg", "a", "y")],
    [node("SplitToSequence", "x", "s", axis=1, keepdims=0), node("SequenceAt", "s last", "a"), node("Neg", "a", "y")],
    [node("SplitToSequence", "x two", "s", axis=0), node("SequenceAt", "s one", "a"), node("Neg", "a", "y")],
    [node("SplitToSequence", "x sizes", "s", axis=1), node("SequenceAt", "s one", "a"), node("Neg", "a", "y")],
    [node("SplitToSequence", "x sizes", "s", axis=-2), node("ConcatFromSequence", "s", "b", axis=1),
     node("Neg", "b", "y")],
    [node("SplitToSequence", "x", "s", axis=1), node("ConcatFromSequence", "s", "b", axis=1), node("Neg", "b", "y")],
    [node("Neg", "x", "n"), node("Optional", "n", "o"), node("OptionalGetElement", "o", "g"), node("Abs", "g", "y")],
]  # fmt: skip


@pytest.mark.parametrize("nodes", CASES, ids=[str(i) for i in range(len(CASES))])
@pytest.mark.parametrize("opset", [12, 17])
def test_sequences(nodes, opset):
    newer = {"Identity", "Optional"}  # of sequences; new
    check_model(model_of(nodes, X, ["y"], CONSTANTS, 17 if newer.intersection(n.op_type for n in nodes) else opset))


@pytest.mark.parametrize("backwards", [False, True])
def test_nodes_in_any_order(backwards):
    nodes = CASES[5]
    check_nodes = nodes[::-1] if backwards else nodes
    assert load(model_of(check_nodes, X, ["y"], CONSTANTS)).nodes


def test_lengths_and_positions_that_are_computed(tmp_path):
    """With open shapes there are as many parts as the run says."""
    nodes = [
        node("SplitToSequence", "x", "s", axis=1, keepdims=0),
        node("SequenceLength", "s", "n"),
        node("SequenceAt", "s p", "y"),
        node("SplitToSequence", "x four", "t", axis=1),
        node("SequenceLength", "t", "m"),
    ]
    inputs = [value("x", F32, [2, "n", 3]), value("p", I64, [])]
    outputs = [value("n", I64, []), value("y", F32, [2, 3]), value("m", I64, [])]
    model = region_model(graph_of(nodes, inputs, outputs, {"four": np.int64(4)}))
    with opened(tmp_path, model) as session:
        for length, place in ((5, 2), (8, -1), (1, 0)):
            check_run(session, model, {"x": numbers(2, length, 3), "p": np.array(place)})


def test_a_sequence_that_a_branch_reads(tmp_path):
    branches = [
        graph_of([node("SequenceAt", f"s {place}", f"r{place}")], [], [value(f"r{place}", F32, [2, "n"])])
        for place in ("zero", "one")
    ]
    nodes = [
        node("SequenceConstruct", "x z", "s"),
        node("If", "c", "y", then_branch=branches[0], else_branch=branches[1]),
    ]
    inputs = [value("x", F32, [2, "n"]), value("z", F32, [2, "n"]), value("c", TensorProto.BOOL, [])]
    constants = {"zero": np.int64(0), "one": np.int64(1)}
    model = region_model(graph_of(nodes, inputs, [value("y", F32, [2, "n"])], constants))
    with opened(tmp_path, model) as session:
        for taken in (True, False):
            feed = {"x": numbers(2, 3), "z": numbers(2, 3, seed=1), "c": np.array(taken)}
            check_run(session, model, feed)


def test_whether_there_is_an_element(tmp_path):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, None))
    nodes = [
        node("Optional", "x", "o"),
        node("OptionalHasElement", "o", "some"),
        helper.make_node("Optional", [], ["empty"], type=kind),
        node("OptionalHasElement", "empty", "none"),
    ]
    outputs = [value("some", TensorProto.BOOL, []), value("none", TensorProto.BOOL, [])]
    model = helper.make_model(
        graph_of(nodes, [value("x", F32, [2, "n"])], outputs), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    with opened(tmp_path, model) as session:
        some, none = session.run(None, {"x": numbers(2, 3)})
    assert some
    assert not none


REFUSED = [
    ([BUILD], ["s"], r"output 's' is not a tensor"),
    ([BUILD, node("SequenceAt", "s two", "a"), node("SequenceAt", "a one", "y")], ["y"],
     r"SequenceAt node 'y': input 'a' is not a sequence"),
    ([BUILD, SIZE, node("SequenceAt", "s k", "y")], ["y"],
     r"SequenceAt node 'y': its position \(input 'k'\) is computed"),
    ([BUILD, node("SequenceErase", "s", "t"), node("SequenceAt", "t two", "y")], ["y"],
     r"position \[2\] is outside a sequence of 2"),
    ([BUILD, node("Neg", "s", "y")], ["y"], r"Neg node 'y': its input 's' is not a tensor"),
    ([node("SplitToSequence", "x two", "s"), node("SequenceAt", "s last", "y")], ["y"], r"position -1 among parts"),
    ([SIZE, node("SplitToSequence", "x k", "s"), node("SequenceAt", "s last", "y")], ["y"],
     r"its sizes .* must be constant"),
    ([node("SplitToSequence", "x", "s"), node("ConcatFromSequence", "s", "y", axis=1)], ["y"],
     r"number of parts of 's' is not known"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "outputs", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_refusals(nodes, outputs, message):
    with pytest.raises(GraphError, match=message) as caught:
        load(model_of(nodes, X, outputs, CONSTANTS))
    assert "\n" not in str(caught.value)
