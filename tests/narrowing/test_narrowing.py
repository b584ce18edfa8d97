"""Weights in fewer bits by choice: which layers, how far outputs are off, and what the artifact says about it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.cli import main
from flexnn.narrowing import parse_wanted
from flexnn.narrowing.trial import worst_error
from tests.support.compare import model_of, weights


def net(open_rows: bool = False) -> onnx.ModelProto:
    """Large layers, of which one matters little, one that is stored by rows, a small one and a depthwise one."""
    constants = {
        "first": weights(96, 64, 3, 3), "depth": weights(96, 1, 3, 3), "point": weights(256, 96, 1, 1),
        "small": weights(8, 256, 1, 1), "fc": weights(96, 200), "rows": weights(128, 200),
    }  # fmt: skip
    constants["point"] *= 0.01
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "depth"], ["b"], pads=[1, 1, 1, 1], group=96),
        helper.make_node("Conv", ["b", "point"], ["c"]),
        helper.make_node("Conv", ["c", "small"], ["y"]),
        helper.make_node("GlobalAveragePool", ["b"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "fc"], ["f"]),
        helper.make_node("Gemm", ["f", "rows"], ["z"], transB=1),
    ]
    model = model_of(nodes, {"x": (2, 64, 5, 6)}, ["y", "z"], constants)
    if open_rows:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
    return model


@pytest.fixture(params=[False, True], ids=["closed", "open"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "net.onnx")
    onnx.save(net(request.param), path)
    return path


def outputs_of(path: str, seed: int = 7) -> list[list[Any]]:
    feed = {"x": np.random.default_rng(seed).standard_normal((2, 64, 5, 6)).astype(np.float32)}
    with flexnn.Session(path) as session:
        return [list(session.run(None, feed))]


def test_a_form_is_that_of_all_large_layers(model: str, tmp_path: Path) -> None:
    """The error that the table states is the one that runs show; small and depthwise layers stay as they are."""
    wide = flexnn.compile(model, str(tmp_path / "f32.flexnn"))
    exact = outputs_of(wide)
    sizes = {"f32": Path(wide).stat().st_size}
    for form, most in (("f16", 1e-3), ("s8", 1e-2), ("q4", 0.2)):
        said: list[str] = []
        path = flexnn.compile(model, str(tmp_path / f"{form}.flexnn"), weights=form, tell=said.append)
        sizes[form] = Path(path).stat().st_size
        error = worst_error(outputs_of(path), exact)
        assert most / 100 < error < most
        table = said[0].splitlines()
        assert [row.split()[1] for row in table[1:-1]] == [form] * 4
        assert re.search(r"on seeded noise \(x \d+x64x\d+x\d+\) \(relative", table[-1])
        stated = float(re.search(r"error ([0-9.e+-]+) on", table[-1])[1])  # type: ignore[index]
        assert 0.3 < stated / error < 3
        with flexnn.Session(path) as session:
            assert session.get_modelmeta().weights == said[0]
    assert sizes["f32"] > sizes["f16"] > sizes["s8"] > sizes["q4"]


def test_narrowing_stops_at_half_of_the_error(model: str, tmp_path: Path) -> None:
    """On the inputs that were given; fewer bits for a larger error, and the weights that matter keep theirs."""
    wide = flexnn.compile(model, str(tmp_path / "f32.flexnn"))
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.standard_normal((2, 64, 5, 6)).astype(np.float32)} for _ in range(2)]
    before = Path(wide).stat().st_size
    for error in (1e-4, 1e-2, 5e-2):
        said: list[str] = []
        path = flexnn.compile(
            model, str(tmp_path / "a.flexnn"), weights=f"auto:{error}", calibrate=feeds, tell=said.append
        )
        stated = float(re.search(r"error ([0-9.e+-]+) on 2 given inputs", said[0])[1])  # type: ignore[index]
        assert stated <= error / 2
        with flexnn.Session(path) as narrow, flexnn.Session(wide) as exact:
            made = [list(narrow.run(None, feed)) for feed in feeds]
            found = worst_error(made, [list(exact.run(None, feed)) for feed in feeds])
        assert abs(found - stated) < 0.05 * error
        assert worst_error(outputs_of(path), outputs_of(wide)) <= error
        assert Path(path).stat().st_size <= before
        before = Path(path).stat().st_size
    assert before < 0.5 * Path(wide).stat().st_size


def of_length() -> onnx.ModelProto:
    """Rows of open number. The second layer is a part of the output that grows with it: 2^-8 at 64 rows, 0.4 at 640."""
    constants = {
        "first": weights(96, 256), "second": weights(96, 256)[::-1], "at": np.array(1),
        "unit": np.array(2.0**10 * 96 * (2 / np.pi) ** 0.5, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("MatMul", ["x", "second"], ["b"]),
        helper.make_node("ReduceL1", ["x"], ["count"], axes=[1, 2], keepdims=1),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "at"], ["rows"], axis=0),
        helper.make_node("Div", ["count", "unit"], ["part"]),
        helper.make_node("Mul", ["part", "part"], ["squared"]),
        helper.make_node("Mul", ["b", "squared"], ["c"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    return model_of(nodes, {"x": ("n", "rows", 96)}, ["y"], constants)


def test_errors_are_measured_at_larger_sizes_where_shapes_are_open(tmp_path: Path) -> None:
    onnx.save(of_length(), str(tmp_path / "net.onnx"))
    said: list[str] = []
    path = flexnn.compile(tmp_path / "net.onnx", tmp_path / "narrow.flexnn", weights="auto:5e-3", tell=said.append)
    assert "on seeded noise (x 1x64x96 and 1x256x96 and 1x640x96) (relative" in said[0]
    with flexnn.Session(path) as narrow, flexnn.Session(tmp_path / "net.onnx") as exact:
        for rows in (64, 256, 640):
            feed = {"x": np.random.default_rng(9).standard_normal((1, rows, 96)).astype(np.float32)}
            assert worst_error([narrow.run(None, feed)], [exact.run(None, feed)]) <= 5e-3, rows


def test_larger_sizes_at_which_a_model_does_not_run_are_left_out(tmp_path: Path) -> None:
    """A table of positions has 300 rows."""
    model = of_length()
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights(300, 256), "table"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "zero"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    model.graph.node[-1].output[0] = "d"
    model.graph.node.extend(
        [
            helper.make_node("Range", ["zero", "rows", "one"], ["positions"]),
            helper.make_node("Gather", ["table", "positions"], ["own"]),
            helper.make_node("Add", ["d", "own"], ["y"]),
        ]
    )
    onnx.save(model, str(tmp_path / "net.onnx"))
    said: list[str] = []
    flexnn.compile(tmp_path / "net.onnx", weights="auto:5e-3", tell=said.append)
    assert "on seeded noise (x 1x64x96 and 1x256x96) (relative" in said[0]


def test_the_input_that_is_furthest_off_decides(tmp_path: Path) -> None:
    """Not those with large outputs: a detector's are near zero where it sees nothing."""
    loud, silent = [np.full(3, 1e3, np.float32)], [np.full(3, 1e-3, np.float32)]
    assert worst_error([loud, [silent[0] * 2]], [loud, silent]) == pytest.approx(1)
    assert worst_error([loud, [silent[0] * 0 + 1e-2]], [loud, [silent[0] * 0]]) < 1e-4  # with those of all inputs


