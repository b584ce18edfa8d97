"""Operators over every element type, computed by the C core: the bits that the numpy evaluators compute, with the ends
of the types among the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import helper

from flexnn.graph.evaluate import evaluate
from flexnn.graph.ir import Graph
from tests.support.compare import load, model_of, ops_of, run_on_core
from tests.support.reference import run_graph

Array = np.ndarray
SIGNED = ["int64", "int32", "int16", "int8"]
UNSIGNED = ["uint64", "uint32", "uint16", "uint8"]
INTEGERS = SIGNED + UNSIGNED
FLOATS = ["float64", "float32"]
NUMBERS = INTEGERS + FLOATS
SHAPES = [((), ()), ((1,), ()), ((5,), (5,)), ((2, 3, 4), (4,)), ((1, 3, 1), (2, 1, 4)), ((3, 700), (3, 1))]


def values(dtype: str, shape: Sequence[int], seed: int = 0) -> Array:
    """Small numbers, and the ends of the type among them."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), kind)
    if kind.kind == "f":
        ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1.5, 2.5])
        numbers = rng.integers(-8, 9, shape) / 2
    else:
        info = np.iinfo(kind)
        ends = np.array([info.min, info.max, info.max - 1, 0, 1], kind)
        numbers = rng.integers(max(info.min, -7), 8, shape)
    ends = rng.choice(ends, shape)
    return np.where(rng.integers(0, 4, shape) == 0, ends, np.asarray(numbers).astype(kind)).astype(kind)


def check(
    op: str,
    inputs: Sequence[Array],
    constants: Mapping[int, Array] | None = None,
    opset: int = 20,
    tolerance: float = 0.0,
    **attrs: object,
) -> Graph:
    """Assert that the core and the reference compute what the evaluator does, in one segment; return the graph.

    ``constants``: further inputs, by their places, which are known while binding.
    """
    known = {f"c{i}": array for i, array in (constants or {}).items()}
    fed = {f"x{i}": array for i, array in enumerate(inputs)}
    names = list(fed)
    for i in sorted(constants or {}):
        names.insert(i, f"c{i}")
    every = [({**fed, **known})[name] for name in names]
    with np.errstate(all="ignore"):
        (want,) = evaluate(op, attrs, every, opset)
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in fed.items()}
    types["y"] = helper.np_dtype_to_tensor_dtype(want.dtype)
    node = helper.make_node(op, names, ["y"], **attrs)
    graph = load(model_of([node], {n: a.shape for n, a in fed.items()}, ["y"], known, opset, types))
    for run in (run_on_core, run_graph):
        got = run(graph, fed)["y"]
        assert (got.dtype, got.shape) == (want.dtype, want.shape), run.__name__
        if tolerance:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=run.__name__)
        else:
            np.testing.assert_array_equal(got, want, err_msg=run.__name__)
    return graph


def pairs(dtype: str) -> list[tuple[Array, Array]]:
    return [(values(dtype, a, i), values(dtype, b, i + 50)) for i, (a, b) in enumerate(SHAPES)]


# ---- two operands ----


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_arithmetic(op: str, dtype: str) -> None:
    for a, b in pairs(dtype):
        check(op, [a, b])


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders(fmod: int, dtype: str) -> None:
    for a, b in pairs(dtype):
        check("Mod", [a, b], fmod=fmod)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers(dtype: str) -> None:
    for exponent in (dtype, "int64", "int32"):
        for i, (a, b) in enumerate(SHAPES):
            power = np.random.default_rng(i).integers(0 if dtype[0] == "u" else -3, 70, b)
            check("Pow", [values(dtype, a, i), power.astype(exponent)])
    for power in (2, 3, 0):
        check("Pow", [values(dtype, (3, 4))], {1: np.array(power, dtype)})
        check("Pow", [np.arange(9).astype(dtype)], {1: np.array(power, np.float32)})
    check("Pow", [np.arange(9).astype(dtype), np.full(9, 0.5, np.float32)])


