"""Operators that move elements by index, and selections of known size, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from flexnn.graph.evaluate import evaluate
from flexnn.graph.ir import GraphError
from tests.support.compare import check_model, model_of, ops_of

F32 = np.float32
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.bool_): TensorProto.BOOL,
    np.dtype(np.uint16): TensorProto.UINT16,
    np.dtype(np.int16): TensorProto.INT16,
    np.dtype(np.uint32): TensorProto.UINT32,
    np.dtype(np.uint64): TensorProto.UINT64,
}


def ints(*values):
    return np.array(values, np.int64)


def some(dtype, *shape, seed=0):
    """Seeded numbers of a type, with many equal ones."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return np.round(rng.uniform(-3, 3, shape), 1).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else 50, shape).astype(dtype)


def places(size, *shape, dtype=np.int64, seed=1):
    """Seeded indices from both ends."""
    return np.random.default_rng(seed).integers(-size, size, shape).astype(dtype)


def check(op, feeds, constants=None, outputs=("y",), opset=18, order=None, **attrs):
    """Check a node over ``feeds`` against onnxruntime and against numpy's evaluator; return the graph."""
    names = order or [*feeds, *(constants or {})]
    node = helper.make_node(op, names, list(outputs), **attrs)
    kinds = {n: TYPES[x.dtype] for n, x in feeds.items()}
    given = [{**feeds, **(constants or {})}.get(n) for n in names]
    wanted = evaluate(op, attrs, given, opset, len(outputs))
    kinds |= {n: TYPES[y.dtype] for n, y in zip(outputs, wanted, strict=False)}
    model = model_of([node], {n: x.shape for n, x in feeds.items()}, list(outputs), constants, opset, kinds)
    return check_model(model, feeds=feeds, tolerance=0)


# ---- gathering and scattering ----


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(dtype, axis):
    x, size = some(dtype, 4, 5, 6), (4, 5, 6)[axis]
    shape = [3, 4, 2]
    shape[axis] = 7
    assert "gather_at" in ops_of(check("GatherElements", {"x": x, "i": places(size, *shape)}, axis=axis))
    check("GatherElements", {"x": x, "i": places(size, 4, 5, 6, dtype=np.int32)}, axis=axis)
    check("GatherElements", {"x": x}, {"i": places(size, *shape)}, axis=axis)


def test_gather_elements_of_one_dimension_and_of_many():
    check("GatherElements", {"x": some(F32, 9), "i": places(9, 20)})
    check("GatherElements", {"x": some(F32, 2, 3, 2, 3, 2, 3), "i": places(3, 1, 2, 1, 3, 1, 2)}, axis=3)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "indices", "batch", "limit"),
    [
        ((5, 6, 7), (3, 2), 0, 5), ((5, 6, 7), (4, 3, 3), 0, 5), ((2, 6, 7), (2, 4, 1), 1, 6),
        ((2, 3, 7), (2, 3, 5, 1), 2, 7), ((2, 3, 4, 5), (2, 2, 2), 1, 3), ((6,), (9, 1), 0, 6), ((5, 6), (2,), 0, 5),
    ],
)  # fmt: skip
def test_gather_nd(dtype, shape, indices, batch, limit):
    check("GatherND", {"x": some(dtype, *shape), "i": places(limit, *indices)}, batch_dims=batch)


def test_gather_of_every_type():
    for dtype in TYPES:
        for index in (np.int64, np.int32):
            feeds = {"x": some(dtype, 4, 5), "i": places(5, 2, 3, dtype=index)}
            assert "gather" in ops_of(check("Gather", feeds, axis=1))


REDUCTIONS = ["none", "add", "mul", "max", "min"]


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dtype", [t for t in TYPES if t != np.bool_])
def test_scatter_elements(kind, dtype):
    rng = np.random.default_rng(3)
    for axis in (0, 1, -1):
        shape = [3, 4, 2]
        shape[axis] = (4, 5, 6)[axis]
        chosen = np.argsort(rng.random(shape), axis)  # each place once: onnxruntime does not say in which order it adds
        feeds = {"x": some(dtype, 4, 5, 6), "i": chosen, "u": some(dtype, *shape, seed=4)}
        assert "scatter_at" in ops_of(check("ScatterElements", feeds, axis=axis, reduction=kind))


