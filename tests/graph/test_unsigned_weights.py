"""Integers multiplied by weights without a sign, whose few weights beyond 8 bits get input channels of their own:
sums are those of int64 arithmetic, bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.graph import load_model, load_onnx

U8 = TensorProto.UINT8


def weights(shape: tuple[int, ...], zero: Any, beyond: int, axis: int) -> np.ndarray:
    """Weights around their zero point, and in so many channels of ``axis`` some at both ends of their type."""
    rng = np.random.default_rng(beyond)
    made = np.clip(np.rint(rng.standard_normal(shape) * 25 + zero), 5, 245).astype(np.uint8)
    ends = np.moveaxis(made, axis, 0)
    for channel in rng.permutation(shape[axis])[:beyond]:
        flat = ends[channel].reshape(-1)
        flat[rng.integers(flat.size)], flat[rng.integers(flat.size)] = 0, 255
        ends[channel] = flat.reshape(ends[channel].shape)
    return made


def model(op: str, w: np.ndarray, zero: np.ndarray, shape: list[Any], **attrs: Any) -> onnx.ModelProto:
    """The sums, and what dynamic quantisation makes of them."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["bytes", "step", "middle"]),
        helper.make_node(op, ["bytes", "w", "middle", "zero"], ["sums"], name="product", **attrs),
        helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["step", "steps"], ["both"]),
        helper.make_node("Mul", ["floats", "both"], ["y"]),
    ]
    outputs = [
        helper.make_tensor_value_info(n, t, None) for n, t in (("bytes", 2), ("middle", 2), ("sums", 6), ("y", 1))
    ]
    constants = {"w": w, "zero": zero, "steps": np.float32(0.02)}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def channels_of_weights(path: Path, axis: int) -> int:
    """Input channels of the product's weights, as imported."""
    graph = load_model(str(path)).graph
    (node,) = (n for n in graph.nodes if n.op_type in ("MatMulInteger", "ConvInteger"))
    assert node.name == "product"
    return graph.constants[node.input[1]].shape[axis]


@pytest.mark.parametrize("rows", [1, 5, 24])
@pytest.mark.parametrize(
    ("zero", "beyond", "appended"),
    [
        (119, 3, 3),
        (119, 0, 0),
        (137, 8, 8),
        (119, 9, 0),
        (1, 2, 0),
        (200, 1, 1),
        (128, 4, 0),
        (0, 0, 0),
        ("each", 3, 3),
    ],
)
def test_matrices(zero: Any, beyond: int, appended: int, rows: int, tmp_path: Path) -> None:
    middles = np.full(40, 119) + np.arange(40) % 7 - 3 if zero == "each" else np.asarray(zero)
    w = weights((64, 40), middles, beyond, 0)
    path = tmp_path / "m.onnx"
    path.write_bytes(model("MatMulInteger", w, middles.astype(np.uint8), ["n", 64]).SerializeToString())
    if zero != 1:  # weights that are clipped at 5 lie beyond what is appended
        assert channels_of_weights(path, 0) == 64 + appended
    x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
    with flexnn.Session(path, threads=2) as session:
        q, middle, sums, y = session.run(None, {"x": x})
    exact = (q.astype(np.int64) - middle) @ (w.astype(np.int64) - middles)
    np.testing.assert_array_equal(sums, exact)
    np.testing.assert_array_equal(y, onnxruntime.InferenceSession(path).run(["y"], {"x": x})[0])


@pytest.mark.parametrize(
    ("attrs", "appended"),
    [({}, 2), ({"strides": [2, 2]}, 2), ({"dilations": [2, 1]}, 2), ({"auto_pad": "VALID"}, 2), ({"pads": [1] * 4}, 2)],
)
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions(kernel: int, attrs: dict[str, Any], appended: int, tmp_path: Path) -> None:
    w = weights((20, 24, kernel, kernel), 119, 2, 1)
    path = tmp_path / "m.onnx"
    proto = model("ConvInteger", w, np.asarray(119, np.uint8), [1, 24, "h", 9], kernel_shape=[kernel] * 2, **attrs)
    path.write_bytes(proto.SerializeToString())
    assert channels_of_weights(path, 1) == 24 + appended
    peer = onnxruntime.InferenceSession(path)
    with flexnn.Session(path, threads=2) as session:
        for height in (7, 12):
            x = np.random.default_rng(height).standard_normal((1, 24, height, 9)).astype(np.float32)
            for got, want in zip(session.run(None, {"x": x}), peer.run(None, {"x": x}), strict=True):
                np.testing.assert_array_equal(got, want)


