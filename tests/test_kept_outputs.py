"""Outputs that are kept when compiling: what sessions return, what is left out, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import flexnn
from flexnn.cli import main
from tests.test_reduced_outputs import segmentation


@pytest.fixture(params=[64, "open"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(segmentation(request.param), path)
    return path


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(7).standard_normal((1, 3, 64, 64)).astype(np.float32)}


@pytest.mark.parametrize("keep", [["mean"], ["mean", "y"], ["p"], ["y", "p", "mean"]])
def test_a_session_returns_what_is_kept_in_the_models_order(model: Path, keep: list[str]) -> None:
    order = [name for name in ("y", "p", "mean") if name in keep]
    expected = onnxruntime.InferenceSession(model).run(order, feed())
    with flexnn.Session(flexnn.compile(model, keep=keep)) as session:
        assert [port.name for port in session.get_outputs()] == order
        for got, wanted in zip(session.run(None, feed()), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(ValueError, match="no output 'other'"):
            session.run(["other"], feed())


def test_what_only_others_need_is_left_out(tmp_path: Path) -> None:
    """The budget no longer holds two maps of 1.3 MiB twice, as outputs; the arena may hold one."""
    path = tmp_path / "model.onnx"
    onnx.save(segmentation(128), path)
    smallest = []
    for keep in (None, ["mean"]):
        artifact = flexnn.compile(path, tmp_path / "model.flexnn", keep=keep)
        with flexnn.Session(artifact, profile="analytic") as session:
            session.run(None, {"x": np.zeros((1, 3, 128, 128), np.float32)})
            smallest.append(session.plan.minimum_memory)
    assert smallest[1] < smallest[0] - 3 * 21 * 128 * 128 * 4


def test_weights_of_other_outputs_are_not_stored(tmp_path: Path) -> None:
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(3)
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(2)]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 256])],
        [helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, [1, 256]) for i in range(2)],
        [numpy_helper.from_array(rng.standard_normal((256, 256)).astype(np.float32), f"w{i}") for i in range(2)],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    both = Path(flexnn.compile(path, tmp_path / "both.flexnn")).stat().st_size
    assert Path(flexnn.compile(path, tmp_path / "one.flexnn", keep=["y1"])).stat().st_size < both - 256 * 256 * 4 + 4096


def test_kept_outputs_may_be_reduced(model: Path) -> None:
    (scores,) = onnxruntime.InferenceSession(model).run(["y"], feed())
    artifact = flexnn.compile(model, keep=["y"], reduce={"y": "argmax:1"})
    with flexnn.Session(artifact) as session:
        (got,) = session.run(None, feed())
    top = np.sort(scores, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-4
    assert np.array_equal(got[clear], scores.argmax(1)[clear])
    with pytest.raises(flexnn.GraphError, match="no output 'p' to reduce"):
        flexnn.compile(model, keep=["y"], reduce={"p": "argmax:1"})


def test_what_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(flexnn.GraphError, match="no output 'q' to keep: the model's outputs are y, p, mean"):
        flexnn.compile(model, keep=["y", "q"])
    for empty in ([], "y"):
        with pytest.raises(ValueError, match="keep: a list"):
            flexnn.compile(model, keep=empty)
    assert main(["compile", str(model), "--keep", "q"]) == 2
    assert "no output 'q' to keep" in capsys.readouterr().err
    assert not model.with_suffix(".flexnn").exists()


def test_the_command(model: Path) -> None:
    artifact = model.with_suffix(".flexnn")
    assert main(["compile", str(model), "--keep", "mean", "--keep", "p", "--quiet"]) == 0
    with flexnn.Session(artifact) as session:
        assert [port.name for port in session.get_outputs()] == ["p", "mean"]
