"""Sizes that models ask of open dimensions, which compiling then samples (flexnn/regions/asked_sizes.py)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.graph import load_model
from flexnn.graph.ir import Array
from flexnn.graph.model_sources import unused_sources
from flexnn.regions.asked_sizes import NOTHING, Asked, asked_sizes

NODE = helper.make_node
RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32) / 8


def saved(
    path: Path, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Array], inputs: Mapping[str, str]
) -> str:
    """Save a model; its ``inputs``' dimensions are words of a text."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims.split()) for n, dims in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def asked(path: str, **sizes: int) -> Asked:
    """Return what a model asks. What its constants are needed for is left as it was."""
    model = load_model(path)
    before = len(unused_sources(model))
    found = asked_sizes(model, sizes)
    assert len(unused_sources(model)) == before
    return found


def frames(path: Path) -> str:
    """Save a model of frames of 80 bands in 3 channels, as exporters that know nothing of sizes write it."""
    nodes = [
        NODE("Mul", ["x", "scale"], ["m"]),
        NODE("Transpose", ["m"], ["t"], perm=[2, 0, 1]),
        NODE("Unsqueeze", ["t", "first"], ["u"]),
        NODE("Conv", ["u", "w"], ["c"]),
        NODE("MaxPool", ["c"], ["p"], kernel_shape=[1, 3], strides=[1, 3]),
        NODE("Transpose", ["p"], ["q"], perm=[0, 2, 3, 1]),
        NODE("Reshape", ["q", "rows"], ["r"]),
        NODE("MatMul", ["r", "v"], ["y"]),
    ]
    constants = {
        "scale": numbers(80, 3), "first": np.array([0]), "w": numbers(10, 3, 7, 3), "rows": np.array([-1, 260]),
        "v": numbers(260, 5),
    }  # fmt: skip
    return saved(path, nodes, constants, {"x": "n bands channels"})


