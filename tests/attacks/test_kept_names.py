"""Names of outputs to keep: hostile ones get a clear error of one line, and nothing reaches the terminal raw."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn

HOSTILE = [
    "",
    " ",
    "y\n",
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "\r\x1b[A",
    "y" * 5000,
    "../y",
    "%s%n",
    "\u202ey",
    "\x9b2J",
    "Y",
]
NAMES = ["a", "b", "\x1b[31mred", "c\nd", "\u202ee"]
"""Outputs of the model: what a file calls them is the file's."""


def write(path: Path, names: list[str]) -> Path:
    nodes = [helper.make_node("Relu", ["x"], [name]) for name in names]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, "g", [x], ports)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_an_output_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", NAMES)
    with pytest.raises(flexnn.FlexNNError) as error:
        flexnn.compile(source, tmp_path / "m.flexnn", keep=["a", name])
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2100  # cut, however long names are
    assert not (tmp_path / "m.flexnn").exists()


@pytest.mark.parametrize("keep", [[], "a", ["a"] * 3, [b"a"], [None], ["a", 1]], ids=repr)
def test_lists_that_are_odd(keep: list[str], tmp_path: Path) -> None:
    """Twice the same is once; what is no list of names is refused."""
    source, target = write(tmp_path / "m.onnx", NAMES), tmp_path / "m.flexnn"
    if keep != ["a"] * 3:
        with pytest.raises((flexnn.FlexNNError, ValueError, TypeError)):
            flexnn.compile(source, target, keep=keep)
        return
    with flexnn.Session(flexnn.compile(source, target, keep=keep)) as session:
        assert [port.name for port in session.get_outputs()] == ["a"]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_is_the_models_in_its_order(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    names = [name + str(rng.getrandbits(4)) * i for i, name in enumerate(NAMES)]
    keep = rng.sample(names, rng.randint(1, len(names)))
    source = write(tmp_path / "m.onnx", names)
    with flexnn.Session(flexnn.compile(source, tmp_path / "m.flexnn", keep=keep)) as session:
        assert [port.name for port in session.get_outputs()] == [name for name in names if name in keep]
        for array in session.run(None, {"x": np.array([-1, 2], np.float32)}):
            np.testing.assert_array_equal(array, [0, 2])


@pytest.mark.parametrize("name", ["\x1b[2J", "y" * 5000, "nothing\nhere", "\udcff"], ids=ascii)
def test_the_terminal_gets_no_escapes(name: str, tmp_path: Path) -> None:
    """Neither those of the name that was asked for nor those of the model's outputs, which the error names."""
    source = write(tmp_path / "m.onnx", NAMES)
    command = [sys.executable, "-P", "-m", "flexnn", "compile", str(source), "-o", str(tmp_path / "m.flexnn")]
    done = subprocess.run([*command, "--keep", name], capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode("utf-8", "backslashreplace")
    assert done.returncode not in (0, None)
    assert done.returncode > 0
    assert "Traceback" not in said
    assert all(line.isprintable() for line in said.splitlines())
