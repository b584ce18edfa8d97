"""Quantised operators through the core, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from tests.support.compare import check_model, model_of, numbers_of_type, ops_of, weights

F32 = np.float32
TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


def numbers(*shape, dtype=np.uint8):
    return numbers_of_type(dtype, *shape)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_there_and_back(dtype, axis):
    shape = (2, 3, 4)
    n = 1 if axis is None else shape[axis]
    scale = np.linspace(0.01, 0.05, n).astype(F32).reshape(() if axis is None else -1)
    zero = numbers(n, dtype=dtype).reshape(scale.shape)
    attrs = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
    ]
    types = {"q": TYPES[dtype]}
    check_model(model_of(nodes, {"x": shape}, ["y", "q"], {"s": scale, "z": zero}, 17, types))


def test_between_channels_last_operators():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["u"]),
        helper.make_node("Conv", ["u", "w"], ["y"]),
    ]
    constants = {"w": weights(4, 4, 3, 3), "s": F32(0.03), "z": np.uint8(120)}
    check_model(model_of(nodes, {"x": (1, 4, 7, 8)}, ["y"], constants), tolerance=2e-2)


def test_dynamic_quantisation():
    types = {"q": TensorProto.UINT8, "z": TensorProto.UINT8}
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    for low, high in ((-2.0, 2.0), (1.0, 2.0), (-3.0, -1.0), (0.0, 0.0)):
        feeds = {"x": np.random.default_rng(1).uniform(low, high, (3, 50)).astype(F32)}
        check_model(model_of([node], {"x": (3, 50)}, ["q", "s", "z"], {}, 17, types), feeds=feeds)


def test_dynamic_quantisation_of_constant_zeros():
    types = {"q": TensorProto.UINT8, "z": TensorProto.UINT8}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["c"], ["q", "scale", "z"]),
        helper.make_node("Mul", ["x", "scale"], ["s"]),
    ]
    check_model(model_of(nodes, {"x": (3,)}, ["q", "s", "z"], {"c": np.zeros((3, 5), F32)}, 17, types))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_integer_products(dtype):
    types = {"a": TensorProto.UINT8, "y": TensorProto.INT32}
    constants = {"b": numbers(20, 7, dtype=dtype), "za": np.uint8(11), "zb": dtype(3)}
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    check_model(model_of([node], {"a": (2, 5, 20)}, ["y"], constants, 17, types), feeds={"a": numbers(2, 5, 20)})


@pytest.mark.parametrize("group", [1, 2])
def test_integer_convolution(group):
    types = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
    constants = {"w": numbers(6, 4 // group, 3, 3), "zx": np.uint8(11), "zw": np.uint8(3)}
    node = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], pads=[1, 1, 1, 1], group=group)
    check_model(model_of([node], {"x": (1, 4, 6, 5)}, ["y"], constants, 17, types), feeds={"x": numbers(1, 4, 6, 5)})


def test_quantised_product():
    types = {"a": TensorProto.UINT8, "y": TensorProto.UINT8}
    constants = {"sa": F32(0.01), "za": np.uint8(100), "b": numbers(9, 6), "sb": F32(0.02), "zb": np.uint8(90)}
    constants |= {"sy": F32(0.05), "zy": np.uint8(128)}
    node = helper.make_node("QLinearMatMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"])
    check_model(
        model_of([node], {"a": (4, 9)}, ["y"], constants, 17, types), feeds={"a": numbers(4, 9)}, tolerance=0.01
    )


def _restored_by_weights(scale):
    """Nodes and constants: bytes restored by ``scale``, turned, times restored weights of 8 bits."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", scale, "zero"], ["x"]),
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]),
        helper.make_node("DequantizeLinear", ["w", "steps"], ["weights"], axis=1),
        helper.make_node("MatMul", ["turned", "weights"], ["sums"]),
        helper.make_node("Add", ["sums", "bias"], ["y"]),
    ]
    constants = {"w": numbers(70, 40, dtype=np.int8), "steps": np.linspace(0.01, 0.03, 40).astype(F32)}
    return nodes, constants | {"bias": weights(40)}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_restored_bytes_are_multiplied_as_such(dtype):
    nodes, constants = _restored_by_weights("scale")
    constants |= {"scale": F32(0.05), "zero": dtype(3)}
    model = model_of(nodes, {"q": (3, 9, 70)}, ["y"], constants, 17, {"q": TYPES[dtype]})
    graph = check_model(model, feeds={"q": numbers(3, 9, 70, dtype=dtype)}, tolerance=1e-5)
    assert [op for op in ops_of(graph) if op.startswith("conv")] == ["conv_u8"]
    assert not [node for node in graph.nodes if node.op == "binary"]


