"""Weights that depend on sizes, or that only some shapes read, as torch exports attention and learned queries: the
artifact holds them, and its templates serve all batches.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from flexnn.graph import bind
from tests.support.regions import Binds, check_run, graph_of, model_of, numbers, opened, value

node = helper.make_node
BATCHES = 1, 3, 2, 5, 9
WIDTH = 24


def projection(transposed: bool) -> onnx.ModelProto:
    """x [b, n, WIDTH] times a slice of a weight [3 WIDTH, WIDTH], whose ends are WIDTH n / n and twice that."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "two"], ["n"]),
        node("Mul", ["n", "width"], ["wide"]),
        node("Div", ["wide", "n"], ["c"]),
        node("Add", ["c", "c"], ["end"]),
        node("Slice", ["w", "c", "end", "zero"], ["part"]),
        *([node("Transpose", ["part"], ["side"], perm=[1, 0])] if transposed else []),
        node("MatMul", ["x", "side" if transposed else "part"], ["product"]),
        node("Slice", ["bias", "c", "end", "zero"], ["b"]),
        node("Add", ["product", "b"], ["y"]),
    ]
    constants = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "width": np.array([WIDTH]),
        "w": numbers(3 * WIDTH, WIDTH, seed=1),
        "bias": numbers(3 * WIDTH, seed=2),
    }
    ports = [value("x", dims=["b", "n", WIDTH])], [value("y", dims=["b", "n", WIDTH])]
    return model_of(graph_of(nodes, *ports, constants))


def queries() -> onnx.ModelProto:
    """Queries that are constants, once for each batch of x [b, n, 24]: few batches of them are folded, products too."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["b"]),
        node("Concat", ["b", "rest"], ["shape"], axis=0),
        node("Expand", ["q", "shape"], ["each"]),
        node("MatMul", ["each", "w"], ["asked"]),
        node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["asked", "turned"], ["y"]),
    ]
    constants = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "rest": np.array([500, WIDTH]),
        "q": numbers(1, 500, WIDTH, seed=1),
        "w": numbers(WIDTH, WIDTH, seed=2),
    }
    ports = [value("x", dims=["b", "n", WIDTH])], [value("y", TensorProto.FLOAT, ["b", 500, "n"])]
    return model_of(graph_of(nodes, *ports, constants))


def test_queries_are_folded_for_few_batches_only() -> None:
    assert 500 * WIDTH * 4 * 2 < bind.FOLDED_BYTES < 500 * WIDTH * 4 * 3


@pytest.mark.parametrize("model", [projection(True), projection(False), queries()], ids=["turned", "sliced", "queries"])
def test_all_batches_take_the_templates_of_the_artifact(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, model) as session:
        binds = Binds(monkeypatch)
        for batch in BATCHES:
            check_run(session, model, {"x": numbers(batch, 7, WIDTH)})
        assert binds.count == 0
        assert not session.statistics()["hosted_operators"]


def test_products_of_what_a_run_fills_read_the_same_panels(tmp_path: Path) -> None:
    """Keras multiplies a state of zeros once before its loop."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["state"], value=helper.make_tensor("ones", TensorProto.FLOAT, [1], [1.0])),
        node("MatMul", ["state", "w"], ["first"]),
        node("MatMul", ["x", "w"], ["second"]),
        node("Add", ["first", "second"], ["y"]),
    ]
    w = numbers(512, 512, seed=1) / 16
    model = model_of(graph_of(nodes, [value("x", dims=["b", 512])], [value("y", dims=["b", 512])], {"w": w}))
    with opened(tmp_path, model) as session:
        for batch in (1, 4, 2, 80):
            check_run(session, model, {"x": numbers(batch, 512)})
        assert not session.statistics()["hosted_operators"]
    assert (tmp_path / "m.flexnn").stat().st_size < 1.5 * w.nbytes


@pytest.mark.parametrize("op", ["Mul", "Div", "Add"])
def test_products_scaled_by_a_size_run_at_all_sizes(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["product"]),
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"], axis=0),
        node("Cast", ["n"], ["number"], to=TensorProto.FLOAT),
        node(op, ["product", "number"], ["y"]),
    ]
    constants = {"w": numbers(WIDTH, 32, seed=1), "one": np.array(1)}
    ports = [value("x", dims=["b", "n", WIDTH])], [value("y", dims=["b", "n", 32])]
    model = model_of(graph_of(nodes, *ports, constants))
    with opened(tmp_path, model) as session:
        binds = Binds(monkeypatch)
        for rows in (64, 96, 1, 7):
            check_run(session, model, {"x": numbers(2, rows, WIDTH)})
        assert binds.count == 0
        assert not session.statistics()["hosted_operators"]
