"""Random operators: their numbers are of the right shape, type and distribution, the same with a seed, else others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import flexnn
from flexnn.graph import load_model
from flexnn.graph.evaluate import MemoryNeededError, evaluate
from flexnn.graph.ir import GraphError
from tests.support.compare import load, model_of, ops_of, run_on_core
from tests.support.nodes import one_node, run_all_ways
from tests.support.reference import run_graph

F32 = np.float32
X = np.zeros((41, 73), F32)
LIKE = {"RandomNormal": "RandomNormalLike", "RandomUniform": "RandomUniformLike"}
TYPES = {1: F32, 10: np.float16, 11: np.float64}


def drawn(folder: Path, operator: str, inputs: dict[str, np.ndarray], kind: Any, **attrs: Any) -> list[np.ndarray]:
    """Outputs of all ways to run it."""
    return [y for (y,) in run_all_ways(folder, operator, inputs, [kind], domain="", **attrs)]


def check_noise(operator: str, y: np.ndarray) -> None:
    wide = y.astype(np.float64)
    if operator == "RandomNormal":
        assert abs(wide.mean() - 3) < 0.06
        assert abs(wide.std() - 0.5) < 0.03
        assert abs(((wide - 3) ** 3).mean()) < 0.04
        return
    assert y.min() >= -2
    assert y.max() < 6
    counts = np.histogram(wide, 8, (-2, 6))[0] / y.size
    assert np.abs(counts - 1 / 8).max() < 0.03


@pytest.mark.parametrize("operator", LIKE)
@pytest.mark.parametrize("number", TYPES)
@pytest.mark.parametrize("is_like", [False, True])
def test_noise(operator: str, number: int, is_like: bool, tmp_path: Path) -> None:
    told: dict[str, Any] = {"mean": 3.0, "scale": 0.5} if operator == "RandomNormal" else {"low": -2.0, "high": 6.0}
    inputs = {"x": X} if is_like else {}
    told |= {"dtype": number} | ({} if is_like else {"shape": list(X.shape)})
    made = drawn(tmp_path, LIKE[operator] if is_like else operator, inputs, TYPES[number], **told)
    for y in made:
        assert (y.shape, y.dtype) == (X.shape, TYPES[number])
        check_noise(operator, y)
    assert len({y.tobytes() for y in made}) == len(made)


@pytest.mark.parametrize("operator", [*LIKE, *LIKE.values(), "Bernoulli", "Multinomial"])
def test_a_seed_makes_the_same_numbers_in_each_run_and_session(operator: str, tmp_path: Path) -> None:
    inputs = {} if operator in LIKE else {"x": X + F32(0.5)}
    attrs: dict[str, Any] = {"shape": [41, 73]} if operator in LIKE else {}
    attrs |= {"sample_size": 100} if operator == "Multinomial" else {}
    dtype = np.int32 if operator == "Multinomial" else F32
    for seed in (4.5, 6.0):
        made = drawn(tmp_path, operator, inputs, dtype, seed=seed, **attrs)
        assert len({y.tobytes() for y in made}) == 1
        attrs["seed"] = 5.0
        other = drawn(tmp_path, operator, inputs, dtype, **attrs)
        assert other[0].tobytes() != made[0].tobytes()
        del attrs["seed"]
    made = drawn(tmp_path, operator, inputs, dtype, **attrs)
    assert len({y.tobytes() for y in made}) == len(made)


def test_each_run_of_a_session_draws_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(one_node("RandomUniformLike", {"x": X}, [F32], domain=""))
    with flexnn.Session(path) as session:
        runs = [session.run(None, {"x": X})[0].tobytes() for _ in range(5)]
    assert len(set(runs)) == 5


@pytest.mark.parametrize(
    ("number", "dtype"), [(None, F32), (7, np.int64), (9, np.bool_), (2, np.uint8), (11, np.float64)]
)
def test_yes_or_no(number: int | None, dtype: Any, tmp_path: Path) -> None:
    shares = np.repeat(F32([0, 0.25, 0.75, 1]), 4000).reshape(4, 4000)
    told = {} if number is None else {"dtype": number}
    for y in drawn(tmp_path, "Bernoulli", {"x": shares}, dtype, **told):
        assert (y.shape, y.dtype) == (shares.shape, dtype)
        assert set(np.unique(y).tolist()) == {0, 1}
        assert np.abs(y.mean(1, dtype=np.float64) - shares[:, 0]).max() < 0.03
        assert y[0].sum() == 0
        assert y[3].sum() == 4000


@pytest.mark.parametrize(("number", "dtype"), [(6, np.int32), (7, np.int64)])
def test_picks_of_classes(number: int, dtype: Any, tmp_path: Path) -> None:
    with np.errstate(divide="ignore"):
        logs = np.log(F32([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [0, 0, 3]])) + F32([[0], [50], [-50]])
    for y in drawn(tmp_path, "Multinomial", {"x": logs}, dtype, dtype=number, sample_size=9000):
        assert (y.shape, y.dtype) == ((3, 9000), dtype)
        counts = np.stack([np.bincount(row, minlength=3) for row in y]) / 9000
        assert np.abs(counts - [[0.1, 0.2, 0.7], [0.5, 0.5, 0], [0, 0, 1]]).max() < 0.03
        assert counts[1, 2] == 0


def test_numbers_stay_below_the_end() -> None:
    """Rounding to 16 bits reaches the end often."""
    for dtype in (10, 1, 11):
        (y,) = evaluate("RandomUniform", {"shape": [100_000], "low": 1.0, "high": 1.01, "dtype": dtype}, [], 22)
        assert y.min() >= 1
        assert y.max() < 1.01


def test_what_they_take_is_said_before() -> None:
    with pytest.raises(MemoryNeededError):
        evaluate("RandomNormal", {"shape": [1 << 40]}, [], 22)
    with pytest.raises(MemoryNeededError):
        evaluate("Multinomial", {"sample_size": 1 << 40}, [np.zeros((1, 3), F32)], 22)
    with pytest.raises(GraphError, match="no number that is finite"):
        evaluate("Multinomial", {}, [np.full((1, 3), -np.inf, F32)], 22)


@pytest.mark.parametrize(
    ("operator", "attrs", "says"),
    [
        ("RandomUniform", {"shape": [3, -1]}, "attribute shape="),
        ("RandomNormal", {"shape": [-2]}, "attribute shape="),
        ("RandomUniform", {}, "attribute shape is missing"),
        ("RandomUniformLike", {"dtype": 99}, "attribute dtype is 99"),
        ("Multinomial", {"sample_size": 0}, "attribute sample_size="),
        ("RandomNormal", {"shape": [2], "dtype": 7}, "int64"),
    ],
)
def test_files_that_are_wrong(operator: str, attrs: dict[str, Any], says: str, tmp_path: Path) -> None:
    inputs = {} if operator in LIKE else {"x": X}
    path = tmp_path / "m.onnx"
    path.write_bytes(one_node(operator, inputs, [F32], domain="", **attrs))
    with pytest.raises(GraphError, match=says):
        load_model(path)


@pytest.mark.parametrize("operator", LIKE.values())
@pytest.mark.parametrize("count", [1, 511, 1024, 5000])
def test_the_core_draws_what_the_reference_does(operator: str, count: int) -> None:
    """Philox and Box-Muller's transform, for a seed."""
    told: dict[str, Any] = {"mean": 3.0, "scale": 0.5} if "Normal" in operator else {"low": -2.0, "high": 6.0}
    x = np.zeros(count, F32)
    graph = load(model_of([helper.make_node(operator, ["x"], ["y"], seed=7.0, **told)], {"x": (count,)}, ["y"]))
    assert ops_of(graph) == ["noise"]
    (made, meant) = (run(graph, {"x": x})["y"] for run in (run_on_core, run_graph))
    np.testing.assert_allclose(made, meant, atol=1e-5)


