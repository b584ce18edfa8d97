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