def test_scatter_elements_names_places_more_than_once():
    feeds = {"x": some(np.int32, 4, 5), "i": places(4, 9, 5), "u": some(np.int32, 9, 5, seed=4)}
    for kind in REDUCTIONS:
        check("ScatterElements", feeds, reduction=kind)
    check("Scatter", feeds | {"i": places(4, 9, 5, dtype=np.int32)}, opset=10)


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dtype", [F32, np.int64, np.int32])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(kind, dtype, depth):
    shape = (4, 5, 6)
    indices = np.stack([places(d, 3, 4, seed=k) for k, d in enumerate(shape[:depth])], -1)
    feeds = {"x": some(dtype, *shape), "i": indices, "u": some(dtype, 3, 4, *shape[depth:], seed=2)}
    check("ScatterND", feeds, reduction=kind)


def test_scatter_of_booleans():
    feeds = {"x": some(np.bool_, 4, 5), "i": places(4, 2, 1), "u": some(np.bool_, 2, 5, seed=2)}
    check("ScatterND", feeds)


def test_scatter_keeps_nans_as_numpy_does():
    x, u = np.array([np.nan, 1, 2, 3], F32), np.array([1, np.nan, 5, 0], F32)
    for kind in ("max", "min"):
        node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], reduction=kind)
        shapes = {"x": (4,), "i": (4,), "u": (4,)}
        from tests.support.compare import load, run_on_core

        graph = load(model_of([node], shapes, ["y"], None, 18, {"i": TensorProto.INT64}))
        got = run_on_core(graph, {"x": x, "i": ints(0, 1, 2, 3), "u": u})["y"]
        np.testing.assert_array_equal(got, (np.maximum if kind == "max" else np.minimum)(x, u))


def test_scatter_takes_the_place_of_what_dies():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("ScatterND", ["a", "i", "u"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    types = {"i": TensorProto.INT64}
    model = model_of(nodes, {"x": (5, 6), "i": (2, 1), "u": (2, 6)}, ["y"], None, 18, types)
    feeds = {"x": some(F32, 5, 6), "i": ints(3, -1).reshape(2, 1), "u": some(F32, 2, 6, seed=1)}
    graph = check_model(model, feeds=feeds)
    (node,) = [n for n in graph.nodes if n.op == "scatter_at"]
    assert graph.root(node.outputs[0]) == graph.root(node.inputs[0])
    # An operand that is read twice keeps its own place.
    nodes[1] = helper.make_node("ScatterElements", ["a", "i", "a"], ["b"])
    model = model_of(nodes, {"x": (5, 6), "i": (5, 6)}, ["y"], None, 18, types)
    feeds = {"x": some(F32, 5, 6), "i": np.argsort(np.random.default_rng(0).random((5, 6)), 0)}
    graph = check_model(model, feeds=feeds)
    (node,) = [n for n in graph.nodes if n.op == "scatter_at"]
    assert graph.root(node.outputs[0]) != graph.root(node.inputs[0])


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_reverse_sequence(time, batch):
    for dtype in (F32, np.int64):
        x = some(dtype, 5, 5, 3)
        for lengths in (ints(5, 1, 3, 2, 4), ints(1, 1, 1, 1, 1)):
            check("ReverseSequence", {"x": x, "n": lengths}, time_axis=time, batch_axis=batch)
    check("ReverseSequence", {"x": some(F32, *((7, 3) if time == 0 else (3, 7))), "n": ints(7, 2, 1)},
          time_axis=time, batch_axis=batch)  # fmt: skip


# ---- the best ----


@pytest.mark.parametrize("dtype", [F32, np.float64, np.int64, np.int32, np.uint8, np.int8])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(dtype, largest):
    for shape, axis, k in (((40,), 0, 7), ((3, 300), 1, 5), ((6, 50, 3), 1, 50), ((4, 17, 5), -2, 12), ((3, 1), 1, 1)):
        feeds, outputs = {"x": some(dtype, *shape)}, ("v", "i")
        check("TopK", feeds, {"k": ints(k)}, outputs, axis=axis, largest=largest)
    check("TopK", {"x": some(dtype, 3, 8)}, None, ("v", "i"), opset=9, k=3) if dtype == F32 and largest else None


INDICES = {"i": TensorProto.INT64}


def test_top_k_of_numbers_that_are_none():
    x = some(F32, 4, 30)
    x[1, ::3], x[2, :] = np.nan, np.nan
    x[3, ::2] = -0.0
    x[3, 1::2] = 0.0
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=1)
    from tests.support.compare import load, run_on_core

    for k in (3, 28):
        graph = load(model_of([node], {"x": (4, 30)}, ["v", "i"], {"k": ints(k)}, 18, INDICES))
        got = run_on_core(graph, {"x": x})
        for name, want in zip("vi", evaluate("TopK", {}, [x, ints(k)], 18, 2), strict=True):
            np.testing.assert_array_equal(got[name], want)


def test_top_k_in_any_order_is_in_order():
    x = some(F32, 3, 40)
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], sorted=0)
    from tests.support.compare import load, run_on_core

    got = run_on_core(load(model_of([node], {"x": (3, 40)}, ["v", "i"], {"k": ints(6)}, 18, INDICES)), {"x": x})
    np.testing.assert_array_equal(got["v"], -np.sort(-x, 1)[:, :6])


