"""Encoders of ai.onnx.ml against onnxruntime, and files that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import flexnn
from flexnn.graph import load_model
from flexnn.graph.ir import GraphError
from tests.support.nodes import check_node, one_node

F32, I64 = np.float32, np.int64
KEYS: dict[str, list[Any]] = {"floats": [0.5, 1.5, -2.0, 3.0, float("inf")], "int64s": [5, -7, 3, 0, 100]}
VALUES = {"floats": [0.1, 0.2, 0.3, 0.4, 0.5], "int64s": [10, 20, 30, 40, 50], "strings": list("abcde")}
KINDS: dict[str, Any] = {"floats": F32, "int64s": I64, "strings": str}


def picked(values: list[Any], shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Some of the values, and some others."""
    return np.random.default_rng(seed).choice(np.array([*values, 77, 99], np.float64), shape).astype(dtype)


@pytest.mark.parametrize("shape", [(7,), (7, 3), (0,), (2, 0), (1, 1), (2, 3, 5)])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("values", VALUES)
def test_labels(keys: str, values: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = picked(KEYS[keys], shape, KINDS[keys])
    attrs = {f"keys_{keys}": KEYS[keys], f"values_{values}": VALUES[values]}
    check_node(tmp_path, "LabelEncoder", {"x": x}, [KINDS[values]], ml=2, **attrs)


def test_defaults_of_labels(tmp_path: Path) -> None:
    x = picked(KEYS["int64s"], (30,), I64)
    keys = {"keys_int64s": KEYS["int64s"], "ml": 2}
    check_node(tmp_path, "LabelEncoder", {"x": x}, [F32], values_floats=VALUES["floats"], default_float=-5.0, **keys)
    check_node(tmp_path, "LabelEncoder", {"x": x}, [I64], values_int64s=VALUES["int64s"], default_int64=-5, **keys)
    check_node(tmp_path, "LabelEncoder", {"x": x}, [str], values_strings=VALUES["strings"], default_string="?", **keys)


def test_thousands_of_keys(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys, x = rng.permutation(50000)[:3001] - 25000, rng.integers(-25000, 25000, (500, 4))
    attrs = {"keys_int64s": keys.tolist(), "values_floats": rng.random(3001).tolist()}
    check_node(tmp_path, "LabelEncoder", {"x": x}, [F32], ml=2, **attrs)


def test_integers_that_float32_does_not_tell_apart(tmp_path: Path) -> None:
    keys = [(1 << 24) + 1, (1 << 53) - 1, 1 << 40, -(1 << 24) - 1]
    x = np.array([*keys, 1 << 24, -(1 << 24), (1 << 53) + 1, 1 << 62, (1 << 40) + 1])
    check_node(tmp_path, "LabelEncoder", {"x": x}, [I64], ml=2, keys_int64s=keys, values_int64s=[1, 2, 3, 4])


def test_missing_numbers_as_keys(tmp_path: Path) -> None:
    x = F32([1, np.nan, 2, 3, np.nan])
    nan = float("nan")
    for keys in ([nan, 2.0, 1.0], [nan], [2.0, nan, nan], [2.0]):
        values = [7, 8, 9][: len(keys)]
        check_node(tmp_path, "LabelEncoder", {"x": x}, [I64], ml=4, keys_floats=keys, values_int64s=values)


def test_keys_given_twice(tmp_path: Path) -> None:
    x = F32([1, 2, 3])
    check_node(tmp_path, "LabelEncoder", {"x": x}, [I64], ml=2, keys_floats=[2.0, 2.0, 1.0], values_int64s=[7, 8, 9])


@pytest.mark.parametrize(("key", "value"), [(I64, I64), (F32, F32), (np.float64, np.float64), (I64, F32)])
def test_tensors_of_labels(key: Any, value: Any, tmp_path: Path) -> None:
    tensors = {
        "keys_tensor": np.array([1, 2, 3], key),
        "values_tensor": np.array([4, 5, 6], value),
        "default_tensor": np.array([-3], value),
    }
    attrs = {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    check_node(tmp_path, "LabelEncoder", {"x": np.array([1, 9, 3, 2], key)}, [value], ml=4, **attrs)


def test_texts_for_integers(tmp_path: Path) -> None:
    x = np.array([[0, 1], [2, 7]])
    check_node(tmp_path, "LabelEncoder", {"x": x}, [str], ml=1, classes_strings=["a", "b", "c"], default_string="?")
    cats = {"cats_strings": ["a", "b", "c"], "cats_int64s": [2, 1, 7]}
    check_node(tmp_path, "CategoryMapper", {"x": x}, [str], **cats)


@pytest.mark.parametrize("dtype", [I64, F32, np.float64])
@pytest.mark.parametrize("shape", [(6,), (5, 3), (0,), (3, 0)])
@pytest.mark.parametrize("zeros", [0, 1])
def test_one_of_many(dtype: Any, shape: tuple[int, ...], zeros: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 4 + zeros, shape).astype(dtype)
    check_node(tmp_path, "OneHotEncoder", {"x": x}, [F32], cats_int64s=[3, 1, 0, 2], zeros=zeros)


def test_fractions_are_cut_before_they_are_looked_up(tmp_path: Path) -> None:
    check_node(tmp_path, "OneHotEncoder", {"x": F32([1.7, 2.2, -0.5, 9])}, [F32], cats_int64s=[3, 1, 0, 2])


def test_what_is_no_category_is_refused_in_the_run(tmp_path: Path) -> None:
    x = np.array([3, 9])
    (tmp_path / "m.onnx").write_bytes(one_node("OneHotEncoder", {"x": x}, [F32], cats_int64s=[3, 1], zeros=0))
    with flexnn.Session(tmp_path / "m.onnx") as session, pytest.raises(flexnn.FlexNNError, match="out of range"):
        session.run(None, {"x": x})


@pytest.mark.parametrize("instead", [[9.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
@pytest.mark.parametrize("missing", [float("nan"), 0.0])
def test_missing_numbers(instead: list[float], missing: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 5)).astype(F32)
    x[rng.random(x.shape) < 0.3] = missing
    attrs = {"imputed_value_floats": instead, "replaced_value_float": missing}
    check_node(tmp_path, "Imputer", {"x": x}, [F32], **attrs)
    check_node(tmp_path, "Imputer", {"x": x[:0]}, [F32], **attrs)


@pytest.mark.parametrize("instead", [[9], [1, 2, 3, 4, 5]])
def test_missing_integers(instead: list[int], tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (7, 5))
    check_node(tmp_path, "Imputer", {"x": x}, [I64], imputed_value_int64s=instead, replaced_value_int64=-1)


def test_columns_side_by_side(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(F32)
    check_node(tmp_path, "FeatureVectorizer", {"a": x, "b": x[:, :2].copy()}, [F32], inputdimensions=[3, 2])
    check_node(tmp_path, "FeatureVectorizer", {"a": x, "b": x}, [F32], inputdimensions=[2, 3])
    check_node(tmp_path, "FeatureVectorizer", {"a": x[0]}, [F32], inputdimensions=[3])
    whole = np.arange(12).reshape(4, 3)
    check_node(tmp_path, "FeatureVectorizer", {"a": whole}, [F32], inputdimensions=[3])


@pytest.mark.parametrize(
    ("operator", "attrs", "says"),
    [
        ("LabelEncoder", {"keys_int64s": [1, 2], "values_int64s": [3]}, "2 keys have 1 values"),
        ("LabelEncoder", {"keys_int64s": [1]}, "0 lists of values are given"),
        ("LabelEncoder", {"keys_int64s": [1 << 53], "values_int64s": [3]}, "53 bits"),
        ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [3], "values_floats": [3.0]}, "2 lists of values"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [3]}, "no text whose names are known"),
        ("OneHotEncoder", {}, "its categories are none"),
        ("OneHotEncoder", {"cats_int64s": [1, 2, 1]}, "given twice"),
        ("Imputer", {}, "no number is imputed"),
        ("Imputer", {"imputed_value_int64s": [1], "imputed_value_floats": [1.0]}, "at once"),
        ("FeatureVectorizer", {"inputdimensions": [2, 3]}, "does not fit 1 inputs"),
        ("FeatureVectorizer", {"inputdimensions": [-1]}, "does not fit"),
        ("CategoryMapper", {"cats_strings": ["a"], "cats_int64s": [1, 2]}, "1 texts and 2 integers"),
    ],
)
def test_files_that_are_wrong(operator: str, attrs: dict[str, Any], says: str, tmp_path: Path) -> None:
    kind = F32 if operator in ("OneHotEncoder", "FeatureVectorizer") else I64
    (tmp_path / "m.onnx").write_bytes(one_node(operator, {"x": np.zeros((2, 3), I64)}, [kind], ml=2, **attrs))
    with pytest.raises(GraphError, match=says):
        load_model(tmp_path / "m.onnx")