def test_powers_of_doubles() -> None:
    for exponent in ("float64", "float32", "int32"):
        check("Pow", [np.linspace(0.1, 4, 12), np.arange(12).astype(exponent) - 4], tolerance=1e-14)
    for power in (2.0, 0.5, 3.0):
        check("Pow", [np.linspace(0.1, 4, 12)], {1: np.array(power, np.float32)}, tolerance=1e-14)


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(op: str, dtype: str) -> None:
    for a, b in pairs(dtype):
        check(op, [a, b])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    for a, b in pairs("bool"):
        check(op, [a, b])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits(op: str, dtype: str) -> None:
    for a, b in pairs(dtype):
        check(op, [a, b])


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(direction: str, dtype: str) -> None:
    for i, (a, b) in enumerate(SHAPES):
        count = np.random.default_rng(i).integers(0, 70, b).astype(dtype)
        check("BitShift", [values(dtype, a, i), count], direction=direction)


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_where(dtype: str) -> None:
    for i, (a, b) in enumerate(SHAPES):
        check("Where", [values("bool", b, i), values(dtype, a, i), values(dtype, b, i + 9)])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_clip(dtype: str) -> None:
    for shape in ((), (7,), (2, 3, 4)):
        x = values(dtype, shape)
        check("Clip", [x, np.array(1, dtype), np.array(4, dtype)])
        check("Clip", [x], {1: np.array(1, dtype), 2: np.array(4, dtype)})
    check("Clip", [values("float64", (3, 4))], opset=6, min=-1.0, max=2.0)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_variadic(op: str, dtype: str) -> None:
    check(op, [values(dtype, shape, i) for i, shape in enumerate([(2, 3), (3,), (2, 1), ()])])


def test_variadic_of_doubles() -> None:
    for op in ("Sum", "Mean"):
        check(op, [np.linspace(i, i + 1, 6).reshape(2, 3) for i in range(3)], tolerance=1e-14)


# ---- one operand ----


@pytest.mark.parametrize("dtype", [*SIGNED, *FLOATS])
@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign", "Relu"])
def test_signs(op: str, dtype: str) -> None:
    for shape in ((), (1,), (5,), (3, 4)):
        check(op, [values(dtype, shape)])


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_signs_of_unsigned(dtype: str) -> None:
    for op in ("Abs", "Sign"):
        check(op, [values(dtype, (3, 4))])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_opposites(dtype: str) -> None:
    check("BitwiseNot", [values(dtype, (3, 4))])
    check("Not", [values("bool", (3, 4))])


@pytest.mark.parametrize("dtype", FLOATS)
def test_classes_of_floats(dtype: str) -> None:
    x = values(dtype, (4, 25))
    check("IsNaN", [x])
    for attrs in ({}, {"detect_positive": 0}, {"detect_negative": 0}, {"detect_positive": 0, "detect_negative": 0}):
        check("IsInf", [x], **attrs)


ROUNDED = ["Floor", "Ceil", "Round", "Reciprocal", "Sqrt"]
FUNCTIONS = [
    "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh",
    "Erf", "Sigmoid", "Softplus",
]  # fmt: skip


@pytest.mark.parametrize("op", ROUNDED + FUNCTIONS)
def test_functions_of_doubles(op: str) -> None:
    check(op, [values("float64", (4, 25))], tolerance=0.0 if op in ROUNDED else 1e-14)
    low, high = (1.0, 3.0) if op == "Acosh" else (-0.9, 0.9)
    check(op, [np.linspace(low, high, 20)], tolerance=1e-14)