def test_long_lines_are_sorted():
    x = np.random.default_rng(5).permutation(5000).astype(F32)
    for lines in (x, np.arange(5000, dtype=F32), x % 7, np.zeros(5000, F32)):
        check("TopK", {"x": lines}, {"k": ints(5000)}, ("v", "i"))
        check("TopK", {"x": lines}, {"k": ints(1000)}, ("v", "i"), largest=0)


# ---- tiles ----


@pytest.mark.parametrize("dtype", TYPES)
def test_tile_and_expand(dtype):
    if dtype not in (np.int8, np.int16, np.uint16):  # onnxruntime has no such kernel
        check("Tile", {"x": some(dtype, 2, 3, 4)}, {"r": ints(2, 1, 3)})
    check("Expand", {"x": some(dtype, 2, 1, 4)}, {"r": ints(3, 1, 5, 4)})


def test_tile_of_many_dimensions():
    check("Tile", {"x": some(F32, 2, 1, 2, 3, 2)}, {"r": ints(2, 3, 2, 1, 2)})
    check("Tile", {"x": some(F32, 2, 3, 2, 3, 2)}, {"r": ints(2, 2, 2, 2, 2)})


# ---- what is refused ----


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("GatherElements", [(4, 3), (5, 4)], {}), ("GatherElements", [(4, 3), (4,)], {}),
        ("GatherND", [(4, 3), (2, 3)], {}), ("GatherND", [(4, 3), (2, 1)], {"batch_dims": 1}),
        ("ScatterND", [(4, 3), (2, 1), (2, 4)], {}), ("ScatterElements", [(4, 3), (2, 3), (3, 3)], {}),
        ("ScatterElements", [(4, 3), (2, 3), (2, 3)], {"reduction": "mean"}),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(op, inputs, attrs):
    from tests.support.compare import load

    names = ["x", "i", "u"][: len(inputs)]
    node = helper.make_node(op, names, ["y"], name="wrong", **attrs)
    with pytest.raises(GraphError, match="wrong"):
        load(model_of([node], dict(zip(names, inputs, strict=True)), ["y"], None, 18, {"i": TensorProto.INT64}))


def test_parts_of_operators_are_no_models():
    from tests.support.compare import load

    node = helper.make_node("NonZero.count", ["x"], ["y"])
    with pytest.raises(GraphError, match=r"NonZero\.count.*not supported"):
        load(model_of([node], {"x": (2, 3)}, ["y"]))
