"""Evaluators: ONNX's own cases of one node, older opsets against onnx.reference, and what must be refused."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from flexnn.graph.evaluate import EVALUATORS, evaluate, linear
from flexnn.graph.evaluate.call import ELEMENT_TYPES
from flexnn.graph.ir import GraphError

NOT_OURS = {"test_training_dropout": "random, training"}
F32 = np.float32


def attrs_of(node: onnx.NodeProto) -> dict[str, object]:
    def plain(value: object) -> object:
        if isinstance(value, onnx.TensorProto):
            return numpy_helper.to_array(value)
        return value if isinstance(value, (int, float, bytes)) else list(value)

    return {a.name: plain(helper.get_attribute_value(a)) for a in node.attribute}


def as_array(value: object) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def run(node: onnx.NodeProto, inputs: list[np.ndarray | None], opset: int) -> list[np.ndarray]:
    return evaluate(node.op_type, attrs_of(node), inputs, opset, len(node.output))


def cases() -> dict[str, list]:
    """Official cases of one node that an evaluator takes, by operator."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    found: dict[str, list] = {}
    known = set(ELEMENT_TYPES)
    for case in tests:
        graph = case.model.graph if case.model is not None else None
        if graph is None or len(graph.node) != 1 or graph.node[0].op_type not in EVALUATORS:
            continue
        values = [*graph.input, *graph.output]
        types = {v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else 0 for v in values}
        to = {a.i for a in graph.node[0].attribute if a.name in ("to", "dtype", "output_dtype")}
        if types | to <= known and not any(case.name.startswith(n) for n in NOT_OURS):
            found.setdefault(graph.node[0].op_type, []).append(case)
    return found


CASES = cases()
RANDOM = {"Bernoulli"}


def test_the_official_cases_are_found():
    assert len(CASES) >= 165


@pytest.mark.parametrize("op", sorted(CASES))
def test_official(op):
    for case in CASES[op]:
        node = case.model.graph.node[0]
        names = [i.name for i in case.model.graph.input]
        opset = max(o.version for o in case.model.opset_import if o.domain == "")
        for data in case.data_sets:
            inputs, outputs = ([as_array(v) for v in values] for values in data)
            feeds = dict(zip(names, inputs, strict=True))
            got = dict(zip(node.output, run(node, [feeds[n] if n else None for n in node.input], opset), strict=False))
            for info, want in zip(case.model.graph.output, outputs, strict=True):
                values = got[info.name]
                assert (values.dtype, values.shape) == (want.dtype, want.shape), case.name
                if op in RANDOM:
                    continue  # tests/graph/test_random_numbers.py judges the numbers
                np.testing.assert_allclose(values, want, rtol=case.rtol, atol=case.atol, err_msg=case.name)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = np.random.default_rng(0).uniform(-3, 3, (2, 3, 4)).astype(F32)
OLD = [
    ("Clip", 6, {"min": -1.0, "max": 0.5}, [X]),
    ("Hardmax", 11, {"axis": 2}, [X]),
    ("ReduceSum", 11, {"axes": [0, -1]}, [X]),
    ("ReduceMean", 13, {"axes": [1], "keepdims": 0}, [X]),
    ("ReduceMax", 13, {}, [X]),
    ("Slice", 9, {"starts": [0, -3], "ends": [9, 4], "axes": [1, 2]}, [X]),
    ("Squeeze", 11, {"axes": [0]}, [X[None]]),
    ("Unsqueeze", 11, {"axes": [0, 3]}, [X]),
    ("Split", 11, {"axis": 2, "split": [1, 3]}, [X]),
    ("Split", 13, {"axis": 2}, [X, ints(3, 1)]),
    ("Pad", 10, {"pads": [0, 1, 2, 1, 0, 0], "value": 0.5}, [X]),
    ("Pad", 13, {"mode": "reflect"}, [X, ints(0, 1, 2, 1, 0, 1)]),
    ("Div", 14, {}, [ints(7, -7, 7, -7, 6), ints(2, 2, -2, -2, 3)]),
    ("Mod", 13, {}, [ints(7, -7, 7, -7), ints(3, 3, -3, -3)]),
    ("Mod", 13, {"fmod": 1}, [X, X[::-1] + F32(0.3)]),
    ("Pow", 13, {}, [ints(2, 3), np.array([3.0, 2.0], F32)]),
    ("TopK", 11, {"axis": 1}, [np.round(X), ints(2)]),
    ("Cast", 13, {"to": 7}, [X]),
    ("CumSum", 14, {"reverse": 1, "exclusive": 1}, [X, np.array(1, np.int64)]),
    ("GatherND", 13, {"batch_dims": 1}, [X, np.array([[[1]], [[-1]]], np.int64)]),
    ("Range", 11, {}, [np.array(v, F32) for v in (1, 2.1, 0.25)]),
    ("Range", 11, {}, [np.array(v, np.int64) for v in (10, -5, -3)]),
    ("OneHot", 11, {"axis": 1}, [ints(0, -1, 5), np.array(3, np.int64), np.array([2, 7], F32)]),
    ("Transpose", 13, {}, [X]),
    ("Tile", 13, {}, [X, ints(1, 2, 3)]),
]


