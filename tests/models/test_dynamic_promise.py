"""The budget is kept where data or shapes decide sizes: ten models that once took many times their budgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench.budgets.dynamic import flexnn, named_minimum
from bench.budgets.dynamic_graphs import random_graph
from bench.process import ALLOWANCE, MIB
from tests.support.regions import F32, I64, graph_of, model_of, value

Made = tuple[onnx.ModelProto, dict[str, np.ndarray], int]
"""A model, its inputs, and the budget in MiB."""
node = helper.make_node
NUMBERS = np.random.default_rng(3).standard_normal(1 << 20).astype(np.float32)


def non_zero() -> Made:
    nodes = [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["y"])]
    graph = graph_of(nodes, [value("x", F32, ["n", "m"])], [value("y", I64, [2, "k"])])
    return model_of(graph), {"x": np.abs(NUMBERS).reshape(1024, 1024)}, 16


def spectrum() -> Made:
    nodes = [node("Relu", ["x"], ["r"]), node("DFT", ["r"], ["y"], axis=1)]
    graph = graph_of(nodes, [value("x", F32, ["b", "n", 1])], [value("y", F32, ["b", "n", 2])])
    return model_of(graph), {"x": NUMBERS.reshape(4, -1, 1)}, 24


def unique() -> Made:
    nodes = [node("Relu", ["x"], ["r"]), node("Unique", ["r"], ["y", "first", "inverse", "counts"])]
    outputs = [value("y", F32, ["k"]), value("inverse", I64, ["n"])]
    return model_of(graph_of(nodes, [value("x", F32, ["n"])], outputs)), {"x": NUMBERS}, 24


def made_of_shape() -> Made:
    zero = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("ConstantOfShape", ["shape"], ["c"], value=zero),
        node("NonZero", ["c"], ["y"]),
    ]
    inputs = [value("x", F32, ["n"]), value("shape", I64, [1])]
    graph = graph_of(nodes, inputs, [value("r", F32, ["n"]), value("y", I64, [1, "k"])])
    return model_of(graph), {"x": NUMBERS[:64], "shape": np.array([16 << 20])}, 24


def stacked() -> Made:
    body = graph_of(
        [node("Identity", ["going"], ["again"]), node("Relu", ["v"], ["w"]), node("Identity", ["w"], ["row"])],
        [value("i", I64, []), value("going", TensorProto.BOOL, []), value("v", F32, ["n"])],
        [value("again", TensorProto.BOOL, []), value("w", F32, ["n"]), value("row", F32, ["n"])],
        name="body",
    )
    nodes = [node("Loop", ["trips", "", "x"], ["last", "y"], body=body)]
    inputs = [value("trips", I64, []), value("x", F32, ["n"])]
    graph = graph_of(nodes, inputs, [value("last", F32, ["n"]), value("y", F32, ["t", "n"])])
    return model_of(graph), {"trips": np.array(256), "x": NUMBERS[: 1 << 18]}, 20


def folded() -> Made:
    """A million numbers for each row of an input of few rows: they depend on its shape alone."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Mul", ["s", "million"], ["m"]),
        node("Tile", ["row", "m"], ["t"]),
        node("CumSum", ["t", "zero"], ["c"]),
        node("ReduceMax", ["c"], ["most"], keepdims=0),
        node("Cast", ["most"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["x", "f"], ["y"]),
    ]
    graph = graph_of(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])])
    given = {"million": [1 << 20], "row": [5], "zero": 0}
    graph.initializer.extend(onnx.numpy_helper.from_array(np.array(v), name) for name, v in given.items())
    return model_of(graph), {"x": NUMBERS[:16]}, 24


def baseline(folder: Path) -> int:
    """Return the resident memory of the command line before it opens a session, without its inputs."""
    small = model_of(graph_of([node("Relu", ["x"], ["y"])], [value("x", F32, ["n"])], [value("y", F32, ["n"])]))
    onnx.save(small, folder / "small.onnx")
    np.savez(folder / "small.npz", x=NUMBERS[:4])
    assert flexnn("compile", folder / "small.onnx", "-o", folder / "small.flexnn")["status"] == 0
    done = flexnn("run", folder / "small.flexnn", "--input", folder / "small.npz", "--json")
    return int(json.loads(done["out"])["baseline_rss"])


def held() -> Made:
    """A loop that Python walks stacks 24 MiB, which the caller holds while the next run makes them again."""
    model, x = random_graph(194)
    return model, {"x": x}, 56


def looked_ahead() -> Made:
    """A refused run finds the smallest budget without arrays as large as its own."""
    model, x = random_graph(180)
    return model, {"x": x}, 71


def beside_slots() -> Made:
    """A stretch runs alone while another one, which stays open, has slots for its values."""
    model, x = random_graph(82)
    return model, {"x": x}, 76


def freed_rows() -> Made:
    """A loop that Python walks stacks rows of 0.9 MiB; freed, they are in the way of what the engine stacks next."""
    model, x = random_graph(7024)
    return model, {"x": x}, 51


MADE = non_zero, spectrum, unique, made_of_shape, stacked, folded, held, looked_ahead, beside_slots, freed_rows


@pytest.mark.parametrize("make", MADE)
def test_dynamic_promise(make: Callable[[], Made], tmp_path: Path) -> None:
    model, feeds, budget_mib = make()
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", **feeds)
    assert flexnn("compile", tmp_path / "model.onnx", "-o", tmp_path / "model.flexnn")["status"] == 0
    more = "--input", tmp_path / "in.npz", "--memory", budget_mib * MIB, "--repeat", 1, "--json"
    done = flexnn("run", tmp_path / "model.flexnn", *more)
    assert done["status"] in (0, 2), done["err"]
    if done["status"] == 2:
        assert done["err"].startswith("error: ")
        assert done["err"].count("\n") == 1
        assert (named_minimum(done) or 0) > budget_mib * MIB
    before = baseline(tmp_path) + sum(v.nbytes for v in feeds.values())
    over = done["peak"] - before - budget_mib * MIB
    assert over <= ALLOWANCE, f"{over / MIB:.1f} MiB more than the budget"