def test_bytes_of_a_scale_that_a_run_knows_are_multiplied_as_such():
    nodes, constants = _restored_by_weights("scale")
    quantise = helper.make_node("DynamicQuantizeLinear", ["x0"], ["q", "scale", "zero"])
    model = model_of([quantise, *nodes], {"x0": (3, 9, 70)}, ["y"], constants, 17)
    graph = check_model(model, tolerance=1e-4)
    assert [op for op in ops_of(graph) if op.startswith("conv")] == ["conv_u8"]


def _dynamically(x, y, weight, **attrs):
    """Nodes and constants of a convolution as onnxruntime's dynamic quantisation writes it."""
    names = [f"{y}.{name}" for name in ("bytes", "step", "zero", "sums", "floats", "both", "scaled")]
    quantised, step, zero, sums, floats, both, scaled = names
    constants = {f"{y}.w": weight, f"{y}.wz": np.int8(0), f"{y}.ws": F32(0.02), f"{y}.b": np.ones((1, 1, 1, 1), F32)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", [x], [quantised, step, zero]),
        helper.make_node("ConvInteger", [quantised, f"{y}.w", zero, f"{y}.wz"], [sums], **attrs),
        helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
        helper.make_node("Mul", [step, f"{y}.ws"], [both]),
        helper.make_node("Mul", [floats, both], [scaled]),
        helper.make_node("Add", [scaled, f"{y}.b"], [y]),
    ]
    return nodes, constants


