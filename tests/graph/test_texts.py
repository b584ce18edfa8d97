"""Inputs and constants that are texts, which operators look up, against onnxruntime."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import flexnn
import flexnn.ort
from flexnn.graph import load_model
from flexnn.graph.ir import GraphError
from flexnn.run.feeds import Feeds
from tests.support.nodes import check_node, one_node, run_at_smallest

F32, I64 = np.float32, np.int64
KNOWN, OTHERS = ["red", "green", "blue", "größer", ""], ["purple", "Red", "0"]
ML = "ai.onnx.ml"


def texts(*shape: int, seed: int = 0, others: bool = True) -> np.ndarray:
    """Texts that the model knows, and others."""
    return np.random.default_rng(seed).choice(np.array(KNOWN + OTHERS * others, object), shape)


@pytest.mark.parametrize("shape", [(9,), (4, 3), (0,), (2, 0)])
@pytest.mark.parametrize(
    ("kind", "values"),
    [(I64, {"values_int64s": [5, 4, 3, 2, 1]}), (F32, {"values_floats": [0.5, 4, 3, 2, 1], "default_float": -7.0})],
)
def test_numbers_for_texts(kind: Any, values: dict[str, Any], shape: tuple[int, ...], tmp_path: Path) -> None:
    check_node(tmp_path, "LabelEncoder", {"x": texts(*shape)}, [kind], ml=2, keys_strings=KNOWN, **values)


@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize("shape", [(9,), (4, 3), (0, 3)])
def test_one_of_many(zeros: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = texts(*shape, others=bool(zeros))
    check_node(tmp_path, "OneHotEncoder", {"x": x}, [F32], cats_strings=KNOWN, zeros=zeros)


def test_texts_that_are_no_category_are_refused_in_the_run(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(one_node("OneHotEncoder", {"x": texts(3)}, [F32], cats_strings=KNOWN, zeros=0))
    with flexnn.Session(path) as session, pytest.raises(flexnn.FlexNNError, match="out of range"):
        session.run(None, {"x": np.array(["red", "purple", "red"])})


def test_operators_of_the_first_versions(tmp_path: Path) -> None:
    check_node(tmp_path, "LabelEncoder", {"x": texts(9)}, [I64], ml=1, classes_strings=KNOWN, default_int64=-9)
    cats = {"cats_strings": KNOWN, "cats_int64s": [9, 8, 7, 6, 5]}
    check_node(tmp_path, "CategoryMapper", {"x": texts(4, 2)}, [I64], default_int64=-9, **cats)


def test_tensors_of_texts(tmp_path: Path) -> None:
    """onnxruntime has no kernel for most of these types: what it does is known from the standard."""
    keys = helper.make_tensor("keys", TensorProto.STRING, [5], KNOWN)
    values = helper.make_tensor("values", TensorProto.INT16, [5], [5, 4, 3, 2, 1])
    default = helper.make_tensor("default", TensorProto.INT16, [1], [42])
    attrs = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    path = tmp_path / "m.onnx"
    path.write_bytes(one_node("LabelEncoder", {"x": texts(9)}, [np.int16], ml=4, **attrs))
    wanted = dict(zip(KNOWN, [5, 4, 3, 2, 1], strict=True))
    with flexnn.Session(path) as session:
        (y,) = session.run(None, {"x": texts(9)})
    assert y.dtype == np.int16
    assert y.tolist() == [wanted.get(text, 42) for text in texts(9)]


def pipeline(rows: int | str) -> ModelProto:
    """Two columns of texts and one of numbers, encoded side by side, as a table is exported; classes are texts."""
    nodes = [
        helper.make_node("Concat", ["colour", "size"], ["both"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["both", "first"], ["first_column"], domain=ML),
        helper.make_node("OneHotEncoder", ["first_column"], ["deep"], domain=ML, cats_strings=KNOWN[:3]),
        helper.make_node("Reshape", ["deep", "flat"], ["ones"]),
        helper.make_node("Transpose", ["size"], ["turned"], perm=[1, 0]),
        helper.make_node(
            "LabelEncoder", ["turned"], ["rank"], domain=ML, keys_strings=["S", "L"], values_floats=[1.0, 2.0]
        ),
        helper.make_node("Transpose", ["rank"], ["ranks"], perm=[1, 0]),
        helper.make_node("Concat", ["ones", "ranks", "age"], ["features"], axis=1),
        helper.make_node("MatMul", ["features", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["classes", "best"], ["found"], domain=ML),
        helper.make_node("Cast", ["found"], ["same"], to=TensorProto.STRING),
        helper.make_node("Reshape", ["same", "line"], ["label"]),
    ]
    kinds = {"colour": TensorProto.STRING, "size": TensorProto.STRING, "age": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, [rows, 1]) for name, kind in kinds.items()]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, None),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, None),
    ]
    weights = np.random.default_rng(0).standard_normal((5, 3))
    constants = [
        helper.make_tensor("classes", TensorProto.STRING, [3], ["no", "maybe", "yes"]),
        helper.make_tensor("w", TensorProto.FLOAT, [5, 3], weights.reshape(-1)),
        helper.make_tensor("first", TensorProto.INT64, [1], [0]),
        helper.make_tensor("flat", TensorProto.INT64, [2], [-1, 3]),
        helper.make_tensor("line", TensorProto.INT64, [1], [-1]),
    ]
    graph = helper.make_graph(nodes, "test", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def table(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {
        "colour": rng.choice(np.array([*KNOWN[:3], "S", "purple"], object), (rows, 1)),
        "size": rng.choice(np.array(["S", "L", "red"], object), (rows, 1)),
        "age": rng.standard_normal((rows, 1)).astype(F32),
    }


@pytest.mark.parametrize("rows", ["n", 20])
def test_a_table(rows: int | str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(pipeline(rows).SerializeToString())
    theirs = onnxruntime.InferenceSession(path)
    artifact = flexnn.compile(path)
    with flexnn.Session(artifact) as session:
        told = [[(i.name, i.type) for i in s.get_inputs()] for s in (session, theirs)]
        assert told[0] == told[1]
        assert [o.type for o in session.get_outputs()] == [o.type for o in theirs.get_outputs()]
        for count in (20, 20, 20) if rows == 20 else (20, 1, 7):
            feed = table(count)
            wanted = theirs.run(None, feed)
            for mine in (session.run(None, feed), run_at_smallest(artifact, feed)):
                assert mine[0].tolist() == wanted[0].tolist()
                np.testing.assert_allclose(mine[1], wanted[1], rtol=1e-5, atol=1e-5)
            assert session.statistics()["hosted_operators"] == {}


@pytest.mark.parametrize("rows", ["n", 20])
def test_a_run_like_the_last_is_repeated_as_one_of_numbers_is(
    rows: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(pipeline(rows).SerializeToString())
    theirs = onnxruntime.InferenceSession(path)
    with flexnn.Session(path) as session:
        session.run(None, table(20))
        monkeypatch.setattr(Feeds, "arrays", None)
        feed = {name: values[::-1].copy() for name, values in table(20).items()}
        wanted, mine = theirs.run(None, feed), session.run(None, feed)
        assert mine[0].tolist() == wanted[0].tolist()
        np.testing.assert_allclose(mine[1], wanted[1], rtol=1e-5, atol=1e-5)


def test_all_ways_to_give_texts(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(pipeline("n").SerializeToString())
    feed = table(9)
    with flexnn.Session(path) as session:
        label, wanted = session.run(None, feed)
        wide = {name: values.astype(str) if values.dtype == object else values for name, values in feed.items()}
        lists = {name: values.tolist() if values.dtype == object else values for name, values in feed.items()}
        raw = wide | {"colour": np.char.encode(wide["colour"])}
        for given in (wide, lists, raw):
            assert session.run(None, given)[1].tobytes() == wanted.tobytes()
        assert asyncio.run(session.arun(None, feed))[1].tobytes() == wanted.tobytes()
        with pickle.loads(pickle.dumps(session)) as other:
            assert other.run(None, feed)[0].tolist() == label.tolist()
        with pytest.raises(ValueError, match="the model takes texts"):
            session.run(None, feed | {"size": np.zeros((9, 1), F32)})
        with pytest.raises(ValueError, match="'size' is missing"):
            session.run(None, {"colour": feed["colour"], "age": feed["age"]})
        with pytest.raises(ValueError, match="no input 'sizes'"):
            session.run(None, feed | {"sizes": feed["size"]})
        with pytest.raises(TypeError, match="not a mapping"):
            session.run(None, [1])  # type: ignore[arg-type]
    with flexnn.Pool("1GiB") as pool, pool.open(path) as session:
        assert session.run(None, feed)[1].tobytes() == wanted.tobytes()
    session = flexnn.ort.InferenceSession(path)
    assert session.run(None, feed)[0].tolist() == label.tolist()
    assert session.run(["scores"], wide)[0].tobytes() == wanted.tobytes()


def wrong(nodes: list[Any], texts_in: bool = True, **outputs: int) -> bytes:
    kind = TensorProto.STRING if texts_in else TensorProto.INT64
    inputs = [helper.make_tensor_value_info("x", kind, [3])]
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "test", inputs, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


ENCODER = helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, keys_strings=["a"], values_int64s=[1])


@pytest.mark.parametrize(
    ("nodes", "says", "outputs"),
    [
        ([helper.make_node("Identity", ["x"], ["y"])], "where no operator looks texts up", {"y": TensorProto.STRING}),
        (
            [ENCODER, helper.make_node("Identity", ["x"], ["z"])],
            "texts of an input, which may be any",
            {"y": TensorProto.INT64, "z": TensorProto.STRING},
        ),
        (
            [ENCODER, helper.make_node("Equal", ["x", "x"], ["z"])],
            "Equal node|opset",
            {"y": TensorProto.INT64, "z": TensorProto.BOOL},
        ),
        (
            [ENCODER, helper.make_node("StringNormalizer", ["x"], ["z"])],
            "StringNormalizer node",
            {"y": TensorProto.INT64, "z": TensorProto.STRING},
        ),
        (
            [helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, keys_strings=["a" * 5000], values_int64s=[1])],
            "at most 65536 of at most 4096 characters",
            {"y": TensorProto.INT64},
        ),
    ],
)
def test_models_that_need_the_texts_themselves(nodes: list[Any], says: str, outputs: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(wrong(nodes, **outputs))
    with pytest.raises(GraphError, match=says):
        load_model(tmp_path / "m.onnx")


def test_more_texts_than_a_reader_takes_do_not_compile(tmp_path: Path) -> None:
    """They made an artifact that no session opened."""
    known = [f"{i:04d}{'ä' * 1500}" for i in range(1000)]
    (tmp_path / "m.onnx").write_bytes(
        one_node("LabelEncoder", {"x": texts(3)}, [I64], ml=2, keys_strings=known, values_int64s=[*range(len(known))])
    )
    with pytest.raises(flexnn.FlexNNError, match="texts that the model knows"):
        flexnn.compile(tmp_path / "m.onnx")