def test_noise_of_fixed_and_open_shapes_is_drawn_in_the_engine(tmp_path: Path) -> None:
    """Two nodes alike draw other numbers, and so does each turn of a loop."""
    body = helper.make_graph(
        [
            helper.make_node("RandomNormalLike", ["x"], ["noise"]),
            helper.make_node("RandomNormalLike", ["x"], ["other"]),
            helper.make_node("Sub", ["noise", "other"], ["row"]),
            helper.make_node("Identity", ["go"], ["goes"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])],
        [helper.make_tensor_value_info("goes", 9, []), helper.make_tensor_value_info("row", 1, ["n"])],
    )
    nodes = [helper.make_node("Loop", ["turns", ""], ["y"], body=body)]
    ports = [helper.make_tensor_value_info("x", 1, ["n"])], [helper.make_tensor_value_info("y", 1, ["t", "n"])]
    graph = helper.make_graph(nodes, "g", *ports, [numpy_helper.from_array(np.array(5), "turns")])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    with flexnn.Session(path) as session:
        rows = np.concatenate([session.run(None, {"x": np.zeros(3000, F32)})[0] for _ in range(2)])
        assert not session.statistics()["hosted_operators"]
    assert len({row.tobytes() for row in rows}) == 10
    assert abs(rows.std() - np.sqrt(2)) < 0.05
    assert np.abs(np.corrcoef(rows) - np.eye(10)).max() < 0.1


def test_a_node_that_computes_again_draws_the_same() -> None:
    """A plan may make a map twice (planning/twice.py), by a copy of its node; another run draws other numbers."""
    graph = load(model_of([helper.make_node("RandomNormalLike", ["x"], ["y"])], {"x": (3000,)}, ["y"]))
    (node,) = graph.nodes
    graph.tensors.append(replace(graph.tensors[node.outputs[0]], name="z"))
    graph.nodes.append(replace(node, outputs=[len(graph.tensors) - 1]))
    graph.outputs.append(len(graph.tensors) - 1)
    made = run_on_core(graph, {"x": np.zeros(3000, F32)})
    assert made["y"].std() > 0.9
    np.testing.assert_array_equal(made["y"], made["z"])
