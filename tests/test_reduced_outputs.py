"""Outputs that are reduced when compiling: what they are, their names and types, what memory they spare, and what is
refused.
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
from flexnn.cli import main
from tests.support.compare import weights

CLASSES = 21
MARGIN = 1e-4
"""Difference below which two float32 runtimes need not agree on which of two elements is larger."""


def segmentation(size: int | str = 64, scale: int = 4, classes: int = CLASSES) -> onnx.ModelProto:
    """A map of classes that is resized at the end, where it is larger than all before it, and a second output."""
    constants = {
        "w0": weights(8, 3, 3, 3),
        "w1": weights(classes, 8, 1, 1),
        "scales": np.array([1, 1, scale, scale], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], strides=[scale, scale], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["small"]),
        helper.make_node("Resize", ["small", "", "scales"], ["y"], mode="linear"),
        helper.make_node("Sigmoid", ["y"], ["p"]),
        helper.make_node("GlobalAveragePool", ["p"], ["mean"]),
    ]
    ends = [size, size] if isinstance(size, int) else ["h", "w"]
    shapes = {"y": [1, classes, *ends], "p": [1, classes, *ends], "mean": [1, classes, 1, 1]}
    return made(nodes, {"x": [1, 3, *ends]}, shapes, constants)


def made(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any] | None],
    outputs: dict[str, list[Any] | None],
    constants: dict[str, np.ndarray] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "reduced",
        [helper.make_tensor_value_info(name, dtype, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, dims) for name, dims in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(model: onnx.ModelProto, folder: Path) -> str:
    path = str(folder / "model.onnx")
    onnx.save(model, path)
    return path


def compiled(model: onnx.ModelProto, folder: Path, **options: Any) -> str:
    return flexnn.compile(saved(model, folder), folder / "model.flexnn", **options)


def whole_of(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def runs(path: str, feed: dict[str, np.ndarray], **options: Any) -> tuple[list[tuple[str, str]], dict[str, np.ndarray]]:
    with flexnn.Session(path, threads=1, **options) as session:
        ports = session.get_outputs()
        arrays = session.run(None, feed)
        for port, array in zip(ports, arrays, strict=True):
            known = [d if isinstance(d, int) else size for d, size in zip(port.shape, array.shape, strict=True)]
            assert known == list(array.shape), port.name
    return [(port.name, port.type) for port in ports], dict(zip([p.name for p in ports], arrays, strict=True))


def assert_positions(positions: np.ndarray, whole: np.ndarray, axis: int, dtype: type) -> None:
    """Check that positions are of largest elements, the first of equal ones as far as runtimes agree on them."""
    assert positions.dtype == dtype
    assert positions.shape == whole.argmax(axis).shape
    found = np.take_along_axis(whole, np.expand_dims(positions.astype(np.int64), axis), axis)
    assert (whole.max(axis, keepdims=True) - found <= MARGIN).all()


def image(size: int = 64, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, size, size)).astype(np.float32)}


@pytest.mark.parametrize("size", [64, "open"])
def test_outputs_of_a_segmentation(size: int | str, tmp_path: Path) -> None:
    model = segmentation(size)
    path = compiled(model, tmp_path, reduce={"y": "argmax:1", "p": "threshold:0.6"})
    for given in (64,) if size == 64 else (64, 80, 64):
        whole = whole_of(model, image(given))
        ports, found = runs(path, image(given))
        assert ports == [("y", "tensor(uint8)"), ("p", "tensor(bool)"), ("mean", "tensor(float)")]
        assert_positions(found["y"], whole["y"], 1, np.uint8)
        apart = np.abs(whole["p"] - 0.6) > MARGIN
        assert found["p"].dtype == bool
        assert apart.mean() > 0.9
        assert (found["p"] == (whole["p"] > 0.6))[apart].all()
        np.testing.assert_allclose(found["mean"], whole["mean"], 1e-4, 1e-5)


@pytest.mark.parametrize("size", [256, "open"])
def test_the_whole_output_is_never_in_memory(size: int | str, tmp_path: Path) -> None:
    """The map takes 5.25 MiB; a plan that held it would take more than that for activations alone."""
    model = segmentation(size)
    del model.graph.output[1:], model.graph.node[4:]
    path, shapes = compiled(model, tmp_path, reduce={"y": "argmax:1"}), {"x": (1, 3, 256, 256)}
    given = shapes if size == "open" else {}
    map_bytes = CLASSES * 256 * 256 * 4
    smallest = flexnn.plan(path, threads=1, shapes=given).minimum_memory
    unreduced = flexnn.compile(saved(model, tmp_path), tmp_path / "whole.flexnn")
    whole = flexnn.plan(unreduced, threads=1, shapes=given).minimum_memory
    assert smallest < whole - 1.8 * map_bytes  # there are two sets of outputs
    plan = flexnn.plan(path, threads=1, shapes=given, memory=smallest)
    assert (plan.parts[0].plan if given else plan).arena_bytes < map_bytes / 2
    _, found = runs(path, image(256), memory=smallest)
    assert_positions(found["y"], whole_of(model, image(256))["y"], 1, np.uint8)


@pytest.mark.parametrize(
    ("dims", "axis", "dtype"),
    [
        ([2, 256, 3], 1, np.uint8),
        ([2, 257, 3], 1, np.int64),
        ([2, 5, 256], -1, np.uint8),
        ([2, "n", 3], -2, np.int64),
        ([300, 4], 0, np.int64),
        ([7], 0, np.uint8),
        (None, 1, np.int64),
        (None, -1, np.int64),
    ],
)
def test_types_of_positions(dims: list[Any] | None, axis: int, dtype: type, tmp_path: Path) -> None:
    model = made([helper.make_node("Neg", ["x"], ["y"])], {"x": dims}, {"y": dims}) if dims else branching()
    path = compiled(model, tmp_path, reduce={"y": f"argmax:{axis}"})
    shape = [d if isinstance(d, int) else 300 for d in dims or [2, 300, 4]]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    ports, found = runs(path, {"x": x})
    assert ports[0] == ("y", {np.uint8: "tensor(uint8)", np.int64: "tensor(int64)"}[dtype])
    assert_positions(found["y"], whole_of(model, {"x": x})["y"], axis, dtype)


def branching() -> onnx.ModelProto:
    """A branch makes the output, of a rank that nobody declares; another one reads it."""

    def branch(operator: str, name: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["x"], [name])
        return helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(name)])

    reader = helper.make_node("Neg", ["y"], ["minus"])
    other = helper.make_graph([reader], "other", [], [helper.make_empty_tensor_value_info("minus")])
    same = helper.make_graph(
        [helper.make_node("Identity", ["y"], ["i"])], "same", [], [helper.make_empty_tensor_value_info("i")]
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_above"]),
        helper.make_node("If", ["is_above"], ["y"], then_branch=branch("Neg", "a"), else_branch=branch("Abs", "b")),
        helper.make_node("If", ["is_above"], ["z"], then_branch=other, else_branch=same),
    ]
    return made(nodes, {"x": ["a", "b", "c"]}, {"y": None, "z": None}, {"zero": np.float32(0).reshape(())})


def test_float16_is_compared_as_float16(tmp_path: Path) -> None:
    """0.1 is 0.09998 in float16, so an element of 0.1 is not above it."""
    shape = [3, 5]
    model = made([helper.make_node("Neg", ["x"], ["y"])], {"x": shape}, {"y": shape}, dtype=TensorProto.FLOAT16)
    path = compiled(model, tmp_path, reduce={"y": "threshold:0.1"})
    x = -np.float16([[0.1, 0.10004, 0.0999, 0, np.nan], [1, -1, np.inf, -np.inf, 65504], [0.11, 0.09, 2, 3, 4]])
    (port,), found = runs(path, {"x": x})
    assert port == ("y", "tensor(bool)")
    np.testing.assert_array_equal(found["y"], -x > np.float16(0.1))


def test_first_of_equal_elements_and_numbers_that_are_none(tmp_path: Path) -> None:
    model = made([helper.make_node("Neg", ["x"], ["y"])], {"x": [4, 3]}, {"y": [4, 3]})
    path = compiled(model, tmp_path, reduce={"y": "argmax:1"})
    x = -np.float32([[1, 2, 2], [2, 1, 2], [0, np.nan, 5], [-np.inf, -np.inf, -np.inf]])
    _, found = runs(path, {"x": x})
    np.testing.assert_array_equal(found["y"], np.uint8([1, 0, 1, 0]))


def test_an_output_that_is_a_constant(tmp_path: Path) -> None:
    constant = np.float32([[1, 3, 2], [9, 8, 7]])
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    model = made(nodes, {"x": [2]}, {"y": [2], "c": [2, 3]}, {"c": constant})
    path = compiled(model, tmp_path, reduce={"c": "argmax:1"})
    _, found = runs(path, {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(found["c"], np.uint8([1, 0]))
    path = compiled(model, tmp_path, reduce={"c": "threshold:2"})
    _, found = runs(path, {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(found["c"], constant > 2)


def test_names_that_the_model_has_already(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y:whole"]), helper.make_node("Neg", ["y:whole"], ["y"])]
    nodes.append(helper.make_node("Mul", ["y", "y:threshold"], ["z"]))
    constants = {"y:threshold": np.float32([3])}
    model = made(nodes, {"x": [4]}, {"y": [4], "z": [4], "y:whole": [4]}, constants)
    x = np.float32([1, -2, 3, -4])
    _, found = runs(compiled(model, tmp_path, reduce={"y": "threshold:0"}), {"x": x})
    np.testing.assert_array_equal(found["y"], x > 0)
    np.testing.assert_array_equal(found["z"], 3 * x)
    np.testing.assert_array_equal(found["y:whole"], -x)


def test_weights_are_narrowed_by_the_error_of_whole_outputs(tmp_path: Path) -> None:
    """Positions of classes hardly change, so their error would allow any form."""
    constants = {"w": weights(16, 3, 3, 3), "v": weights(CLASSES, 16, 8, 8)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Conv", ["a", "v"], ["y"])]
    model = made(nodes, {"x": [1, 3, 16, 16]}, {"y": [1, CLASSES, 7, 7]}, constants)
    said: list[list[str]] = [[], []]
    compiled(model, tmp_path, weights="auto:1e-2", tell=said[0].append)
    path = compiled(model, tmp_path, weights="auto:1e-2", tell=said[1].append, reduce={"y": "argmax:1"})
    assert said[0] == said[1]
    (port,), _ = runs(path, image(16))
    assert port == ("y", "tensor(uint8)")


@pytest.mark.parametrize(
    ("reduction", "message"),
    [
        ("z=argmax:1", "error: no output 'z' to reduce: the model's outputs are y, n, x"),
        ("n=argmax:1", "error: output 'n' cannot be reduced: it is i64, and only floats are"),
        ("x=threshold:1", "error: output 'x' cannot be reduced: it is an input of the model, too"),
        ("y=argmax:2", "error: output 'y' cannot be reduced over axis 2: it has 2 dimensions"),
        ("y=argmax:-3", "error: output 'y' cannot be reduced over axis -3: it has 2 dimensions"),
        ("y=threshold:1e39", "error: output 'y' cannot be reduced: f32 does not reach 1e+39"),
        ("y=argmax", "error: argument --reduce: not a reduction of an output: 'argmax'"),
        ("y=argmax:1.5", "error: argument --reduce: not a reduction of an output: 'argmax:1.5'"),
        ("y=threshold:nan", "error: argument --reduce: not a reduction of an output: 'threshold:nan'"),
        ("y=top:1", "error: argument --reduce: not a reduction of an output: 'top:1'"),
        ("argmax:1", "error: argument --reduce: not a reduction of an output: 'argmax:1'"),
    ],
)
def test_refusals(reduction: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Shape", ["x"], ["n"])]
    model = made(nodes, {"x": [2, 3]}, {"y": [2, 3], "n": [2], "x": [2, 3]})
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    path, target = saved(model, tmp_path), tmp_path / "model.flexnn"
    command = ["compile", path, "-o", str(target), "--reduce", reduction, "--quiet"]
    try:
        status: Any = main(command)
    except SystemExit as left:  # argparse
        status = left.code
    assert status == 2
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert said.count("\n") == 1
    assert not target.exists()


def test_a_size_that_the_model_declares_wrongly_is_refused(tmp_path: Path) -> None:
    model = made([helper.make_node("Neg", ["x"], ["y"])], {"x": [2, 300]}, {"y": [2, 21]})
    with pytest.raises(flexnn.GraphError, match="300 positions on axis 1: the model declares at most 256"):
        compiled(model, tmp_path, reduce={"y": "argmax:1"})


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = saved(segmentation(), tmp_path), str(tmp_path / "out.flexnn")
    command = ["compile", path, "-o", target, "--reduce", "y=argmax:1", "--reduce", "p=threshold:.5", "--quiet"]
    assert main(command) == 0
    ports, _ = runs(target, image())
    assert ports[:2] == [("y", "tensor(uint8)"), ("p", "tensor(bool)")]
    capsys.readouterr()
    assert main([*command[:2], "--reduce", "y=argmax:1", "--dump", "imported"]) == 0
    assert "ArgMax.u8" in capsys.readouterr().out