@pytest.mark.parametrize("op", ["Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"])
def test_rare_functions_of_floats(op: str) -> None:
    low, high = (1.0, 3.0) if op == "Acosh" else (-0.9, 0.9)
    check(op, [np.linspace(low, high, 20).astype(np.float32)], tolerance=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations(dtype: str) -> None:
    x, exact = np.linspace(-4, 4, 33).astype(dtype), 1e-14 if dtype == "float64" else 2e-6
    check("Shrink", [x], bias=0.25, lambd=1.5)
    for alpha in (1.0, 1.5):
        check("Swish", [x], opset=24, tolerance=exact, alpha=alpha)
    check("PRelu", [x.reshape(3, 11), np.array([[0.5], [2], [-1]], dtype)])


def test_prelu_of_integers() -> None:
    check("PRelu", [values("int32", (3, 4)), values("int32", (4,), 3)])


# ---- types ----


@pytest.mark.parametrize("to", [*NUMBERS, "bool", "float16"])
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_casts(dtype: str, to: str) -> None:
    x = values(dtype, (5, 40))
    if dtype.startswith("f"):
        edges = [3e9, -3e9, 1e19, -1e19, 127.5, 128.0, -1.0, -1.5, 4e4, 7e4, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63)]
        x = np.concatenate([x.reshape(-1), np.array(edges, dtype)])
    check("Cast", [x], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(to))))
    if to != "float16":
        check("CastLike", [x, np.zeros((), to)])


# ---- over axes ----

