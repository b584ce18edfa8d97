"""Sums of halves where the CPU adds them up: which layers, how far outputs are off, and equal bits. Levels that do not
add them up faster than floats are told that they do; the scalar one is the definition of the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn import _core
from tests.support.compare import model_of, weights
from tests.test_precision import ERROR, compiled, errors, net

LEVELS = ["scalar", *(level for level in _core.isa_levels() if _core.adds_halves(level))]


@pytest.fixture(params=LEVELS)
def halves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A level on which sums of halves are chosen."""
    monkeypatch.setenv("FLEXNN_ISA", request.param)
    monkeypatch.setattr(_core, "adds_halves", lambda isa=None: True)
    return str(request.param)


def perceptron() -> onnx.ModelProto:
    """Two linear layers of a transformer between operators that know float32 only."""
    constants = {
        "scale": weights(64), "bias": weights(64), "up": weights(64, 256), "down": weights(256, 64),
        "half": np.array(0.5, np.float32), "one": np.array(1.0, np.float32), "root": np.array(2.0**0.5, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["a"], axis=-1),
        helper.make_node("MatMul", ["a", "up"], ["b"]),
        helper.make_node("Div", ["b", "root"], ["c"]),
        helper.make_node("Erf", ["c"], ["d"]),
        helper.make_node("Add", ["d", "one"], ["e"]),
        helper.make_node("Mul", ["b", "e"], ["f"]),
        helper.make_node("Mul", ["f", "half"], ["g"]),
        helper.make_node("MatMul", ["g", "down"], ["h"]),
        helper.make_node("Add", ["h", "x"], ["i"]),
        helper.make_node("LayerNormalization", ["i", "scale", "bias"], ["y"], axis=-1),
    ]
    return model_of(nodes, {"x": (1, 37, 64)}, ["y"], constants)


def tower() -> onnx.ModelProto:
    """Strided, pointwise, grouped and depthwise convolutions, and a residual."""
    constants = {
        "stem": weights(24, 3, 3, 3), "down": weights(48, 24, 3, 3), "point": weights(70, 48, 1, 1),
        "depth": weights(70, 1, 5, 5), "back": weights(48, 70, 1, 1), "grouped": weights(64, 12, 3, 3),
        "slope": np.abs(weights(48, 1, 1)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "down"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("PRelu", ["c", "slope"], ["d"]),
        helper.make_node("Conv", ["d", "point"], ["e"]),
        helper.make_node("HardSwish", ["e"], ["f"]),
        helper.make_node("Conv", ["f", "depth"], ["g"], pads=[2, 2, 2, 2], group=70),
        helper.make_node("Conv", ["g", "back"], ["h"]),
        helper.make_node("Add", ["h", "d"], ["i"]),
        helper.make_node("Conv", ["i", "grouped"], ["j"], strides=[2, 2], group=4),
        helper.make_node("Relu", ["j"], ["y"]),
    ]
    return model_of(nodes, {"x": (2, 3, 37, 29)}, ["y"], constants)


MODELS = {"tower": (tower, (2, 3, 37, 29), 4), "perceptron": (perceptron, (1, 37, 64), 2)}
"""Models, the shape of their input, and how many layers add up halves."""


def feed_of(name: str) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal(MODELS[name][1]).astype(np.float32)}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_near_those_of_float32_and_equal_for_all_threads_and_budgets(
    tmp_path: Path, halves: str, name: str
) -> None:
    (model, _, layers), feed = MODELS[name], feed_of(name)
    half = compiled(model(), tmp_path)
    with flexnn.Session(compiled(model(), tmp_path, "f32")) as session:
        wanted = session.run(None, feed)
    least = flexnn.plan(half, threads=2, deterministic=True).minimum_memory
    found = []
    for threads, memory in ((1, None), (2, None), (3, None), (2, least)):
        with flexnn.Session(half, memory, threads, profile="analytic", deterministic=True) as session:
            assert session.plan is not None
            assert session.plan.kernels["half"] == layers
            found.append(session.run(None, feed))
    assert 0 < max(errors(found[0], wanted)) < ERROR
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_small_budgets_are_kept_and_near(tmp_path: Path, halves: str) -> None:
    """Bands and slices, kernels by time."""
    half, feed = compiled(tower(), tmp_path), feed_of("tower")
    with flexnn.Session(compiled(tower(), tmp_path, "f32")) as session:
        wanted = session.run(None, feed)
    least = flexnn.plan(half, threads=1).minimum_memory
    for memory in (None, least):
        with flexnn.Session(half, memory, 1) as session:
            assert 0 < max(errors(session.run(None, feed), wanted)) < ERROR


def test_sums_beyond_16_bits_are_computed_again(tmp_path: Path, halves: str) -> None:
    """Products whose sum is within 16 bits, and whose parts are not."""
    signs = np.where(np.arange(64) < 32, 1, -1).astype(np.float32)
    constants = {"w": np.ones((64, 1, 1, 1), np.float32) * 200, "v": signs.reshape(1, 64, 1, 1) * np.float32(100)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Conv", ["a", "v"], ["y"])]
    model = model_of(nodes, {"x": (1, 1, 40, 40)}, ["y"], constants)
    feed = np.random.default_rng(1).uniform(1, 2, (1, 1, 40, 40)).astype(np.float32)
    with flexnn.Session(compiled(model, tmp_path)) as session:
        (y,) = session.run(None, {"x": feed})
    assert np.isfinite(y).all()
    assert np.abs(y).max() <= 1e-3 * 64 * 100 * 400


@pytest.mark.parametrize("level", [level for level in _core.isa_levels() if level not in LEVELS])
def test_other_levels_add_up_floats(tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXNN_ISA", level)
    assert "half" not in flexnn.plan(compiled(net(), tmp_path)).kernels