def test_groups_keep_their_weights(tmp_path: Path) -> None:
    w = weights((24, 1, 3, 3), 119, 1, 0)
    path = tmp_path / "m.onnx"
    proto = model("ConvInteger", w, np.asarray(119, np.uint8), [1, 24, 8, 9], kernel_shape=[3, 3], group=24)
    path.write_bytes(proto.SerializeToString())
    assert channels_of_weights(path, 1) == 1


def rounded(kind: str, w: np.ndarray, zero: np.ndarray, shape: list[Any], **attrs: Any) -> onnx.ModelProto:
    """A convolution with constant steps: QLinearConv, or Conv of what is restored, rounded again."""
    steps = np.full(zero.shape, 0.02, np.float32) * (1 + np.arange(zero.size).reshape(zero.shape) % 3)
    bias = np.arange(w.shape[0], dtype=np.int32) * 7
    constants = {"sx": np.float32(0.03), "zx": np.uint8(121), "w": w, "sw": steps.astype(np.float32), "zw": zero}
    constants |= {"sy": np.float32(0.25), "zy": np.uint8(117), "b": bias}
    restored = {"x": ("q", "sx", "zx", None), "v": ("w", "sw", "zw", 0), "c": ("b", "sb", "zb", 0)}
    if kind == "QLinearConv":
        inputs = ["q", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
        nodes = [helper.make_node("QLinearConv", inputs, ["y"], name="product", **attrs)]
    else:
        constants |= {"sb": np.float32(0.03) * constants["sw"], "zb": np.zeros(zero.shape, np.int32)}
        nodes = [
            helper.make_node(
                "DequantizeLinear", [*names], [to], **({} if axis is None or not zero.ndim else {"axis": 0})
            )
            for to, (*names, axis) in restored.items()
        ]
        nodes.append(helper.make_node("Conv", ["x", "v", "c"], ["f"], name="product", **attrs))
        nodes.append(helper.make_node("QuantizeLinear", ["f", "sy", "zy"], ["y"]))
    given, result = (helper.make_tensor_value_info(n, U8, s) for n, s in (("q", shape), ("y", None)))
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", ["QLinearConv", "Conv"])
@pytest.mark.parametrize(
    ("attrs", "groups", "zero", "beyond", "op"),
    [
        ({"pads": [1] * 4}, 1, 119, 2, "conv_u8"),
        ({"pads": [1] * 4, "strides": [2, 2]}, 1, 140, 0, "conv_u8"),
        ({}, 1, "each", 3, "conv_u8"),
        ({"auto_pad": "SAME_UPPER"}, 1, 119, 1, "conv_u8"),
        ({}, 1, 119, 9, "conv"),
        ({"group": 24}, 24, 119, 1, "dwconv"),
    ],
)
def test_convolutions_with_constant_steps(
    kind: str, attrs: dict[str, Any], groups: int, zero: Any, beyond: int, op: str, tmp_path: Path
) -> None:
    """They were computed in float32, by halves; padded bytes of appended channels are zero points, too."""
    middles = np.full(24, 119) + np.arange(24) % 7 - 3 if zero == "each" else np.asarray(zero)
    at = middles.reshape(-1, 1, 1, 1) if zero == "each" else middles
    w = weights((24, 24 // groups, 3, 3), at, beyond, 0 if groups > 1 else 1)
    path = tmp_path / "m.onnx"
    kernel = {"kernel_shape": [3, 3], **attrs}
    path.write_bytes(rounded(kind, w, middles.astype(np.uint8), [1, 24, "h", 9], **kernel).SerializeToString())
    graph = load_onnx(str(path), {"q": (1, 24, 7, 9)})
    assert [node.op for node in graph.nodes if "conv" in node.op] == [op]
    peer = onnxruntime.InferenceSession(path)
    with flexnn.Session(path, threads=2) as session:
        for height in (7, 12):
            q = np.random.default_rng(height).integers(0, 256, (1, 24, height, 9)).astype(np.uint8)
            (got,), (want,) = session.run(None, {"q": q}), peer.run(None, {"q": q})
            assert 10 < want.std() < 127
            assert np.abs(got.astype(int) - want).max() <= (kind == "Conv")
            assert np.mean(got != want) < (1e-3 if op == "conv_u8" else 2e-2)  # others by halves
