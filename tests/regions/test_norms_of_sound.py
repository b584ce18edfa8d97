"""Networks that make sound: maps whose length data decide are normalised over it, by numbers of a style; one template
serves all lengths.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from flexnn.regions import templates
from tests.support.compare import check_model, ops_of
from tests.support.regions import F32, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node


def styled(
    rank: int = 3, *, scale: bool = True, bias: bool = True, batch: int = 1, length: int | str = "n"
) -> onnx.ModelProto:
    """Maps of 6 channels, normalised over all that follows these, scaled and moved by what a style says."""
    axes, ones = list(range(2, rank)), [1] * (rank - 2)
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=axes),
        node("Sub", ["x", "mean"], ["d"]),
        node("Mul", ["d", "d"], ["square"]),
        node("ReduceMean", ["square"], ["variance"], axes=axes),
        node("Add", ["variance", "epsilon"], ["more"]),
        node("Sqrt", ["more"], ["root"]),
        node("Div", ["d", "root"], ["normal"]),
        node("Add", ["gamma", "one"], ["scale"]),
        node("Mul", ["scale", "normal"] if scale else ["normal", "two"], ["scaled"]),
        node("Add", ["scaled", "beta" if bias else "two"], ["y"]),
    ]
    constants = {n: np.array(v, np.float32) for n, v in {"epsilon": 1e-5, "one": 1, "two": 2}.items()}
    shape = [batch, 6, *([length] * (rank - 2))]
    inputs = [value("x", F32, shape), value("gamma", F32, [1, 6, *ones]), value("beta", F32, [1, 6, *ones])]
    return model_of(graph_of(nodes, inputs, [value("y", F32, shape)], constants))


def feed_of(*shape: int) -> dict[str, np.ndarray]:
    ones = [1] * (len(shape) - 2)
    return {"x": numbers(*shape) + 3, "gamma": numbers(1, 6, *ones, seed=1), "beta": numbers(1, 6, *ones, seed=2)}


@pytest.mark.parametrize(
    ("rank", "scale", "bias", "batch"),
    [(3, 1, 1, 1), (3, 1, 0, 2), (3, 0, 1, 1), (3, 0, 0, 2), (4, 1, 1, 2), (4, 0, 0, 1)],
)
def test_one_template_serves_all_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, scale: int, bias: int, batch: int
) -> None:
    model, traced = styled(rank, scale=bool(scale), bias=bool(bias), batch=batch), []
    own = templates._with_trail
    monkeypatch.setattr(templates, "_with_trail", lambda *args: traced.append(args[1]) or own(*args))
    with opened(tmp_path, model) as session:
        check_run(session, model, feed_of(batch, 6, *([30] * (rank - 2))))
        traced.clear()
        for n in (45, 7, 61):
            check_run(session, model, feed_of(batch, 6, *([n] * (rank - 2))))
    assert not traced


def test_a_style_is_part_of_the_norm() -> None:
    graph = check_model(styled(length=40), feeds=feed_of(1, 6, 40))
    assert [op for op in ops_of(graph) if op not in ("copy", "reshape")] == ["binary", "instance_norm"]


def test_numbers_along_the_length_are_no_style() -> None:
    """They are as many as places, not as channels: a product of its own, or a layer_norm's scale."""
    model = styled(length=6)
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 1
    model.graph.input[1].type.tensor_type.shape.dim[2].dim_value = 6
    feed = feed_of(1, 6, 6)
    graph = check_model(model, feeds={**feed, "gamma": numbers(1, 1, 6, seed=1)})
    assert "instance_norm" not in ops_of(graph)


def cut() -> onnx.ModelProto:
    """A model that asks where a window of 5 numbers, cut to x's length, is above a limit, as inverse transforms do."""
    nodes = [
        node("Shape", ["x"], ["length"]),
        node("Slice", ["window", "start", "length"], ["own"]),
        node("Greater", ["own", "limit"], ["is_above"]),
        node("NonZero", ["is_above"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["found"]),
        node("ScatterND", ["x", "rows", "found"], ["same"]),
        node("Add", ["same", "same"], ["y"]),
    ]
    constants = {
        "window": np.array([0, 0.5, 1, 0.5, 0], np.float32),
        "start": np.array([0], np.int64),
        "limit": np.array(1e-9, np.float32),
    }
    return model_of(graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])], constants))


def test_a_slice_to_behind_the_end_is_the_same_always(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, traced = cut(), []
    own = templates._with_trail
    monkeypatch.setattr(templates, "_with_trail", lambda *args: traced.append(args[1]) or own(*args))
    with opened(tmp_path, model) as session:
        for n in (30, 4):
            check_run(session, model, {"x": numbers(n)})
        traced.clear()
        for n in (52, 37, 5, 30, 4):
            check_run(session, model, {"x": numbers(n)})
        assert not traced
        for n in (3, 2):
            check_run(session, model, {"x": numbers(n)})
