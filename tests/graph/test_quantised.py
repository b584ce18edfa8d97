"""Quantised operators through the core, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.compare import check_model, model_of, numbers_of_type, weights

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
    for low, high in ((-2.0, 2.0), (1.0, 2.0), (-3.0, -1.0)):
        feeds = {"x": np.random.default_rng(1).uniform(low, high, (3, 50)).astype(F32)}
        check_model(model_of([node], {"x": (3, 50)}, ["q", "s", "z"], {}, 17, types), feeds=feeds)


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
