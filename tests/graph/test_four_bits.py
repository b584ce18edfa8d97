"""Constants of 4 bits: two in a byte, stored as such, and read by nothing that would take them for bytes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.graph.ir import GraphError
from tests.support.compare import load, run_on_core

F32 = np.float32
RNG = np.random.default_rng(6)
TYPES = {"u8": TensorProto.UINT4, "i8": TensorProto.INT4}


def packed(values: np.ndarray) -> bytes:
    """Two numbers in a byte, the first in its lower half."""
    flat = np.append(values.reshape(-1), [0] * (values.size % 2)).astype(np.int64) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8).tobytes()


def tensor(name: str, values: np.ndarray, kind: str, raw: bool = True) -> onnx.TensorProto:
    """A tensor of 4 bits, its bytes as such or as integers."""
    data = packed(values)
    field = {"raw_data": data} if raw else {"int32_data": list(data)}
    return TensorProto(name=name, data_type=TYPES[kind], dims=values.shape, **field)


def numbers(kind: str, *shape: int) -> np.ndarray:
    low = 0 if kind == "u8" else -8
    return RNG.integers(low, low + 16, shape)


def model(nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], scales: np.ndarray, rows: int, inputs: int):
    """y of x [rows, inputs]."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [rows, inputs]), ("y", None))]
    constants = [*tensors, onnx.numpy_helper.from_array(scales, "s")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def product(turned: bool = False) -> list[onnx.NodeProto]:
    moved = [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])] if turned else []
    return [*moved, helper.make_node("MatMul", ["x", "t" if turned else "w"], ["y"])]


def check(made: onnx.ModelProto, wide: np.ndarray) -> list[str]:
    """Run a product with ``wide``; return the forms of its panels."""
    graph = load(made)
    x = RNG.standard_normal([d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]).astype(F32)
    y = run_on_core(graph, {"x": x})["y"]
    want = x.astype(np.float64) @ wide.astype(np.float64)
    assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)
    return [node.attrs.get("wtype", node.op) for node in graph.nodes if node.weight >= 0]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("kind", ["u8", "i8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_blocks(axis: int, kind: str, zeros: bool, raw: bool) -> None:
    """A step for each 32 along an axis, and a zero point; the weights as they lie, or transposed."""
    shape = (96, 40) if axis == 0 else (40, 96)
    blocks = tuple(d // 32 if i == axis else d for i, d in enumerate(shape))
    q, z, s = numbers(kind, *shape), numbers(kind, *blocks), RNG.uniform(0.01, 0.02, blocks).astype(F32)
    tensors = [tensor("q", q, kind, raw)] + ([tensor("z", z, kind, raw)] if zeros else [])
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"][: 2 + zeros], ["w"], axis=axis, block_size=32)
    wide = (q - np.repeat(z, 32, axis) * zeros) * np.repeat(s, 32, axis).astype(F32)
    forms = check(model([node, *product(axis == 1)], tensors, s, 5, 96), wide if axis == 0 else wide.T)
    assert forms == ["q4mf" if zeros or kind == "u8" else "q4f"]


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_a_step_for_each_column(kind: str) -> None:
    """An odd number of numbers: half of the last byte is not used."""
    q, s, z = numbers(kind, 33, 25), RNG.uniform(0.01, 0.02, 25).astype(F32), numbers(kind, 25)
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1)
    made = model([node, *product()], [tensor("q", q, kind), tensor("z", z, kind)], s, 3, 33)
    graph = load(made)
    x = RNG.standard_normal((3, 33)).astype(F32)
    want = x @ ((q - z) * s).astype(F32)
    y = run_on_core(graph, {"x": x})["y"]
    assert np.linalg.norm(y - want) <= 1e-3 * np.linalg.norm(want)  # differences of unsigned ones may be halves


def test_numbers_that_are_moved_first() -> None:
    q, s = numbers("i8", 40, 64), RNG.uniform(0.01, 0.02, (2, 40)).astype(F32)
    nodes = [
        helper.make_node("Transpose", ["q"], ["qt"], perm=[1, 0]),
        helper.make_node("DequantizeLinear", ["qt", "s"], ["w"], axis=0, block_size=32),
        *product(),
    ]
    assert check(model(nodes, [tensor("q", q, "i8")], s, 4, 64), q.T * np.repeat(s, 32, 0)) == ["q4f"]


def test_large_ones_stay_in_the_file(tmp_path: Path) -> None:
    """Those beside the model, too; the artifact holds 4 bits and a step for each block."""
    q, s = numbers("i8", 512, 512), RNG.uniform(0.01, 0.02, (16, 512)).astype(F32)
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32)
    made = model([node, *product()], [tensor("q", q, "i8")], s, 2, 512)
    onnx.save(made, tmp_path / "whole.onnx")
    onnx.save(made, tmp_path / "beside.onnx", save_as_external_data=True, location="w.bin", size_threshold=1000)
    x, results = RNG.standard_normal((2, 512)).astype(F32), []
    for name in ("whole", "beside"):
        artifact = Path(flexnn.compile(tmp_path / f"{name}.onnx", tmp_path / f"{name}.flexnn"))
        assert artifact.stat().st_size < 512 * 512 * 5 // 8 + (64 << 10) + (512 << 10)
        with flexnn.Session(artifact, threads=1) as session:
            results.append(session.run(None, {"x": x})[0])
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], x @ (q * np.repeat(s, 32, 0)).astype(F32), rtol=1e-3, atol=1e-3)


def test_types_of_onnx_agree() -> None:
    """The order of the halves is that of onnx."""
    for kind, dtype in (("u8", ml_dtypes.uint4), ("i8", ml_dtypes.int4)):
        q = numbers(kind, 3, 5)
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor("q", q, kind)).astype(np.int64), q)
        assert onnx.numpy_helper.from_array(q.astype(dtype)).raw_data == packed(q)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([helper.make_node("QuantizeLinear", ["x", "s", "q"], ["r"], axis=1)], "has 4 bits"),
        ([helper.make_node("Shape", ["q"], ["r"])], "has 4 bits"),
        ([helper.make_node("Reshape", ["q", "i"], ["p"]), helper.make_node("Abs", ["p"], ["r"])], "Abs"),
    ],
)
def test_others_are_refused(nodes: list[onnx.NodeProto], said: str, tmp_path: Path) -> None:
    """Rounding to 4 bits would have to keep to their bounds."""
    tensors = [tensor("q", numbers("i8", 64), "i8"), onnx.numpy_helper.from_array(np.array([64]), "i")]
    last = helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)
    onnx.save(model([*nodes, last], tensors, np.full(64, 0.1, F32), 2, 64), tmp_path / "m.onnx")
    with pytest.raises(GraphError, match=said):
        flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")


def test_data_that_do_not_fit(tmp_path: Path) -> None:
    q = tensor("q", numbers("i8", 64, 8), "i8")
    q.raw_data += b"\0"
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1)
    onnx.save(model([node, *product()], [q], np.ones(8, F32), 1, 64), tmp_path / "m.onnx")
    with pytest.raises(GraphError, match="do not fit"):
        flexnn.compile(tmp_path / "m.onnx", tmp_path / "m.flexnn")
