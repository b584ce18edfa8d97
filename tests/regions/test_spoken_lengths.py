"""Models of speech: what weights make of a text says how long it is spoken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.regions import I64, Binds, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node
WIDTH, LETTERS = 32, 200


def speech() -> onnx.ModelProto:
    """Letters [n], embedded, a convolution over them, and as many samples as the sum of what it makes says."""
    nodes = [
        node("Gather", ["table", "letters"], ["rows"]),
        node("Transpose", ["rows"], ["columns"], perm=[1, 0]),
        node("Unsqueeze", ["columns", "zeros"], ["map"]),
        node("Pad", ["map", "pads"], ["padded"]),
        node("Conv", ["padded", "w", "bias"], ["made"]),
        node("Abs", ["made"], ["lengths"]),
        node("ReduceMean", ["lengths"], ["length"], keepdims=0),
        node("Mul", ["length", "many"], ["long"]),
        node("Ceil", ["long"], ["whole"]),
        node("Cast", ["whole"], ["count"], to=TensorProto.INT64),
        node("Range", ["zero", "count", "one"], ["places"]),
        node("Cast", ["places"], ["times"], to=TensorProto.FLOAT),
        node("Mul", ["times", "length"], ["y"]),
    ]
    constants = {
        "table": numbers(LETTERS, WIDTH, seed=1),
        "w": numbers(64, WIDTH, 3, seed=2),
        "bias": numbers(64, seed=3),
        "pads": np.array([0, 0, 1, 0, 0, 1]),
        "zeros": np.array([0]),
        "zero": np.array(0),
        "one": np.array(1),
        "many": np.float32(9),
    }
    return model_of(graph_of(nodes, [value("letters", I64, ["n"])], [value("y", dims=["k"])], constants))


def test_texts_of_one_length_are_not_bound_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their letters are few integers, but what weights make of them is computed in the run."""
    model, rng = speech(), np.random.default_rng(0)
    with opened(tmp_path, model) as session:
        for count in (11, 7, 30):
            check_run(session, model, {"letters": rng.integers(0, LETTERS, count)})
        binds = Binds(monkeypatch)
        for count in (11, 30, 7, 11, 7):
            check_run(session, model, {"letters": rng.integers(0, LETTERS, count)})
        assert not binds.count
