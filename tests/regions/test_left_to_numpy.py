"""Layers that numpy computes are named: when compiling, opening and planning."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.graph.model import ModelNode
from flexnn.regions.left import NAME_MAX, TEXT_MAX, TOLD, Left, told
from tests.support.regions import F32, compiled, graph_of, model_of, value


def saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, np.ndarray],
    opset: int = 19,
) -> str:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(list(nodes), "g", ports, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return str(path)


def unreached(path: Path, layers: int = 1, side: int = 64) -> str:
    """A model that takes x with five more rows than z, which nothing in it says: no sampled shape comes to its products
    behind the sum.
    """
    nodes = [helper.make_node("Slice", ["x", "five", "end", "one"], ["s"]), helper.make_node("Add", ["s", "z"], ["h0"])]
    for i in range(layers):
        last = "y" if i == layers - 1 else f"h{i + 1}"
        nodes.append(helper.make_node("MatMul", [f"h{i}", "w"], [last], name=f"product{i}"))
    constants = {"five": np.array([5]), "end": np.array([1 << 30]), "one": np.array([1])}
    constants["w"] = np.ones((side, side), np.float32)
    return saved(path, nodes, {"x": [1, "n", side], "z": [1, "m", side]}, constants)


def bent(path: Path, side: int = 24) -> str:
    """A model with an operator that no kernel computes."""
    nodes = [helper.make_node("DeformConv", ["x", "w", "o"], ["y"], name="bent", pads=[1, 1, 1, 1])]
    constants = {"w": np.ones((8, 8, 3, 3), np.float32), "o": np.zeros((1, 18, side, side), np.float32)}
    return saved(path, nodes, {"x": [1, 8, side, side]}, constants)


def behind(path: Path, rows: int = 60, inner: int = 1200) -> str:
    """A model that multiplies weights by two inputs behind each other, as long together as a row of them."""
    nodes = [helper.make_node("Concat", ["a", "b"], ["ab"], axis=0), helper.make_node("MatMul", ["w", "ab"], ["y"])]
    constants = {"w": np.random.default_rng(0).standard_normal((3, rows // 3, inner)).astype(np.float32)}
    return saved(path, nodes, {"a": ["n", 1], "b": ["m", 1]}, constants)


def warned(call) -> list[str]:  # type: ignore[no-untyped-def]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if one.category is RuntimeWarning]


def test_compiling_names_layers_that_no_shape_reached(tmp_path: Path) -> None:
    path = unreached(tmp_path / "m.onnx", 5)
    (line,) = warned(lambda: flexnn.compile(path))
    assert line.startswith("numpy computes 5 layers")
    assert "MatMul 'product0', MatMul 'product1', MatMul 'product2' and 2 more" in line
    assert "--shape" in line
    assert "\n" not in line


def test_layers_that_a_shape_reached_are_not_named(tmp_path: Path) -> None:
    path = unreached(tmp_path / "m.onnx", 5)
    assert not warned(lambda: flexnn.compile(path, shapes={"x": (1, 12, 64), "z": (1, 7, 64)}))
    artifact = str(tmp_path / "m.flexnn")
    assert not warned(lambda: flexnn.Session(artifact, threads=1, profile="analytic").close())


def test_opening_and_planning_name_them_too(tmp_path: Path) -> None:
    path = unreached(tmp_path / "m.onnx")
    for name in (path, flexnn_of(path)):
        (line,) = warned(lambda name=name: flexnn.Session(name, threads=1, profile="analytic").close())
        assert line.startswith("numpy computes 1 layer,")
        assert "'product0'" in line


def flexnn_of(path: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return flexnn.compile(path)


def test_plans_name_what_their_shapes_leave(tmp_path: Path) -> None:
    artifact = flexnn_of(bent(tmp_path / "m.onnx"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = flexnn.plan(artifact, threads=1, profile="analytic")
    assert "slow     numpy computes 1 layer, many times slower than a kernel would: DeformConv 'bent'" in plan.summary()
    (row,) = plan.describe()["left_to_numpy"]
    assert row == {"layer": "DeformConv 'bent'", "why": "FlexNN has no kernel for these operators"}


def test_the_command_says_one_line_on_standard_error(tmp_path: Path) -> None:
    path = bent(tmp_path / "m.onnx")
    command = [sys.executable, "-P", "-m", "flexnn", "compile", path, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("note: numpy computes 1 layer,")
    assert "numpy computes" not in done.stdout
    command = [sys.executable, "-P", "-m", "flexnn", "plan", str(tmp_path / "m.flexnn"), "--json", "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == 1
    assert json.loads(done.stdout)["left_to_numpy"]


@pytest.mark.parametrize("make", [lambda path: bent(path, 4), lambda path: unreached(path, side=8)])
def test_small_operators_make_no_noise(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    path = make(tmp_path / "m.onnx")
    assert not warned(lambda: flexnn.compile(path))


def test_light_operators_make_no_noise(tmp_path: Path) -> None:
    """numpy computes NonZero, and what nothing else takes, always."""
    nodes = [helper.make_node("Det", ["x"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["n", 80, 80]}, {})
    assert not warned(lambda: flexnn.compile(path))


def test_a_line_stays_short() -> None:
    long = ModelNode("Conv", "x" * 5000, [], output=["y"])
    line = told([Left(long, "a reason"), *(Left(long, f"Conv {i}" * 90) for i in range(50))])
    assert len(line) <= TEXT_MAX
    assert "x" * NAME_MAX not in line
    assert told([]) == ""
    many = told([Left(ModelNode("Conv", f"c{i}", [], output=["y"]), f"Conv node 'c{i}': why") for i in range(9)])
    assert many.endswith(f"'c2' and {9 - TOLD} more (why)")


def test_what_a_file_says_of_its_layers_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are an author's, and an artifact may be anybody's."""
    monkeypatch.setattr("flexnn.open_contents.told", lambda found: "\x1b[31m red")
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = model_of(graph_of(nodes, [value("x", F32, ["n", 2])], [value("y", F32, ["n", 2])]))
    with pytest.warns(RuntimeWarning, match=r"^\\x1b\[31m red$"):
        path = compiled(tmp_path, model)
    with pytest.warns(RuntimeWarning, match=r"^\\x1b\[31m red$"):
        flexnn.Session(path).close()


def test_inputs_have_the_sizes_that_weights_multiply(tmp_path: Path) -> None:
    """They are stored once: shapes that do not bind read them, too, but no run will."""
    path, artifact = behind(tmp_path / "m.onnx"), tmp_path / "m.flexnn"
    (w,) = (numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer)
    assert warned(lambda: flexnn.compile(path, artifact)) == []
    assert artifact.stat().st_size < 1.5 * w.nbytes
    with flexnn.Session(artifact) as session:
        random = np.random.default_rng(1)
        for n in (600, 1, 1150):
            feeds = {"a": random.random((n, 1), np.float32), "b": random.random((1200 - n, 1), np.float32)}
            (y,) = session.run(None, feeds)
            np.testing.assert_allclose(y, w @ np.concatenate([feeds["a"], feeds["b"]]), rtol=1e-4, atol=1e-4)
