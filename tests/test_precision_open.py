"""Maps in 16 bits where shapes are open: the same bits and memory as where they are known, in bodies of control flow,
too, whatever sizes a session has seen before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn import _core
from flexnn.artifact.model_section import dump_stored, load_stored
from flexnn.artifact.reader import open_artifact
from tests.support.compare import model_of, weights
from tests.test_precision import ERROR, errors

SIZES = ((2, 37, 29), (1, 64, 96), (3, 8, 16), (1, 4, 4), (2, 120, 120))
"""Batch, height and width: maps of many numbers, maps of which only some have enough of them, and none."""
EXACT = {"profile": "analytic", "deterministic": True}


def net(dims: Sequence[int | str] = ("n", 3, "h", "w")) -> onnx.ModelProto:
    """A model whose sizes decide: the number of pixels, a gate for each image, a resize by the sizes of another map."""
    constants = {
        "stem": weights(16, 3, 3, 3), "depth": weights(16, 1, 5, 5), "point": weights(24, 16, 1, 1),
        "gate": weights(16, 16, 1, 1), "down": weights(16, 16, 3, 3), "head": weights(2, 40, 1, 1),
        "zero": np.array([0], np.int64), "two": np.array([2], np.int64), "four": np.array([4], np.int64),
        "channels": np.array([16], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "depth"], ["c"], pads=[2, 2, 2, 2], group=16),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "gate"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["f"]),
        helper.make_node("Mul", ["c", "f"], ["g"]),
        helper.make_node("Conv", ["g", "down"], ["h"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Slice", ["s", "two", "four", "zero"], ["t"]),
        helper.make_node("Shape", ["x"], ["u"]),
        helper.make_node("Slice", ["u", "zero", "one", "zero"], ["v"]),
        helper.make_node("Concat", ["v", "channels", "t"], ["sizes"], axis=0),
        helper.make_node("Resize", ["h", "", "", "sizes"], ["i"], mode="nearest"),
        helper.make_node("Add", ["i", "b"], ["j"]),
        helper.make_node("Conv", ["j", "point"], ["k"]),
        helper.make_node("Softmax", ["k"], ["l"], axis=1),
        helper.make_node("Concat", ["l", "j"], ["m"], axis=1),
        helper.make_node("Conv", ["m", "head"], ["y"]),
    ]
    constants["one"] = np.array([1], np.int64)
    return model_of(nodes, {"x": dims}, ["y"], constants)


def feed_of(sizes: tuple[int, int, int]) -> dict[str, np.ndarray]:
    batch, height, width = sizes
    return {"x": np.random.default_rng(7).standard_normal((batch, 3, height, width)).astype(np.float32)}


def compiled(model: onnx.ModelProto, folder: Path, name: str, precision: str = "f16", **how: object) -> str:
    onnx.save(model, str(folder / f"{name}.onnx"))
    return flexnn.compile(folder / f"{name}.onnx", folder / f"{name}.flexnn", precision=precision, **how)


def closed(folder: Path, sizes: tuple[int, int, int], precision: str = "f16") -> str:
    batch, height, width = sizes
    return compiled(net(), folder, "closed", precision, shapes={"x": (batch, 3, height, width)})


@pytest.mark.parametrize("level", _core.isa_levels())
def test_outputs_have_the_bits_of_known_shapes(tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXNN_ISA", level)
    model = compiled(net(), tmp_path, "open")
    with flexnn.Session(model, threads=2, **EXACT) as session:
        got = [session.run(None, feed_of(sizes))[0] for sizes in SIZES]
        assert not session.statistics()["hosted_operators"]
    for sizes, found in zip(SIZES, got, strict=True):
        with flexnn.Session(closed(tmp_path, sizes), threads=2, **EXACT) as session:
            assert np.array_equal(found, session.run(None, feed_of(sizes))[0]), sizes


def test_outputs_are_near_those_of_onnxruntime(tmp_path: Path) -> None:
    model = compiled(net(), tmp_path, "open")
    peer = onnxruntime.InferenceSession(str(tmp_path / "open.onnx"), providers=["CPUExecutionProvider"])
    with flexnn.Session(model) as session:
        for sizes in SIZES:
            wanted = peer.run(None, feed_of(sizes))
            assert 0 < max(errors(session.run(None, feed_of(sizes)), wanted)) < ERROR, sizes


def test_bits_do_not_depend_on_the_sizes_seen_before(tmp_path: Path) -> None:
    """Which values have 16 bits is decided by the sizes of a run, not by those of the one before."""
    model = compiled(net(), tmp_path, "open")
    found: list[dict[tuple[int, int, int], np.ndarray]] = []
    for order in (SIZES, SIZES[::-1]):
        with flexnn.Session(model, **EXACT) as session:
            found.append({sizes: session.run(None, feed_of(sizes))[0] for sizes in order})
    assert all(np.array_equal(found[0][sizes], found[1][sizes]) for sizes in SIZES)


def test_less_memory_than_with_float32_and_budgets_are_kept(tmp_path: Path) -> None:
    shapes = {"x": (1, 3, 320, 320)}
    least = {}
    for precision in ("f32", "f16"):
        model = compiled(net(), tmp_path, precision, precision)
        least[precision] = flexnn.plan(model, shapes=shapes, threads=1).minimum_memory
    least["closed"] = flexnn.plan(closed(tmp_path, (1, 320, 320)), threads=1).minimum_memory
    least["closed f32"] = flexnn.plan(closed(tmp_path, (1, 320, 320), "f32"), threads=1).minimum_memory
    saved = least["closed f32"] - least["closed"]
    assert saved > 1 << 20
    assert least["f32"] - least["f16"] > 0.8 * saved
    feed = feed_of((1, 320, 320))
    with flexnn.Session(model, least["f16"], 1) as session, flexnn.Session(model, threads=1) as free:
        assert max(errors(session.run(None, feed), free.run(None, feed))) < ERROR


def test_plans_have_operators_of_16_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of halves too, where a level has them: the scalar one is told that it has."""
    monkeypatch.setenv("FLEXNN_ISA", "scalar")
    monkeypatch.setattr(_core, "adds_halves", lambda isa=None: True)
    model, shapes = compiled(net(), tmp_path, "open"), {"x": (1, 3, 64, 96)}
    kernels = flexnn.plan(model, shapes=shapes, threads=1, deterministic=True).kernels
    assert kernels["half"] > 1
    assert kernels["half"] == flexnn.plan(closed(tmp_path, (1, 64, 96)), threads=1, deterministic=True).kernels["half"]


