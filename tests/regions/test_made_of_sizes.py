"""Numbers that nodes make of a run's shapes: folded where they are few, computed in the arena where they are many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import flexnn
from tests.support.regions import F32, Binds, check_run, compiled, graph_of, model_of, numbers, value

node = helper.make_node
TWO = helper.make_tensor("value", TensorProto.FLOAT, [1], [2.0])

MADE: dict[str, list[NodeProto]] = {
    "range": [node("Range", ["zero", "m", "three"], ["made"])],
    "range_of_floats": [
        node("Cast", ["m"], ["limit"], to=TensorProto.FLOAT),
        node("Range", ["half", "limit", "step"], ["made"]),
    ],
    "filled": [node("ConstantOfShape", ["size"], ["made"], value=TWO)],
    "counted": [
        node("ConstantOfShape", ["size"], ["c"], value=TWO),
        node("NonZero", ["c"], ["made"]),
    ],
    "tiled": [node("Tile", ["row", "size"], ["t"]), node("CumSum", ["t", "zero"], ["made"])],
    "expanded": [node("Expand", ["row", "square"], ["made"])],
    "eye": [
        node("ConstantOfShape", ["square"], ["c"], value=TWO),
        node("EyeLike", ["c"], ["e"], k=3),
        node("Trilu", ["c"], ["t"], upper=1),
        node("Add", ["e", "t"], ["made"]),
    ],
}
"""Nodes that make ``made`` of 1000 n = ``m``, [m] = ``size`` and [n, 100 n] = ``square``."""
CONSTANTS = {
    "zero": np.array(0),
    "three": np.array(3),
    "thousand": np.array(1000),
    "at": np.array([0]),
    "one_by_hundred": np.array([1, 100]),
    "row": np.array([5]),
    "half": np.array(0.5, np.float32),
    "step": np.array(0.75, np.float32),
}


def made(path: Path, name: str) -> None:
    """Write a model that adds the largest sine of what is made, less the mean of x, to each number of x [n, 4]."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Mul", ["n", "thousand"], ["m"]),
        node("Unsqueeze", ["m", "at"], ["size"]),
        node("Mul", ["n", "one_by_hundred"], ["square"]),
        *MADE[name],
        node("Cast", ["made"], ["f"], to=TensorProto.FLOAT),
        node("Sin", ["f"], ["g"]),
        node("ReduceMean", ["x"], ["mean"], keepdims=0),
        node("Sub", ["g", "mean"], ["less"]),
        node("ReduceMax", ["less"], ["q"], keepdims=0),  # a sum of as many would differ by its order
        node("Add", ["x", "q"], ["y"]),
    ]
    given = [numpy_helper.from_array(array, key) for key, array in CONSTANTS.items()]
    graph = graph_of(nodes, [value("x", F32, ["n", 4])], [value("y", F32, ["n", 4])])
    graph.initializer.extend(given)
    onnx.save(model_of(graph), path)


@pytest.mark.parametrize("memory", [None, 24 << 20])
@pytest.mark.parametrize("name", MADE)
def test_few_and_many(name: str, memory: int | None, tmp_path: Path) -> None:
    made(tmp_path / "model.onnx", name)
    flexnn.compile(tmp_path / "model.onnx", tmp_path / "model.flexnn")
    reference = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    with flexnn.Session(tmp_path / "model.flexnn", memory) as session:
        for rows in (1, 60, 2, 61, 7, 90, 1, 60):
            x = rng.standard_normal((rows, 4)).astype(np.float32)
            (want,) = reference.run(None, {"x": x})
            (got,) = session.run(None, {"x": x})
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_many_are_no_constants(tmp_path: Path) -> None:
    made(tmp_path / "model.onnx", "tiled")
    flexnn.compile(tmp_path / "model.onnx", tmp_path / "model.flexnn")
    with flexnn.Session(tmp_path / "model.flexnn", 16 << 20) as session:
        session.run(None, {"x": np.ones((1, 4), np.float32)})
        few = session.session_bytes
        with pytest.raises(flexnn.BudgetError) as refused:  # 64 MB of running sums
            session.run(None, {"x": np.ones((8000, 4), np.float32)})
        assert refused.value.minimum > 64_000_000
        session.run(None, {"x": np.ones((1, 4), np.float32)})
        assert session.session_bytes <= few + (1 << 20)


