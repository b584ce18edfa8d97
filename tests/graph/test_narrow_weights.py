"""Weights that a model stores in few bits stay so: which form panels and tables get, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.graph.ir import GraphError
from flexnn.session import open_for_tests
from tests.support.compare import check_model, expected, load, model_of, numbers_of_type, ops_of, run_on_core, weights

F32 = np.float32


def forms(graph):
    """How the panels of a graph are stored, in order."""
    return [node.attrs.get("wtype", node.op) for node in graph.nodes if node.weight >= 0]


def steps(n, seed=2):
    return np.random.default_rng(seed).uniform(0.01, 0.03, n).astype(F32)


def restored(q, s, z=None, axis=None, output="w"):
    """A DequantizeLinear node of these constants, and they."""
    constants = {f"{output}_q": q, f"{output}_s": s} | ({} if z is None else {f"{output}_z": z})
    attrs = {} if axis is None else {"axis": axis}
    return helper.make_node("DequantizeLinear", list(constants), [output], **attrs), constants


def scalar(value, dtype=F32):
    return np.asarray(value, dtype)


@pytest.mark.parametrize(
    ("q", "s", "z", "axis", "form"),
    [
        ((np.int8, 24, 6, 3, 3), 24, "zeros", 0, "s8"),
        ((np.int8, 24, 6, 3, 3), None, None, None, "s8"),
        ((np.uint8, 24, 6, 3, 3), 24, 128, 0, "s8"),
        ((np.uint8, 24, 6, 3, 3), None, 120, None, "f16"),  # the differences need 9 bits
        ((np.int8, 24, 6, 3, 3), 6, None, 1, "f16"),  # a step for each input channel
    ],
)
def test_convolution(q, s, z, axis, form):
    dtype, *shape = q
    scale = scalar(0.02) if s is None else steps(s)
    zero = None if z is None else np.full(scale.shape, 0 if z == "zeros" else z, dtype)
    node, constants = restored(numbers_of_type(dtype, *shape), scale, zero, axis)
    model = model_of([node, helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (1, 6, 9, 8)}, ["y"], constants)
    graph = check_model(model, tolerance=1e-5 if form == "s8" else 1e-3)
    assert forms(graph) == [form]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolution(group, stride):
    """Steps of the output channels, which are those of each group."""
    node, constants = restored(numbers_of_type(np.int8, 16, 20, 2, 2), steps(20), None, 1)
    conv = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=group, strides=[stride, stride])
    graph = check_model(model_of([node, conv], {"x": (1, 16, 5, 6)}, ["y"], constants))
    assert set(forms(graph)) == {"s8"}


def test_one_dimension_depthwise_and_groups():
    first, a = restored(numbers_of_type(np.int8, 400, 8, 3), steps(400), None, 0, "a")
    second, b = restored(numbers_of_type(np.int8, 400, 1, 3), steps(400, 3), None, 0, "b")
    third, c = restored(numbers_of_type(np.int8, 40, 100, 3), scalar(0.01), None, None, "c")
    nodes = [first, second, third]
    for source, weight, target, group in (("x", "a", "t", 1), ("t", "b", "u", 400), ("u", "c", "y", 4)):
        nodes.append(helper.make_node("Conv", [source, weight], [target], group=group))
    graph = check_model(model_of(nodes, {"x": (1, 8, 20)}, ["y"], a | b | c))
    assert forms(graph) == ["s8"] * 3


def test_scale_and_bias_behind_them_are_folded():
    node, constants = restored(numbers_of_type(np.int8, 24, 60, 1, 1), steps(24), None, 0)
    constants |= {"m": weights(1, 24, 1, 1), "b": weights(1, 24, 1, 1, seed=4)}
    nodes = [node, helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "m"], ["u"])]
    graph = check_model(
        model_of([*nodes, helper.make_node("Add", ["u", "b"], ["y"])], {"x": (1, 60, 4, 5)}, ["y"], constants)
    )
    assert (ops_of(graph).count("binary"), forms(graph)) == (0, ["s8"])


def test_convolutions_of_parts_are_merged_with_their_steps():
    first, constants = restored(numbers_of_type(np.int8, 20, 60, 1, 1), scalar(0.01), None, None)
    nodes = [first, helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Split", ["t"], ["x0", "x1"], axis=1)]
    for i in range(2):
        node, own = restored(numbers_of_type(np.int8, 20, 10, 3, 3, seed=i), steps(20, i), None, 0, f"w{i}")
        nodes += [node, helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"y{i}"])]
        constants |= own
    nodes.append(helper.make_node("Concat", ["y0", "y1"], ["c"], axis=1))
    nodes.append(helper.make_node("GlobalAveragePool", ["c"], ["y"]))
    graph = check_model(model_of(nodes, {"x": (1, 60, 6, 5)}, ["y"], constants))
    assert forms(graph) == ["s8", "s8"]


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("rows", [1, 12])
def test_products(turned, rows):
    """A step for each column, also behind a transposition and a reshape."""
    q = numbers_of_type(np.int8, 33, 70) if turned else numbers_of_type(np.int8, 70, 33)
    node, constants = restored(q.reshape(1, *q.shape), steps(33), None, 1 if turned else 2)
    constants |= {"shape": np.array(q.shape), "c": weights(33)}
    nodes = [node, helper.make_node("Reshape", ["w", "shape"], ["w2"])]
    gemm = helper.make_node("Gemm", ["x", "w2", "c"], ["y"], transB=turned)
    other = [helper.make_node("Transpose", ["w2"], ["w3"]), helper.make_node("MatMul", ["x", "w3"], ["z"])]
    nodes += [gemm, *(other if turned else [helper.make_node("MatMul", ["x", "w2"], ["z"])])]
    graph = check_model(model_of(nodes, {"x": (rows, 70)}, ["y", "z"], constants))
    assert forms(graph) == ["s8", "s8"]


@pytest.mark.parametrize("dtype", [F32, np.float16])
def test_a_cast_and_a_product_are_a_restoration(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {"q": numbers_of_type(np.int8, 70, 33), "s": steps(33).reshape(1, 33).astype(dtype)}
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=kind),
        helper.make_node("Mul", ["s", "f"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": (4, 70)}, ["y"], constants, 17, {"x": kind, "y": kind})
    feeds = {"x": weights(4, 70).astype(dtype)}
    assert forms(check_model(model, feeds=feeds, tolerance=1e-5 if dtype is F32 else 4e-3)) == ["s8"]


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("zero", [None, 7])
def test_tables_are_gathered_before_they_are_widened(axis, zero):
    shape = (50, 24)
    scale = scalar(0.02) if axis is None else steps(shape[axis])
    zeros = None if zero is None else np.full(scale.shape, zero, np.int8)
    node, constants = restored(numbers_of_type(np.int8, *shape), scale, zeros, axis)
    model = model_of(
        [node, helper.make_node("Gather", ["w", "i"], ["y"])], {"i": (2, 3)}, ["y"], constants, 17,
        {"i": TensorProto.INT64},
    )  # fmt: skip
    graph = check_model(model, feeds={"i": np.array([[0, 49, 7], [7, 30, -1]])})
    assert sum(weight.nbytes for weight in graph.weights) < 4 * np.prod(shape) / 2


@pytest.mark.parametrize("per", ["tensor", "column"])
def test_products_of_integers(per):
    zero = np.int8(3) if per == "tensor" else numbers_of_type(np.int8, 33)
    constants = {"b": numbers_of_type(np.int8, 20, 33), "za": np.uint8(11), "zb": zero}
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    model = model_of([node], {"a": (5, 20)}, ["y"], constants, 17, {"a": TensorProto.UINT8, "y": TensorProto.INT32})
    assert forms(check_model(model, feeds={"a": numbers_of_type(np.uint8, 5, 20)}, tolerance=0)) == ["f16"]


def test_a_zero_point_for_each_row():
    constants = {"b": numbers_of_type(np.int8, 20, 7), "za": numbers_of_type(np.uint8, 5)}
    node = helper.make_node("MatMulInteger", ["a", "b", "za"], ["y"])
    model = model_of([node], {"a": (5, 20)}, ["y"], constants, 17, {"a": TensorProto.UINT8, "y": TensorProto.INT32})
    graph, a = load(model), numbers_of_type(np.uint8, 5, 20, seed=6)
    want = (a.astype(int) - constants["za"].reshape(5, 1)) @ constants["b"].astype(int)
    np.testing.assert_array_equal(run_on_core(graph, {"a": a})["y"], want)


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_convolution(per_channel):
    scale = steps(6) if per_channel else scalar(0.02)
    constants = {
        "sx": scalar(0.01), "zx": np.uint8(100), "w": numbers_of_type(np.int8, 6, 4, 3, 3), "sw": scale,
        "zw": np.zeros(scale.shape, np.int8), "sy": scalar(0.2), "zy": np.uint8(128),
        "b": np.arange(-300, 300, 100, dtype=np.int32),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=[1, 1, 1, 1])
    types = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    model = model_of([node], {"x": (1, 4, 6, 5)}, ["y"], constants, 17, types)
    feeds = {"x": numbers_of_type(np.uint8, 1, 4, 6, 5)}
    assert forms(check_model(model, feeds=feeds, tolerance=0.005)) == ["conv_u8"]  # one step where a half is rounded


def halves(*shape, seed=1):
    return weights(*shape, seed=seed).astype(np.float16)


def half_model():
    """Convolution, normalisation, a comparison, a product, a table: all float16."""
    constants = {
        "w": halves(24, 6, 3, 3), "scale": halves(24), "bias": halves(24), "mean": halves(24), "table": halves(9, 24),
        "variance": np.abs(halves(24)) + np.float16(0.5), "m": halves(24, 5), "tiny": np.float16(0.1),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "variance"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gather", ["table", "i"], ["e"]),
        helper.make_node("Add", ["d", "e"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
        helper.make_node("Greater", ["y", "tiny"], ["z"]),
        helper.make_node("Cast", ["y"], ["single"], to=TensorProto.FLOAT),
    ]
    half = TensorProto.FLOAT16
    types = {"x": half, "y": half, "z": TensorProto.BOOL, "i": TensorProto.INT64, "f": half}
    return model_of(nodes, {"x": (1, 6, 9, 8), "i": (1,)}, ["y", "z", "single", "f"], constants, 17, types)


def half_feeds():
    return {"x": halves(1, 6, 9, 8, seed=7), "i": np.array([4])}


def test_halves_are_stored_and_computed_in_float32():
    graph = load(half_model())
    assert forms(graph) == ["f16", "f16"]
    model = half_model()
    want = expected(model, half_feeds())
    assert [str(want[name].dtype) for name in want] == ["float16", "bool", "float32", "float16"]
    check_model(model, feeds=half_feeds(), tolerance=4e-3)


def test_halves_through_a_session(tmp_path):
    path = tmp_path / "half.onnx"
    path.write_bytes(half_model().SerializeToString())
    with open_for_tests(flexnn.compile(str(path)), poison=True) as session:
        got = session.run(None, half_feeds())
    for mine, theirs in zip(got, expected(half_model(), half_feeds()).values(), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine.astype(F32), theirs.astype(F32), rtol=0, atol=4e-3 * np.abs(theirs).max())


def test_large_factors_make_floats_of_halves():
    """A half would overflow."""
    constants = {"w": halves(20, 6, 1, 1), "m": np.full((1, 20, 1, 1), 6e4, np.float16)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "m"], ["u"])]
    nodes += [helper.make_node("Cast", ["u"], ["y"], to=TensorProto.FLOAT)]
    model = model_of(nodes, {"x": (1, 6, 3, 3)}, ["y"], constants, 17, {"x": TensorProto.FLOAT16})
    graph = load(model)
    assert forms(graph) == ["f32"]
    list(graph.weights[next(n.weight for n in graph.nodes if n.weight >= 0)].panels)


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [("ConvInteger", ["x", "w"]), ("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"])],
)
def test_weights_that_are_computed_are_named(operator, inputs):
    constants = {"s": scalar(0.1), "z": np.uint8(3)} if operator == "QLinearConv" else {}
    types = {"x": TensorProto.UINT8, "w": TensorProto.UINT8, "y": TensorProto.UINT8}
    types["y"] = TensorProto.INT32 if operator == "ConvInteger" else TensorProto.UINT8
    model = model_of(
        [helper.make_node(operator, inputs, ["y"])], {"x": (1, 4, 6, 5), "w": (3, 4, 2, 2)}, ["y"], constants, 17, types
    )
    with pytest.raises(GraphError, match=r"its weight \(input 'w'\) is computed"):
        load(model)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("block", [32, 64, 16])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_steps_in_blocks(axis, block, has_zeros):
    """Blocks along what a product adds up are stored as they are; others, and zeros of 8 bits, as halves."""
    shape = (128, 48)
    count = [-(-d // block) if i == axis else d for i, d in enumerate(shape)]
    constants = {"q": numbers_of_type(np.int8, *shape), "s": steps(count[0] * count[1]).reshape(count)}
    if has_zeros:
        constants["z"] = numbers_of_type(np.int8, *count, seed=5)
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["w"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    exact = axis == 0 and not has_zeros
    graph = check_model(model_of(nodes, {"x": (3, 128)}, ["y"], constants, opset=21), tolerance=2e-5 if exact else 2e-3)
    assert forms(graph) == [("s8b16f" if block == 16 else "s8bf") if exact else "f16"]


def test_few_bits_are_stored_once(tmp_path):
    """Open shapes, too: the artifact holds the bits that the model holds, and neither halves nor floats beside them."""
    n, k = 512, 1024
    packed = numbers_of_type(np.uint8, n, k // 32, 16)
    node = helper.make_node(
        "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4, block_size=32
    )
    model = model_of([node], {"x": (2, k)}, ["y"], {"q": packed, "s": steps(n * k // 32)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for rows in (None, "rows"):
        if rows is not None:
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = rows
            model.graph.output[0].type.tensor_type.ClearField("shape")
        path = tmp_path / "net.onnx"
        path.write_bytes(model.SerializeToString())
        artifact = flexnn.compile(str(path))
        held = n * k * 5 / 8 + 4 * n
        assert held < (tmp_path / "net.flexnn").stat().st_size < held + 64 * 1024
        x = weights(1, k)
        with flexnn.Session(artifact) as session:
            if rows:
                (y,) = session.run(None, {"x": x})
                assert y.shape == (1, n)