REDUCED = ["ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax", "ReduceMean", "ReduceL1", "ReduceSumSquare"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", REDUCED)
def test_reductions_of_integers(op: str, dtype: str) -> None:
    x = values(dtype, (3, 4, 5, 2))
    if op == "ReduceMean":  # of numbers whose sum the evaluator's float64 has
        x = np.random.default_rng(1).integers(0, 100, x.shape).astype(dtype)
    for axes in ([1], [0, 2], [-1], [2, 3], [0, 1, 2, 3]):
        for keepdims in (0, 1):
            check(op, [x], {1: np.array(axes, np.int64)}, keepdims=keepdims)
    check(op, [x])
    check(op, [x[0, 0, 0, 0]])
    check(op, [x], noop_with_empty_axes=1)


@pytest.mark.parametrize("op", [*REDUCED, "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_reductions_of_doubles(op: str) -> None:
    x = np.random.default_rng(2).uniform(0.5, 2, (3, 4, 5, 2))
    for axes in ([1], [0, 2], [0, 1, 2, 3]):
        check(op, [x], {1: np.array(axes, np.int64)}, tolerance=1e-13)
    check(op, [x[0, 0, 0, 0]], tolerance=1e-13)


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_integers(op: str) -> None:
    x = np.random.default_rng(2).integers(1, 9, (3, 4, 5)).astype(np.int32)
    check(op, [x], {1: np.array([0, 1], np.int64)})


@pytest.mark.parametrize("op", ["ReduceMin", "ReduceMax"])
def test_reductions_of_bool(op: str) -> None:
    check(op, [values("bool", (3, 4, 5))], {1: np.array([1], np.int64)})


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions(op: str, dtype: str) -> None:
    for shape, axis in (((7,), 0), ((3, 90), 1), ((3, 90), 0), ((2, 5, 4), -2)):
        for last in (0, 1):
            for keepdims in (0, 1):
                x = values(dtype, shape)
                check(op, [x], axis=axis, select_last_index=last, keepdims=keepdims)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(("op", "opset"), [("CumSum", 14), ("CumProd", 26)])
def test_running(op: str, opset: int, dtype: str) -> None:
    for shape, axis in (((7,), 0), ((3, 90), 1), ((3, 90), 0), ((2, 5, 4), -2)):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                given = {1: np.array(axis, np.int64)}
                check(op, [values(dtype, shape)], given, opset, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("opset", [11, 13])
def test_hardmax(opset: int) -> None:
    for axis in (0, 1, 2):
        check("Hardmax", [values("float32", (3, 4, 5))], None, opset, axis=axis)
    check("Hardmax", [np.random.default_rng(3).uniform(-1, 1, (3, 4, 5))], None, opset)


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms(dtype: str) -> None:
    exact = 1e-12 if dtype == "float64" else 3e-6
    x = np.random.default_rng(4).uniform(-2, 2, (2, 3, 4, 5)).astype(dtype)
    x[:, :, 1] = 0
    for p in (1, 2):
        for axis in (0, 2, -1):
            check("LpNormalization", [x], tolerance=exact, p=p, axis=axis)
    for p in (1, 2, 3):
        check("GlobalLpPool", [x], tolerance=exact, p=p)
    check("MeanVarianceNormalization", [x], tolerance=2 * exact)
    check("MeanVarianceNormalization", [x], tolerance=2 * exact, axes=[1, 3])


@pytest.mark.parametrize(("opset", "vectors"), [(18, 3), (21, 6)])
def test_group_normalization(opset: int, vectors: int) -> None:
    x, scale, bias = (np.random.default_rng(i).uniform(-2, 2, s).astype(np.float32) for i, s in
                      enumerate([(2, 6, 4, 5), (vectors,), (vectors,)]))  # fmt: skip
    check("GroupNormalization", [x], {1: scale, 2: bias}, opset, 2e-6, num_groups=3)
    check("GroupNormalization", [x, scale, bias], None, opset, 2e-6, num_groups=3)
    check("GroupNormalization", [x[:, :, 0, 0], scale, bias], None, opset, 2e-6, num_groups=3)


# ---- by position ----


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_triangles(dtype: str) -> None:
    for shape in ((3, 4), (2, 5, 3), (1, 1)):
        for upper in (0, 1):
            check("Trilu", [values(dtype, shape)], upper=upper)
            for k in (-9, -1, 0, 2, 1 << 40):
                check("Trilu", [values(dtype, shape)], {1: np.array(k, np.int64)}, upper=upper)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32"])
def test_one_hot(dtype: str) -> None:
    for kind in ("float32", "int64", "bool"):
        for shape in ((), (6,), (2, 3)):
            for axis in range(-1, len(shape) + 1):
                indices = np.random.default_rng(5).integers(0 if dtype == "uint8" else -6, 7, shape).astype(dtype)
                of = values(kind, (2,), 8)
                check("OneHot", [indices], {1: np.array(5, np.int64), 2: of}, axis=axis)
                check("OneHot", [indices, of], {1: np.array([5], np.float32)}, axis=axis)


def test_constants_of_shapes() -> None:
    check("EyeLike", [values("float32", (3, 4))], k=1)
    check("EyeLike", [values("float32", (3, 4))], dtype=7)


# ---- where values lie apart, or between others ----


def test_strided_operands() -> None:
    """Slices and transpositions are read where they are."""
    for dtype in ("int64", "int16", "bool"):
        x = values(dtype, (6, 5, 4))
        nodes = [
            helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
            helper.make_node("Slice", ["t", "from", "to", "axes", "steps"], ["s"]),
            helper.make_node("Equal", ["s", "u"], ["e"]),
            helper.make_node("Where", ["e", "s", "u"], ["y"]),
        ]
        constants = {n: np.array(v, np.int64) for n, v in {"from": [1], "to": [6], "axes": [1], "steps": [2]}.items()}
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        types = {"x": kind, "u": kind, "y": kind}
        graph = load(model_of(nodes, {"x": (6, 5, 4), "u": (4, 3, 5)}, ["y"], constants, 17, types))
        u, part = values(dtype, (4, 3, 5), 7), x.transpose(2, 0, 1)[:, 1:6:2]
        for run in (run_on_core, run_graph):
            np.testing.assert_array_equal(run(graph, {"x": x, "u": u})["y"], np.where(part == u, part, u))


def test_a_chain_of_integers_is_one_graph() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=7),
        helper.make_node("Mod", ["i", "seven"], ["m"]),
        helper.make_node("CumSum", ["m", "axis"], ["c"]),
        helper.make_node("ArgMax", ["c"], ["a"], axis=1, keepdims=0),
        helper.make_node("OneHot", ["a", "depth", "values"], ["y"]),
    ]
    constants = {"seven": np.array(7, np.int64), "axis": np.array(1, np.int64), "depth": np.array(9, np.int64)}
    constants["values"] = np.array([0, 1], np.float32)
    graph = load(model_of(nodes, {"x": (4, 9)}, ["y"], constants))
    assert ops_of(graph) == ["cast", "pointwise", "cumulate", "argmax", "one_hot"]
    x = np.random.default_rng(0).uniform(-90, 90, (4, 9)).astype(np.float32)
    best = np.cumsum(np.mod(x.astype(np.int64), 7), 1).argmax(1)
    np.testing.assert_array_equal(run_on_core(graph, {"x": x})["y"], np.eye(9, dtype=np.float32)[best])