def test_the_command_prints_the_table_and_plan_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, artifact, given = (str(tmp_path / name) for name in ("net.onnx", "net.flexnn", "in.npz"))
    onnx.save(net(), path)
    np.savez(given, x=np.ones((2, 64, 5, 6), np.float32))
    command = ["compile", path, "-o", artifact, "--weights", "auto:1e-2", "--calibrate", given, "--quiet"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "1 given inputs" in printed
    assert main(["plan", artifact]) == 0
    assert printed.split(artifact)[0].strip() in capsys.readouterr().out
    assert main(["plan", artifact, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] in printed
    assert main(["compile", path, "-o", artifact, "--weights", "s9", "--quiet"]) == 2
    assert "expected f32, f16, s8, q4, or auto:ERROR" in capsys.readouterr().err


@pytest.mark.parametrize("weights", ["auto", "auto:", "auto:0", "auto:2", "auto:nan", "q5", "auto:1e-2:3"])
def test_what_is_no_form_is_refused(weights: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_wanted(weights)


def test_what_does_not_run_on_the_inputs_has_no_error(tmp_path: Path) -> None:
    path = str(tmp_path / "net.onnx")
    onnx.save(net(), path)
    wrong = {"x": np.ones((1, 2), np.float32)}
    with pytest.raises(flexnn.CompileError, match="does not run on the inputs"):
        flexnn.compile(path, weights="auto:1e-2", calibrate=wrong)
    said: list[str] = []
    flexnn.compile(path, weights="s8", calibrate=wrong, tell=said.append)
    assert "error not measured" in said[0]
    assert not list(tmp_path.glob(".flexnn-trial*"))


def test_outputs_of_other_shapes_or_without_numbers_are_infinitely_far() -> None:
    one, two = [[np.ones(2, np.float32)]], [[np.ones(3, np.float32)]]
    assert worst_error(one, two) == float("inf")
    assert worst_error([[np.float32([1, np.nan])]], one) == float("inf")
    assert worst_error(one, one) == 0
    assert (
        worst_error([[np.float32([1, 2])], [np.float32([0, 0])]], [[np.float32([1, 1])], [np.float32([0, 0])]])
        == 0.5**0.5
    )