def test_bodies_have_16_bits_too(tmp_path: Path) -> None:
    """A branch and a loop, whose sizes are open."""
    inner = [
        helper.make_node("Conv", ["before", "w"], ["p"], pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "w"], ["r"], pads=[1, 1, 1, 1]),
    ]
    branch = helper.make_graph(
        [helper.make_node("Conv", ["a", "w"], ["b0"], pads=[1] * 4), helper.make_node("Conv", ["b0", "w"], ["b1"])],
        "then", [], [helper.make_tensor_value_info("b1", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["c1"])],
        "else", [], [helper.make_tensor_value_info("c1", TensorProto.FLOAT, None)],
    )  # fmt: skip
    body = helper.make_graph(
        [*inner, helper.make_node("Identity", ["on"], ["go"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("on", 9, []),
         helper.make_tensor_value_info("before", TensorProto.FLOAT, [1, 16, "h", "v"])],
        [helper.make_tensor_value_info("go", 9, []), helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("If", ["flag"], ["b"], then_branch=branch, else_branch=other),
        helper.make_node("Loop", ["turns", "", "b"], ["y"], body=body),
    ]
    constants = {"stem": weights(16, 3, 3, 3), "w": weights(16, 16, 3, 3) * np.float32(0.3)}
    types = {"flag": TensorProto.BOOL, "turns": TensorProto.INT64}
    model = model_of(nodes, {"x": (1, 3, "h", "v"), "flag": (), "turns": ()}, ["y"], constants, types=types)
    half, wide = (compiled(model, tmp_path, precision, precision) for precision in ("f16", "f32"))
    peer = onnxruntime.InferenceSession(str(tmp_path / "f16.onnx"), providers=["CPUExecutionProvider"])
    with flexnn.Session(half) as narrow, flexnn.Session(wide) as exact:
        for flag, turns, size in ((True, 0, 40), (True, 3, 40), (False, 3, 52), (False, 0, 33)):
            feed = {"x": feed_of((1, size, 31))["x"], "flag": np.array(flag), "turns": np.array(turns, np.int64)}
            wanted = peer.run(None, feed)
            assert max(errors(exact.run(None, feed), wanted)) < 1e-5
            error = max(errors(narrow.run(None, feed), wanted))
            assert error < ERROR
            assert error > 1e-5 or not (flag or turns)


def test_a_number_beyond_16_bits_fails_the_run_and_the_next_one_is_right(tmp_path: Path) -> None:
    with flexnn.Session(compiled(net(), tmp_path, "open")) as session:
        feed = feed_of((1, 64, 96))
        with pytest.raises(flexnn.FlexNNError, match="beyond 65,504"):
            session.run(None, {"x": feed["x"] * np.float32(1e6)})
        assert np.isfinite(session.run(None, feed)[0]).all()


def test_the_section_says_the_precision(tmp_path: Path) -> None:
    found = {}
    for precision in ("f32", "f16"):
        with open_artifact(compiled(net(), tmp_path, precision, precision)) as artifact:
            found[precision] = dump_stored(artifact.contents)
    assert b"precision" not in found["f32"]  # so that earlier releases read it
    assert load_stored(found["f16"]).model.precision == "f16"
