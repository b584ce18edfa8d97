"""Packages imported without what compiling never uses of them, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flexnn import kept_artifacts, lightly
from tests.support.sessions import write_model

BARE = """
import os, sys
flexnn = sys.modules["flexnn"] = type(sys)("flexnn")
flexnn.__path__ = [sys.argv[1]]
from flexnn import lightly
"""
"""FlexNN's package without what its own module imports."""
NUMPY = """
lightly.import_numpy()
print(*(name for name in lightly.NUMPY if name in sys.modules))
import numpy as np
print(np.linalg.norm(np.arange(4.0)), np.linalg.svd(np.eye(2)).S, np.add.reduce(np.ones(3, "f4")))
import numpy.typing
print(numpy.typing.NDArray[np.float32])
"""
MESSAGES = """
lightly.import_messages()
print(*(n for n in ("onnx.defs", "onnx.helper", "google.protobuf.text_format", lightly.PROTOBUF) if n in sys.modules))
import onnx
model = onnx.ModelProto(ir_version=8)
model.graph.node.add(op_type="Relu", input=["x"], output=["y"]).attribute.add(name="a", i=3)
again = onnx.ModelProto.FromString(model.SerializeToString())
print(again == model, str(again.graph.node[0].attribute[0]).split())
from google.protobuf import text_format
print(text_format.MessageToString(again).split()[:2])
"""
BROKEN = """
from flexnn import maker
lightly.NUMPY = (*lightly.NUMPY, "numpy._core.numeric")  # numpy asks it for what it is made of
print("whole" if os.environ.get(lightly.WHOLE) == "1" else "light", flush=True)
maker.start()
"""


def said(script: str, *arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-P", "-c", BARE + script, *sys.modules["flexnn"].__path__, *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()


def test_numpy_is_whole_for_who_asks_for_the_rest() -> None:
    left, numbers, types = said(NUMPY)
    assert not left
    assert numbers == "3.7416573867739413 [1. 1.] 3.0"
    assert "numpy.float32" in types
    assert said(NUMPY, **{lightly.WHOLE: "1"}) == [" ".join(lightly.NUMPY), numbers, types]


@pytest.mark.parametrize("way", ["upb", "python"])
def test_messages_work_without_those_in_python(way: str) -> None:
    """Messages in Python are those that protobuf uses where it has none in C."""
    modules, *rest = said(MESSAGES, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=way)
    assert rest == ["True ['name:', '\"a\"', 'i:', '3']", "['ir_version:', '8']"]
    assert (lightly.PROTOBUF in modules) == (way == "python")
    assert "onnx." not in modules


def test_a_process_that_numpy_fails_in_begins_anew(tmp_path: Path) -> None:
    asked = json.dumps({"model": str(write_model(tmp_path / "m.onnx")), "shapes": {}, "note": "", "terminal": None})
    lines = said(BROKEN, asked, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert [line for line in lines if line in ("light", "whole")] == ["light", "whole"]
    assert lines[-1].endswith(kept_artifacts.ARTIFACT)


def test_what_is_left_out_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with lightly.left_out("colorsys", "json"):
        from colorsys import anything  # type: ignore[attr-defined]

        assert anything[int] is anything
        assert json.dumps([]) == "[]"
        assert not hasattr(sys.modules["colorsys"], "__file__")
    assert "colorsys" not in sys.modules
