"""Open shapes of inputs, which an ONNX file is asked for without onnx."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from flexnn import kept_artifacts
from flexnn.graph import open_inputs
from flexnn.graph.open_inputs import has_open_inputs
from tests.support.sessions import write_branched_model, write_model


def write(path: Path, *shapes: list[int | str | None] | None, doc: str = "") -> str:
    """A model with inputs of these shapes, and constants before them in the file."""
    ports = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)]
    nodes = [helper.make_node("Sum", [port.name for port in ports] + ["w"], ["y"])]
    large = helper.make_tensor("w", TensorProto.FLOAT, [1 << 13], np.zeros(1 << 13, np.float32).tobytes(), raw=True)
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [large])
    onnx.save(helper.make_model(graph, doc_string=doc), path)
    return str(path)


def test_dimensions_without_a_size_are_open(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert not has_open_inputs(write(path, [1, 3], [2]))
    assert not has_open_inputs(write(path, [0], [], doc="n" * 40_000))
    assert has_open_inputs(write(path, [1, 3], ["n", 3]))
    assert has_open_inputs(write(path, [1, None]))
    assert has_open_inputs(write(path, [1], None))


def test_what_cannot_be_read_is_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(write(tmp_path / "m.onnx", ["n"]))
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        has_open_inputs(str(path))
    rng = np.random.default_rng(0)
    for _ in range(200):
        path.write_bytes(rng.bytes(64))
        has_open_inputs(str(path))
    path.write_bytes(b"\xff" * 100)
    assert not has_open_inputs(str(path))
    assert not has_open_inputs(str(tmp_path / "none.onnx"))
    path.write_bytes(whole)
    monkeypatch.setattr(open_inputs, "FIELDS_MAX", 8)
    assert not has_open_inputs(str(path))


def test_a_session_hears_of_it_before_the_model_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FLEXNN_LATER", "1")
    heard: list[str] = []
    said, model = kept_artifacts._read_when_ready, str(write_branched_model(tmp_path / "open.onnx", 3, batch="n"))
    monkeypatch.setattr(kept_artifacts, "_read_when_ready", lambda reads: heard.append("read") or said(reads))  # type: ignore[func-returns-value]
    with kept_artifacts.compiled(model, {}, heard=heard.append):
        pass
    assert heard[0] == "open"
    assert heard.count("open") == 1
    heard.clear()
    with kept_artifacts.compiled(str(write_model(tmp_path / "bound.onnx")), {}, heard=heard.append):
        pass
    assert heard[0] == "read"
    assert "bound" in heard
