"""Numbers below the smallest normal float32 count as 0 where products are added, on every level, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from flexnn import _core
from tests.support.compare import load, model_of, ops_of, run_on_core

TINY = np.float32(1e-39)


def _model(op: str, constants: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    shape = {"Conv": (1, 16, 6, 6), "LSTM": (3, 2, 4)}.get(op, (8, 16))
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, ["x", *constants], names, **attributes)
    return model_of([node], {"x": shape}, names, constants)


def _full(value: np.float32, *shape: int) -> np.ndarray:
    return np.full(shape, value, np.float32)


SUMS = [
    _model("Conv", {"w": _full(TINY, 16, 16, 3, 3)}),
    _model("Conv", {"w": _full(TINY, 16, 1, 3, 3)}, group=16),
    _model("MatMul", {"w": _full(TINY, 16, 8)}),
    model_of([helper.make_node("MatMul", ["x", "b"], ["y0"])], {"x": (8, 16), "b": (16, 8)}, ["y0"]),
]


@pytest.mark.parametrize("level", _core.isa_levels())
@pytest.mark.parametrize("model", SUMS, ids=["conv", "dwconv", "few rows", "matmul"])
def test_they_are_zeros_in_sums_of_products(model: onnx.ModelProto, level: str) -> None:
    graph = load(model)
    feeds = {graph.tensors[i].name: _full(np.float32(1), *graph.tensors[i].shape) for i in graph.inputs}
    if "b" in feeds:
        feeds["b"][:] = TINY
    assert not run_on_core(graph, feeds, level)["y0"].any()
    # The caller's arithmetic is as before.
    assert np.float32(TINY) * _full(np.float32(0.5), 4).max() > 0


@pytest.mark.parametrize("level", _core.isa_levels())
def test_hidden_values_of_recurrent_layers_too(level: str) -> None:
    weights = {"w": _full(np.float32(0), 1, 16, 4), "r": _full(TINY, 1, 16, 4)}
    graph = load(_model("LSTM", weights, hidden_size=4))
    assert "recurrent" in ops_of(graph)
    got = run_on_core(graph, {"x": _full(np.float32(1), 3, 2, 4)}, level)
    assert not any(values.any() for values in got.values())


@pytest.mark.parametrize("level", _core.isa_levels())
@pytest.mark.parametrize("op", ["Mul", "Add", "Max"])
def test_elementwise_operators_keep_them(op: str, level: str) -> None:
    graph = load(_model(op, {"w": _full(TINY, 8, 16)}))
    x = _full(np.float32(1 if op == "Mul" else 0), 8, 16)
    np.testing.assert_array_equal(run_on_core(graph, {"x": x}, level)["y0"], _full(TINY, 8, 16))