def test_products_ask_for_columns_and_rows(tmp_path: Path) -> None:
    nodes = [NODE("MatMul", ["x", "w"], ["m"]), NODE("Relu", ["m"], ["r"]), NODE("MatMul", ["v", "r"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {"w": numbers(77, 8), "v": numbers(4, 51)}, {"x": "n k"})
    assert asked(path, n=1, k=64) == Asked({"k": 77, "n": 51}, {})


def test_what_a_recurrence_takes_is_asked_through_moves(tmp_path: Path) -> None:
    nodes = [NODE("Unsqueeze", ["x", "one"], ["u"]), NODE("LSTM", ["u", "w", "r"], ["y"], hidden_size=4)]
    constants = {"one": np.array([1]), "w": numbers(1, 16, 138), "r": numbers(1, 16, 4)}
    assert asked(saved(tmp_path / "m.onnx", nodes, constants, {"x": "n k"}), n=1, k=64) == Asked({"k": 138}, {})


def test_one_column_is_asked_by_a_product_alone(tmp_path: Path) -> None:
    """A sum with another input takes any size of one of them where the other's is 1: it asks for none."""
    path = saved(tmp_path / "m.onnx", [NODE("MatMul", ["x", "w"], ["y"])], {"w": numbers(1, 8)}, {"x": "n k"})
    assert asked(path, n=1, k=64) == Asked({"k": 1}, {})
    path = saved(tmp_path / "a.onnx", [NODE("Add", ["x", "z"], ["y"])], {}, {"x": "n k", "z": "n l"})
    assert asked(path, n=1, k=64, l=64) == NOTHING


def test_a_table_that_is_cut_to_a_size_asks_for_none(tmp_path: Path) -> None:
    """It has 40 rows, so 64 do not fit; fewer do."""
    nodes = [NODE("Shape", ["x"], ["s"]), NODE("Slice", ["s", "zero", "one"], ["n"])]
    nodes += [NODE("Slice", ["table", "zero", "n", "zero"], ["c"]), NODE("Mul", ["x", "c"], ["y"])]
    constants = {"zero": np.array([0]), "one": np.array([1]), "table": numbers(40, 8)}
    assert asked(saved(tmp_path / "m.onnx", nodes, constants, {"x": "n k"}), n=64, k=8) == Asked({"k": 8}, {})


def test_windows_ask_for_rows(tmp_path: Path) -> None:
    """Three windows of 5 rows want 13; whether the first dimension is a batch nobody can know."""
    nodes = [NODE("Unsqueeze", ["x", "axes"], ["t0"])]
    nodes += [NODE("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"]) for i in range(3)]
    nodes += [NODE("Relu", ["t3"], ["y"])]
    constants = {"axes": np.array([0, 1]), **{f"w{i}": numbers(3, 3 if i else 1, 5, 1) for i in range(3)}}
    path = saved(tmp_path / "m.onnx", nodes, constants, {"x": "n k"})
    found = asked(path, n=1, k=64)
    assert found.exact == {}
    assert 5 <= found.least["n"] <= 13
    assert asked(path, n=13, k=64) == NOTHING


def test_sizes_are_asked_through_windows_and_shapes(tmp_path: Path) -> None:
    """26 triples of bands remain, of 80 to 82: the product behind them cannot tell which, but the factors can."""
    path = frames(tmp_path / "m.onnx")
    assert asked(path, n=1, bands=64, channels=64) == Asked({"bands": 80, "channels": 3}, {"n": 7})
    model = onnx.load(path)
    del model.graph.node[0]
    model.graph.node[0].input[0] = "x"
    onnx.save(model, path)
    assert asked(path, n=1, bands=64, channels=64) == Asked({"bands": 80, "channels": 3}, {"n": 7})


@pytest.mark.parametrize("threads", [1, 2])
def test_models_run_natively_and_no_first_run_binds(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = frames(tmp_path / "m.onnx")
    other = ort.InferenceSession(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that numpy computes layers
        compiled = flexnn.compile(path)
    with flexnn.Session(compiled, threads=threads, profile="analytic") as session:
        monkeypatch.setattr("flexnn.regions.templates._with_trail", None)  # which binds
        for n in (200, 7, 350, 8, 41):
            x = numbers(n, 80, 3)
            (y,), (wanted,) = session.run(None, {"x": x}), other.run(None, {"x": x})
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
            assert session.statistics()["hosted_operators"] == {}


@pytest.mark.parametrize("seed", range(24))
def test_asked_sizes_bind(tmp_path: Path, seed: int) -> None:
    """Windows one after the other, and a product that takes what they leave of a size that nobody states."""
    random = np.random.default_rng(seed)
    rows, columns = int(random.integers(20, 60)), int(random.integers(30, 150))
    nodes, constants, shape = [NODE("Unsqueeze", ["x", "axes"], ["t0"])], {"axes": np.array([0, 1])}, [1, rows, columns]
    for i in range(int(random.integers(1, 4))):
        kernel, strides = random.integers(1, 4, 2).tolist(), random.integers(1, 3, 2).tolist()
        cin, name, following = shape[0], f"t{i}", f"t{i + 1}"
        if random.random() < 0.5:
            constants[f"w{i}"], shape[0] = numbers(4, cin, *kernel), 4
            nodes.append(NODE("Conv", [name, f"w{i}"], [following], strides=strides))
        else:
            nodes.append(NODE("MaxPool", [name], [following], kernel_shape=kernel, strides=strides))
        shape[1:] = [(d - k) // s + 1 for d, k, s in zip(shape[1:], kernel, strides, strict=True)]
    last = nodes[-1].output[0]
    constants |= {"flat": np.array([0, -1, shape[0] * shape[2]]), "v": numbers(shape[0] * shape[2], 5)}
    nodes += [NODE("Transpose", [last], ["p"], perm=[0, 2, 1, 3]), NODE("Reshape", ["p", "flat"], ["f"])]
    nodes += [NODE("MatMul", ["f", "v"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, constants, {"x": "n k"})
    found = asked(path, n=1, k=64)
    taken = {"n": rows, "k": 69} | found.exact
    (y,) = ort.InferenceSession(path).run(None, {"x": numbers(taken["n"], taken["k"])})
    assert prod(y.shape) == 5 * shape[1]


def test_numbers_beyond_64_bits(tmp_path: Path) -> None:
    """Compiling a damaged model ended in an OverflowError of numpy's."""
    nodes = [NODE("Reshape", ["x", "far"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {"far": np.array([1 << 40, 1 << 40, -1])}, {"x": "length"})
    assert asked(path, length=2) == NOTHING