def lstm_of_zeros(hidden: int) -> onnx.ModelProto:
    """An LSTM of x [n, 9, 8] in both directions that begins with zeros for each row, as Keras writes it."""
    rng = np.random.default_rng(3)
    weights = {
        name: (rng.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in (("w", (2, 4 * hidden, 8)), ("r", (2, 4 * hidden, hidden)))
    }
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "at", "one", "at"], ["n"]),
        node("Concat", ["n", "width"], ["target"], axis=0),
        node("Expand", ["nothing", "target"], ["rows"]),
        node("Unsqueeze", ["rows", "at"], ["half"]),
        node("Concat", ["half", "half"], ["begin"], axis=0),
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("LSTM", ["t", "w", "r", "", "", "begin", "begin"], ["y"], hidden_size=hidden, direction="bidirectional"),
    ]
    constants = {
        "one": np.array([1]),
        "at": np.array([0]),
        "width": np.array([hidden]),
        "nothing": np.zeros((), np.float32),
        **weights,
    }
    graph = graph_of(nodes, [value("x", F32, ["n", 9, 8])], [value("y", F32, [9, 2, "n", hidden])], constants)
    return model_of(graph)


@pytest.mark.parametrize("memory", [None, 24 << 20])
def test_states_made_of_a_batch(memory: int | None, tmp_path: Path) -> None:
    """States above 64 KiB were looked for in the artifact, which has those of no batch."""
    model = lstm_of_zeros(224)
    path = compiled(tmp_path, model)
    for batches in ((40,), (30, 41), (100, 3)):  # new sessions: what one met does not help another
        with flexnn.Session(path, memory) as session:
            for n in batches:
                check_run(session, model, {"x": numbers(n, 9, 8)})
            assert not session.statistics()["hosted_operators"]


def test_a_batch_of_many_has_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lstm_of_zeros(224)
    path = compiled(tmp_path, model)
    binds = Binds(monkeypatch)
    for n in (40, 100, 300):
        with flexnn.Session(path) as session:
            check_run(session, model, {"x": numbers(n, 9, 8)})
    assert not binds.count


@pytest.mark.parametrize("kind", ["ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keeps", [0, 1])
def test_sizes_combined_along_axes_are_sizes(
    kind: str, keeps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are a product of some dimensions: Keras writes dense layers of more than two of them so."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["free"]),
        *([node(kind, ["free", "at"], ["p"], keepdims=keeps)] if kind == "ReduceSum" else []),
        *([node(kind, ["free"], ["p"], axes=[-1], keepdims=keeps)] if kind != "ReduceSum" else []),
        node("Reshape", ["p", "one"], ["rows"]),
        node("ConstantOfShape", ["rows"], ["made"], value=TWO),
        node("MatMul", ["x", "w"], ["y"]),
        node("Concat", ["rows", "free"], ["counted"], axis=0),
    ]
    constants = {
        "first": np.array([0, 1]),
        "at": np.array([0]),
        "one": np.array([1]),
        "w": numbers(4, 5),
    }
    outputs = [value("made", F32, ["k"]), value("y", F32, ["n", "m", 5]), value("counted", TensorProto.INT64, [3])]
    model = model_of(graph_of(nodes, [value("x", F32, ["n", "m", 4])], outputs, constants))
    path = compiled(tmp_path, model)
    binds = Binds(monkeypatch)
    with flexnn.Session(path) as session:
        for n, m in ((6, 40), (5, 70), (7, 33)):
            check_run(session, model, {"x": numbers(n, m, 4)})
    assert not binds.count
