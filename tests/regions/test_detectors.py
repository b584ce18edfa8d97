"""Detectors: pictures that the model itself resizes, and what follows from how many it found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.regions import templates
from tests.support.regions import F32, check_run, compiled, graph_of, model_of, numbers, value

node = onnx.helper.make_node


def resizing() -> onnx.ModelProto:
    """A layer over a picture that is scaled to a shorter side of 40 and a longer one of at most 60, in floats, as
    torchvision writes it; what it makes is clipped to a part of the picture's height.
    """
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "two", "four"], ["hw"]),
    ]
    for kind, side in (("ReduceMin", "short"), ("ReduceMax", "long")):
        nodes += [
            node(kind, ["hw"], [f"{side}.i"], keepdims=0),
            node("Cast", [f"{side}.i"], [f"{side}.f"], to=F32),
            node("Reciprocal", [f"{side}.f"], [f"{side}.r"]),
            node("Mul", [f"{side}.r", f"{side}.side"], [f"{side}.scale"]),
        ]
    nodes += [
        node("Min", ["short.scale", "long.scale"], ["scale"]),
        node("Cast", ["hw"], ["hw.f"], to=F32),
        node("Mul", ["hw.f", "scale"], ["scaled"]),
        node("Floor", ["scaled"], ["floored"]),
        node("Cast", ["floored"], ["sides"], to=onnx.TensorProto.INT64),
        node("Concat", ["batch", "sides"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["small"], mode="linear"),
        node("Conv", ["small", "w"], ["c"]),
        node("Slice", ["hw.f", "zero", "one"], ["height"]),
        node("ReduceMax", ["height"], ["tall"], keepdims=0),
        node("Mul", ["tall", "hundredth"], ["most"]),
        node("Min", ["c", "most"], ["y"]),
    ]
    constants = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "four": np.array([4]),
        "short.side": np.array(40, np.float32),
        "long.side": np.array(60, np.float32),
        "batch": np.array([1, 3]),
        "hundredth": np.array(0.01, np.float32),
        "w": numbers(8, 3, 3, 3) / 32,
    }
    inputs, outputs = [value("x", F32, [1, 3, "h", "w"])], [value("y", F32, [None, 8, None, None])]
    return model_of(graph_of(nodes, inputs, outputs, constants))


def test_one_template_serves_pictures_that_the_model_resizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = resizing()
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", None)
        for shape in ((45, 60), (60, 45), (40, 40), (40, 60), (50, 50), (33, 130), (81, 24)):
            check_run(session, model, {"x": numbers(1, 3, *shape)})


def counting() -> onnx.ModelProto:
    """A layer over the best numbers of a row, at most 5 of those above 0, behind a layer over all."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("ReduceMean", ["a"], ["score"], axes=[2]),
        node("Greater", ["score", "zero"], ["is_found"]),
        node("NonZero", ["is_found"], ["found"]),
        node("Shape", ["found"], ["s"]),
        node("Slice", ["s", "one", "two"], ["count"]),
        node("Min", ["count", "five"], ["k"]),
        node("TopK", ["score", "k"], ["best", "places"], axis=1),
        node("Unsqueeze", ["best", "two"], ["column"]),
        node("MatMul", ["column", "v"], ["y"]),
    ]
    constants = {
        "zero": np.array(0, np.float32),
        "one": np.array([1]),
        "two": np.array([2]),
        "five": np.array([5]),
        "w": numbers(4, 8),
        "v": numbers(1, 8),
    }
    return model_of(graph_of(nodes, [value("x", F32, [1, "n", 4])], [value("y", F32, [1, None, 8])], constants))


def test_parts_behind_counts_come_from_the_artifact_and_serve_other_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier run has asked for the count already: the templates before it were traced without that."""
    model = counting()
    rng = np.random.default_rng(1)
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", lambda *args: _only_asks(*args))
        for rows in (30, 11, 90, 30, 47):
            check_run(session, model, {"x": rng.standard_normal((1, rows, 4)).astype(np.float32)})


_bound = templates.build_segment


def _only_asks(*args):  # type: ignore[no-untyped-def]
    """Bind a segment; it must need numbers that are read then, and be none."""
    segment = _bound(*args)
    assert not segment.makes, [args[0].nodes[i].name for i in range(segment.nodes.bit_length())]
    return segment
