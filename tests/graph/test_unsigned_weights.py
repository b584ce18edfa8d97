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
from flexnn.graph import load_model

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
    [({}, 2), ({"strides": [2, 2]}, 2), ({"dilations": [2, 1]}, 2), ({"auto_pad": "VALID"}, 2), ({"pads": [1] * 4}, 0)],
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
