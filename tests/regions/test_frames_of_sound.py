"""Models of sound as TensorFlow's converter writes them: a loop over the batch, whose condition compares floats, cuts
frames by a grid of indices; a layer behind it needs many frames.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.regions import templates
from tests.regions.test_ahead import check_exact
from tests.support.regions import BOOL, F32, I64, check_run, compiled, graph_of, model_of, numbers, opened, value

node = onnx.helper.make_node
FRAME, STEP, FRAMES = 400, 80, 40
SECOND = 16000


def sound(frames: int = FRAMES) -> onnx.ModelProto:
    """Frames of each sound of a batch, and a layer over ``frames`` of them: 3,520 samples."""
    body = [
        node("Add", ["i", "one"], ["next"]),
        node("Cast", ["next"], ["next.f"], to=F32),
        node("Less", ["next.f", "batch.f"], ["again"]),
        node("Gather", ["x", "i"], ["sound"]),
        node("Shape", ["sound"], ["samples"]),
        node("Sub", ["samples", "frame"], ["room"]),
        node("Div", ["room", "step"], ["full"]),
        node("Add", ["full", "ones"], ["count"]),
        node("Squeeze", ["count", "zeros"], ["count.0"]),
        node("Range", ["zero", "count.0", "one"], ["number"]),
        node("Mul", ["number", "step"], ["starts"]),
        node("Unsqueeze", ["starts", "ones"], ["starts.2"]),
        node("Add", ["starts.2", "inside"], ["grid"]),
        node("Gather", ["sound", "grid"], ["frames"]),
        node("MatMul", ["frames", "bank"], ["rows"]),
    ]
    taken = [value("i.loop", I64, []), value("go", BOOL, []), value("i", I64, [])]
    made = [value("again", BOOL, []), value("next", I64, []), value("rows", F32, [None, 8])]
    loop = graph_of(body, taken, made, name="body")
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Cast", ["batch"], ["batch.f"], to=F32),
        node("Less", ["zero.f", "batch.f"], ["begin"]),
        node("Loop", ["endless", "begin", "zero"], ["last", "stack"], body=loop),
        node("Unsqueeze", ["stack", "ones"], ["map"]),
        node("Conv", ["map", "w"], ["y"]),
    ]
    constants = {
        "one": np.array(1), "ones": np.array([1]), "zero": np.array(0), "zeros": np.array([0]), "zero.f": np.float32(0),
        "frame": np.array([FRAME]), "step": np.array([STEP]), "inside": np.arange(FRAME)[None],
        "endless": np.array(2**62), "bank": numbers(FRAME, 8) / FRAME, "w": numbers(16, 1, frames, 8) / frames,
    }  # fmt: skip
    outputs = [value("y", F32, [None, 16, None, 1])]
    return model_of(graph_of(nodes, [value("x", F32, ["batch", "samples"])], outputs, constants))


def test_layers_behind_long_windows_run_on_the_core(tmp_path: Path) -> None:
    model = sound()
    with opened(tmp_path, model) as session:
        for batch, samples in ((1, SECOND), (3, 4567), (1, 2 * SECOND), (2, FRAME + STEP * (FRAMES - 1))):
            check_run(session, model, {"x": numbers(batch, samples)})
            assert session.statistics()["hosted_operators"] == {}


def test_lengths_of_sound_are_no_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grid of a sound's frames is not bound anew, nor what stands behind the loop."""
    artifact = compiled(tmp_path, sound())
    bound: list[int] = []
    own = templates.build_segment
    monkeypatch.setattr(templates, "build_segment", lambda *given, **more: bound.append(1) or own(*given, **more))
    with flexnn.Session(artifact, threads=1) as session:
        bound.clear()
        for batch, samples in ((1, 2 * SECOND), (1, 5 * SECOND), (1, 12345), (3, 2 * SECOND), (1, 54321)):
            session.run(None, {"x": numbers(batch, samples)})
    assert not bound


def test_the_condition_of_a_loop_bounds_its_turns(tmp_path: Path) -> None:
    """So the first refusal does not take it for endless."""
    artifact = compiled(tmp_path, sound())
    named, smallest = check_exact(artifact, {"x": numbers(3, SECOND)})
    assert named < smallest + (1 << 20)


def test_a_loop_that_nobody_can_count_stacks_rows_without_elements(tmp_path: Path) -> None:
    """The condition is what data say; onnxruntime makes the same rows of nothing."""
    body = graph_of(
        [node("ReduceSum", ["s"], ["sum"], keepdims=0), node("Less", ["sum", "most"], ["on"]),
         node("Add", ["s", "s"], ["t"]), node("Slice", ["t", "none", "none"], ["row"])],
        [value("i", I64, []), value("go", BOOL, []), value("s", F32, [4])],
        [value("on", BOOL, []), value("t", F32, [4]), value("row", F32, [0])],
        name="body",
    )  # fmt: skip
    nodes = [node("Loop", ["", "yes", "x"], ["last", "rows"], body=body)]
    constants = {"most": np.float32(100), "none": np.array([0]), "yes": np.array(True)}
    outputs = [value("last", F32, [4]), value("rows", F32, [None, 0])]
    model = model_of(graph_of(nodes, [value("x", F32, [4])], outputs, constants))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": np.ones(4, np.float32)})
