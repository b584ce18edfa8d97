"""Comparisons, logic, choices and integers, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.compare import check_model, model_of, ops_of

TYPES = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i32": TensorProto.INT32, "bool": TensorProto.BOOL}
NUMPY = {"f32": np.float32, "i64": np.int64, "i32": np.int32, "bool": np.bool_}
SHAPES = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((1, 3, 1), (2, 1, 4)), ((), (3,))]


def values(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(-3, 4, shape)
    return np.asarray(numbers > 0 if kind == "bool" else numbers, NUMPY[kind])


def check(op, kind, shapes, out="bool", opset=17):
    names = ["a", "b"][: len(shapes)]
    types = dict.fromkeys(names, TYPES[kind]) | {"y": TYPES[out]}
    model = model_of(
        [helper.make_node(op, names, ["y"])], dict(zip(names, shapes, strict=True)), ["y"], {}, opset, types
    )
    feeds = {name: values(kind, shape, i) for i, (name, shape) in enumerate(zip(names, shapes, strict=True))}
    return check_model(model, feeds=feeds)


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize("kind", ["f32", "i64", "i32"])
def test_comparisons(op, kind):
    for shapes in SHAPES:
        check(op, kind, shapes)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op):
    for shapes in SHAPES:
        check(op, "bool", shapes)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("kind", ["i64", "i32"])
def test_integers(op, kind):
    for shapes in SHAPES:
        assert ops_of(check(op, kind, shapes, kind)) == ["pointwise"]


def test_integer_division_is_towards_zero():
    types = dict.fromkeys(["a", "b", "y"], TensorProto.INT64)
    model = model_of([helper.make_node("Div", ["a", "b"], ["y"])], {"a": (4,), "b": (4,)}, ["y"], {}, 17, types)
    feeds = {"a": np.array([7, -7, 7, -7], np.int64), "b": np.array([2, 2, -2, -2], np.int64)}
    check_model(model, feeds=feeds)


def test_not_and_is_nan():
    check("Not", "bool", [(3, 4)])
    model = model_of([helper.make_node("IsNaN", ["x"], ["y"])], {"x": (4,)}, ["y"], {}, 17, {"y": TensorProto.BOOL})
    check_model(model, feeds={"x": np.array([1, np.nan, np.inf, -2], np.float32)})


@pytest.mark.parametrize("kind", ["f32", "i64"])
def test_where(kind):
    types = {"c": TensorProto.BOOL, "a": TYPES[kind], "b": TYPES[kind], "y": TYPES[kind]}
    for shapes in [((2, 1, 4), (2, 3, 4), (4,)), ((3,), (1,), (2, 3)), ((1, 3, 5, 5), (1, 1, 1, 1), (1, 3, 5, 5))]:
        node = helper.make_node("Where", ["c", "a", "b"], ["y"])
        model = model_of([node], dict(zip("cab", shapes, strict=True)), ["y"], {}, 17, types)
        feeds = {
            n: values("bool" if n == "c" else kind, s, i) for i, (n, s) in enumerate(zip("cab", shapes, strict=True))
        }
        check_model(model, feeds=feeds)


def test_where_between_convolutions_takes_their_layout():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node("Less", ["t", "zero"], ["c"]),
        helper.make_node("Where", ["c", "zero", "t"], ["u"]),
        helper.make_node("Conv", ["u", "w"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    constants = {"w": rng.uniform(-1, 1, (3, 3, 1, 1)).astype(np.float32), "zero": np.zeros((), np.float32)}
    graph = check_model(model_of(nodes, {"x": (1, 3, 4, 5)}, ["y"], constants))
    assert ops_of(graph).count("copy") <= 2


def test_clip_between_computed_bounds():
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    model = model_of([node], {"x": (3, 4), "low": (), "high": ()}, ["y"])
    x = np.random.default_rng(1).uniform(-2, 2, (3, 4)).astype(np.float32)
    check_model(model, feeds={"x": x, "low": np.full((), -0.5, np.float32), "high": np.ones((), np.float32)})