def test_padded_and_depthwise_convolutions_and_sums_with_measured_steps():
    first, constants = _dynamically("x0", "a", numbers(24, 24, 3, 3, dtype=np.int8), pads=[1] * 4)
    second, more = _dynamically("a", "b", numbers(24, 1, 3, 3, dtype=np.int8), pads=[1] * 4, group=24)
    third, most = _dynamically("b", "c", numbers(24, 24, 1, 1, dtype=np.int8))
    nodes = [
        *first,
        *second,
        *third,
        helper.make_node("Add", ["c", "a"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    model = model_of(nodes, {"x0": (1, 24, 9, 8)}, ["y"], constants | more | most, 17)
    graph = check_model(model, tolerance=1e-4)
    assert ops_of(graph).count("conv_u8") == 2
    assert ops_of(graph).count("dwconv_u8") == 1
    assert not {"binary", "unary", "cast", "reduce"} & set(ops_of(graph))


def test_dynamic_quantisation_needs_no_more_than_floats(tmp_path):
    """Maps of which the range is sought are made twice, in bands of rows, as those of a gate are."""
    chain, constants, before = [], {}, "x0"
    for i, (cin, cout, size) in enumerate([(3, 64, 1), (64, 8, 3), (8, 64, 1), (64, 8, 3)]):
        w = numbers(cout, cin, size, size, dtype=np.int8)
        nodes, more = _dynamically(before, f"v{i}", w, pads=[size // 2] * 4)
        chain, constants, before = chain + nodes, constants | more, f"v{i}"
    path = tmp_path / "m.onnx"
    onnx.save(model_of(chain, {"x0": (1, 3, 128, 128)}, [before], constants, 17), path)
    widest = 4 * 64 * 128 * 128
    assert flexnn.plan(path, threads=1).minimum_memory < 1.25 * widest


def _wide(cin, cout):
    """Weights of which some of a few input channels are beyond 8 bits with a sign."""
    made = np.clip(numbers(cin, cout), 5, 245)
    beyond = [cin // 2, cin - 1] if cin >= 16 else [2] if cin >= 8 else []
    made[beyond, 0] = 255
    return made


@pytest.mark.parametrize("is_wide", [False, True])
def test_tokens_of_a_map_are_that_map_to_products_of_bytes(tmp_path, is_wide):
    """onnxruntime's preparation makes rows of pixels before each product: bands go through all the same. So they do
    through the channels that wide weights append, behind which the bytes are rounded right into their places.
    """
    nodes, constants, before = [], {"wz": np.uint8(119) if is_wide else np.int8(0), "ws": F32(0.02)}, "x0"
    for i, (cin, cout) in enumerate([(3, 64), (64, 8), (8, 64), (64, 8)]):
        steps = [f"v{i}.{name}" for name in ("bytes", "step", "zero", "sums", "floats", "both", "y")]
        quantised, step, zero, sums, floats, both, y = steps
        nodes += [
            helper.make_node("Reshape", [before, f"tokens{i}"], [f"t{i}"]),
            helper.make_node("DynamicQuantizeLinear", [f"t{i}"], [quantised, step, zero]),
            helper.make_node("MatMulInteger", [quantised, f"w{i}", zero, "wz"], [sums]),
            helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
            helper.make_node("Mul", [step, "ws"], [both]),
            helper.make_node("Mul", [floats, both], [y]),
            helper.make_node("Reshape", [y, f"map{i}"], [f"v{i}"]),
        ]
        constants |= {f"tokens{i}": np.array([-1, cin]), f"map{i}": np.array([1, 128, 128, cout])}
        constants |= {f"w{i}": _wide(cin, cout) if is_wide else numbers(cin, cout, dtype=np.int8)}
        before = f"v{i}"
    model = model_of(nodes, {"x0": (1, 128, 128, 3)}, [before], constants, 17)
    graph = check_model(model, tolerance=1e-4)
    assert {graph.tensors[node.outputs[0]].shape[:3] for node in graph.nodes if node.op == "conv_u8"} == {(1, 128, 128)}
    assert ops_of(graph).count("copy") == (3 if is_wide else 0)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    widest = 4 * 64 * 128 * 128
    assert flexnn.plan(path, threads=1).minimum_memory < 1.25 * widest


def test_rows_of_a_table_in_bytes_are_restored_at_once():
    nodes = [
        helper.make_node("DequantizeLinear", ["table", "scale", "zero"], ["rows"]),
        helper.make_node("Gather", ["rows", "i"], ["y"]),
    ]
    constants = {"table": numbers(50, 12), "scale": F32(0.02), "zero": np.uint8(120)}
    model = model_of(nodes, {"i": (7,)}, ["y"], constants, 17, {"i": TensorProto.INT64})
    graph = check_model(model, feeds={"i": np.arange(7) * 5})
    assert ops_of(graph) == ["gather", "quantize"]


def test_bytes_that_others_read_too_stay_right():
    nodes, constants = _restored_by_weights("scale")
    constants |= {"scale": F32(0.05), "zero": np.uint8(130)}
    nodes += [
        helper.make_node("MatMul", ["turned", "weights"], ["again"]),
        helper.make_node("Relu", ["turned"], ["z"]),
    ]
    model = model_of(nodes, {"q": (3, 9, 70)}, ["y", "again", "z"], constants, 17, {"q": TensorProto.UINT8})
    graph = check_model(model, feeds={"q": numbers(3, 9, 70)}, tolerance=1e-5)
    assert [op for op in ops_of(graph) if op.startswith("conv")] == ["conv_u8", "conv_u8"]
    assert len([node for node in graph.nodes if node.op == "quantize"]) == 1


def test_a_convolution_of_bytes_with_strides():
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["x"]),
        helper.make_node("DequantizeLinear", ["w", "steps"], ["weights"], axis=0),
        helper.make_node("Conv", ["x", "weights", "bias"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    constants = {"w": numbers(20, 9, 3, 3, dtype=np.int8), "steps": np.linspace(0.01, 0.03, 20).astype(F32)}
    constants |= {"bias": weights(20), "scale": F32(0.05), "zero": np.uint8(97)}
    model = model_of(nodes, {"q": (2, 9, 15, 17)}, ["y"], constants, 17, {"q": TensorProto.UINT8})
    graph = check_model(model, feeds={"q": numbers(2, 9, 15, 17)}, tolerance=1e-5)
    assert [op for op in ops_of(graph) if op.startswith("conv")] == ["conv_u8"]


@pytest.mark.parametrize("rows", [1, 9, 36, 37, 90])
@pytest.mark.parametrize("depth", [68, 71])
def test_few_and_many_rows_of_bytes(rows, depth):
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["x"]),
        helper.make_node("DequantizeLinear", ["w", "steps"], ["weights"], axis=1),
        helper.make_node("MatMul", ["x", "weights"], ["y"]),
    ]
    constants = {"w": numbers(depth, 40, dtype=np.int8), "steps": np.linspace(0.01, 0.03, 40).astype(F32)}
    constants |= {"scale": F32(0.05), "zero": np.uint8(97)}
    model = model_of(nodes, {"q": (rows, depth)}, ["y"], constants, 17, {"q": TensorProto.UINT8})
    graph = check_model(model, feeds={"q": numbers(rows, depth)}, tolerance=1e-5)
    assert [op for op in ops_of(graph) if op.startswith("conv")] == ["conv_u8"]