@pytest.mark.parametrize(("op", "opset", "attrs", "inputs"), OLD, ids=lambda v: str(v)[:20])
def test_as_the_reference(op, opset, attrs, inputs):
    names = [f"i{i}" for i in range(len(inputs))]
    outputs = ["y", "z"] if op in ("Split", "TopK") else ["y"]
    node = helper.make_node(op, names, outputs, **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=n) for n in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    want = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    for a, b in zip(run(node, inputs, opset), want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_broadcast_of_opset_6_is_explicit():
    (y,) = evaluate("Add", {"broadcast": 1, "axis": 1}, [X, np.arange(3, dtype=F32)], 6)
    np.testing.assert_array_equal(y, X + np.arange(3, dtype=F32)[:, None])


def test_softmax_of_opset_11_is_over_all_axes_behind():
    rows = np.exp(X.reshape(2, 12))
    want = (rows / rows.sum(1, keepdims=True)).reshape(X.shape)
    np.testing.assert_allclose(evaluate("Softmax", {}, [X], 11)[0], want, rtol=1e-6)
    np.testing.assert_allclose(evaluate("LogSoftmax", {}, [X], 11)[0], np.log(want), rtol=1e-5)


HUGE = [
    ("ConstantOfShape", {}, [ints(1 << 40)]),
    ("ConstantOfShape", {}, [ints(-1)]),
    ("Expand", {}, [X, ints(1 << 30, 2, 3, 4)]),
    ("Tile", {}, [X, ints(1 << 40, 1, 1)]),
    ("Range", {}, [np.array(v, np.int64) for v in (0, 1 << 60, 1)]),
    ("Range", {}, [np.array(v, F32) for v in (0, np.inf, 1)]),
    ("Range", {}, [np.array(v, np.int64) for v in (0, 1, 0)]),
    ("Pad", {}, [X, ints(0, 0, 1 << 40, 0, 0, 0)]),
    ("Pad", {}, [X, ints(0, 0, -5, 0, 0, 0)]),
    ("OneHot", {}, [ints(1), ints(1 << 40), np.array([0, 1], F32)]),
    ("Add", {}, [np.zeros((1 << 14, 1), F32), np.zeros((1, 1 << 14), F32)]),
    ("Gather", {}, [np.zeros((2, 1 << 20), F32), np.zeros(1 << 10, np.int64)]),
    ("CenterCropPad", {}, [X, ints(1 << 40, 1, 1)]),
    ("Resize", {}, [X, None, np.array([1e6, 1e6, 1], F32)]),
    ("Conv", {"pads": [1 << 30] * 2}, [X, X]),
    ("ConvTranspose", {"strides": [1 << 40]}, [X, X[:1, :, :2].transpose(1, 0, 2)]),
    ("AveragePool", {"kernel_shape": [1 << 30], "pads": [1 << 30] * 2}, [X]),
    ("DFT", {}, [X[..., :1], np.array(1 << 40)]),
    ("HannWindow", {}, [np.array(1 << 40)]),
    ("MatMul", {}, [np.zeros((1 << 14, 1), F32), np.zeros((1, 1 << 14), F32)]),
]
WRONG = [
    ("Reshape", {}, [X, ints(5, -1)]),
    ("Reshape", {}, [X, ints(-1, -1)]),
    ("Gather", {}, [X, ints(2)]),
    ("GatherElements", {"axis": 1}, [X, np.full((2, 3, 4), 3, np.int64)]),
    ("ScatterND", {}, [X, np.array([[5]], np.int64), X[:1]]),
    ("Slice", {}, [X, ints(0), ints(1), ints(0), ints(0)]),
    ("Concat", {"axis": 0}, [X, X[:, :1]]),
    ("Add", {}, [X, ints(1)]),
    ("Add", {}, [X]),
    ("Transpose", {"perm": [0, 0, 1]}, [X]),
    ("ReduceSum", {}, [X, ints(3)]),
    ("TopK", {}, [X, ints(9)]),
    ("Cast", {"to": 8}, [X]),
    ("Softmax", {"axis": "1"}, [X]),
    ("Conv", {"group": 0}, [X, X]),
    ("Conv", {"strides": [0]}, [X, X]),
    ("MaxPool", {"kernel_shape": [9]}, [X]),
    ("LSTM", {}, [X, X, X]),
    ("Attention", {}, [X, X, X]),
    ("DequantizeLinear", {}, [np.zeros((2, 3), np.int8), np.ones(5, F32)]),
    ("GridSample", {"mode": "none"}, [X[None], X[None, ..., :2]]),
    ("NonMaxSuppression", {}, [X, X]),
    ("NoSuchOperator", {}, [X]),
]


@pytest.mark.parametrize(("op", "attrs", "inputs"), [*HUGE, *WRONG], ids=lambda v: str(v)[:20])
def test_refused_in_one_line(op, attrs, inputs):
    with pytest.raises(GraphError) as error:
        evaluate(op, attrs, inputs, 17, budget_bytes=1 << 28)
    assert op in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", ["f", "l"])
def test_large_products_are_made_in_parts(monkeypatch, dtype):
    """Ctrl-C waits for one call of numpy."""
    monkeypatch.setattr(linear, "_WORK_AT_ONCE", (40, 40))
    rng = np.random.default_rng(0)
    shapes = (
        ((7, 3), (3, 5)),
        ((2, 1, 7, 3), (4, 3, 5)),
        ((7, 3), (3,)),
        ((3,), (2, 3, 5)),
        ((1, 30), (30, 9)),
        ((0, 3), (3, 5)),
    )
    for left, right in shapes:
        a, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in (left, right))
        (made,) = evaluate("MatMul", {}, [a, b], 17, budget_bytes=1 << 28)
        assert made.dtype == a.dtype
        assert np.array_equal(made, np.matmul(a, b))
