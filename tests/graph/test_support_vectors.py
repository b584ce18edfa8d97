"""Support vector machines (ai.onnx.ml) against onnxruntime, and files that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flexnn.graph import load_model
from flexnn.graph.ir import GraphError
from tests.support.nodes import check_node, one_node, run_all_ways

F32, I64 = np.float32, np.int64
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]
FEATURES, ROWS = 5, 37
TOLERANCE = 2e-5


def rows(dtype: Any = F32, count: int = ROWS) -> np.ndarray:
    return (np.random.default_rng(7).standard_normal((count, FEATURES)) * 2).astype(dtype)


def machines(classes: int, seed: int, has_chances: bool = False) -> dict[str, Any]:
    """Attributes of a classifier with a machine for each pair."""
    rng, pairs = np.random.default_rng(seed), classes * (classes - 1) // 2
    counts = rng.integers(1, 6, classes)
    numbers = {
        "support_vectors": rng.standard_normal(counts.sum() * FEATURES),
        "coefficients": rng.standard_normal((classes - 1) * counts.sum()),
        "rho": rng.standard_normal(pairs),
    }
    if has_chances:
        numbers |= {"prob_a": -rng.random(pairs) - 0.5, "prob_b": rng.standard_normal(pairs)}
    return {name: values.tolist() for name, values in numbers.items()} | {"vectors_per_class": counts.tolist()}


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("has_chances", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_votes(classes: int, kernel: str, has_chances: bool, transform: str, tmp_path: Path) -> None:
    attrs = machines(classes, classes, has_chances)
    attrs |= {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0], "post_transform": transform}
    attrs["classlabels_ints"] = [7, 3, 5, 1, 9][:classes]
    check_node(tmp_path, "SVMClassifier", {"x": rows()}, [I64, F32], tolerance=TOLERANCE, **attrs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("classes", [2, 4, 9])
def test_probabilities_of_many_machines(classes: int, seed: int, tmp_path: Path) -> None:
    attrs = machines(classes, 100 + seed, has_chances=True)
    attrs |= {"kernel_type": "RBF", "kernel_params": [0.1, 0.0, 0.0], "classlabels_ints": list(range(classes))}
    check_node(tmp_path, "SVMClassifier", {"x": rows(count=300)}, [I64, F32], tolerance=TOLERANCE, **attrs)


def test_texts(tmp_path: Path) -> None:
    attrs = machines(3, 0) | {"kernel_type": "RBF", "kernel_params": [0.3, 0.5, 3.0]}
    attrs["classlabels_strings"] = ["red", "green", "blue"]
    check_node(tmp_path, "SVMClassifier", {"x": rows()}, [str, F32], tolerance=TOLERANCE, **attrs)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, I64])
def test_rows_of_other_types(dtype: Any, tmp_path: Path) -> None:
    attrs = machines(3, 0) | {"kernel_type": "RBF", "kernel_params": [0.3, 0.5, 3.0], "classlabels_ints": [0, 1, 2]}
    check_node(tmp_path, "SVMClassifier", {"x": rows(dtype)}, [I64, F32], tolerance=TOLERANCE, **attrs)


@pytest.mark.parametrize(
    ("classes", "transform"), [(1, "NONE"), *((n, t) for n in (2, 3) for t in ("NONE", "LOGISTIC", "SOFTMAX"))]
)
@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize("has_chances", [False, True])
def test_a_machine_for_each_class(
    classes: int, transform: str, is_positive: bool, has_chances: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(classes)
    weights = rng.standard_normal(classes * FEATURES)
    attrs: dict[str, Any] = {"coefficients": (np.abs(weights) if is_positive else weights).tolist(), "rho": [0.2]}
    if has_chances:
        attrs |= {"prob_a": [-1.0] * classes, "prob_b": [0.5] * classes}
    attrs |= {"classlabels_ints": [4, 8, 6][:classes], "post_transform": transform, "kernel_params": [0.3, 0.5, 3.0]}
    check_node(tmp_path, "SVMClassifier", {"x": rows()}, [I64, F32], tolerance=TOLERANCE, **attrs)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("count", [0, 6])
def test_regression(kernel: str, one_class: int, count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    attrs: dict[str, Any] = {"coefficients": rng.standard_normal(count or FEATURES).tolist(), "rho": [0.1]}
    if count:
        attrs["support_vectors"] = rng.standard_normal(count * FEATURES).tolist()
    attrs |= {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0], "one_class": one_class, "n_supports": count}
    for x in (rows(), rows()[:1], rows()[0], rows()[:0]):
        check_node(tmp_path, "SVMRegressor", {"x": x}, [F32], tolerance=TOLERANCE, **attrs)


def test_distances_far_from_zero(tmp_path: Path) -> None:
    """Features of large mean: squares would cancel, were they not taken about the mean of the vectors."""
    rng = np.random.default_rng(5)
    vectors, x = (F32(1000 + rng.standard_normal((n, FEATURES))) for n in (40, ROWS))
    attrs: dict[str, Any] = {"coefficients": rng.standard_normal(40).tolist(), "rho": [0.1], "n_supports": 40}
    attrs |= {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0], "support_vectors": vectors.reshape(-1).tolist()}
    check_node(tmp_path, "SVMRegressor", {"x": x}, [F32], tolerance=TOLERANCE, **attrs)


@pytest.mark.parametrize("opset", [9, 17])
def test_probabilities_of_sure_rows(opset: int, tmp_path: Path) -> None:
    """Before opset 11 Clip takes its bounds as attributes: as inputs they were none, and probabilities were NaN."""
    attrs = machines(2, 2, has_chances=True) | {"kernel_type": "POLY", "kernel_params": [1.0, 0.0, 3.0]}
    attrs |= {"classlabels_ints": [0, 1]}
    x = np.concatenate([rows() * scale for scale in (1, 10, 1000)])
    check_node(tmp_path, "SVMClassifier", {"x": x}, [I64, F32], tolerance=TOLERANCE, ml=1, opset=opset, **attrs)


def test_linear_kernels_lose_no_digits(tmp_path: Path) -> None:
    """Sums over vectors of large features cancel, unless they are products with one row of features."""
    rng = np.random.default_rng(5)
    vectors, x = (F32(1000 + rng.standard_normal((n, FEATURES))) for n in (40, ROWS))
    weights = rng.standard_normal(40).astype(F32)
    attrs: dict[str, Any] = {"coefficients": (weights - weights.mean()).tolist(), "rho": [0.1], "n_supports": 40}
    attrs |= {"kernel_type": "LINEAR", "kernel_params": [0.0] * 3, "support_vectors": vectors.reshape(-1).tolist()}
    wanted = x.astype(np.float64) @ vectors.T.astype(np.float64) @ F32(attrs["coefficients"]).astype(np.float64) + 0.1
    for (y,) in run_all_ways(tmp_path, "SVMRegressor", {"x": x}, [F32], **attrs):
        np.testing.assert_allclose(y[:, 0], wanted, atol=0.02)


@pytest.mark.parametrize(
    ("operator", "change", "says"),
    [
        ("SVMClassifier", {"coefficients": [1.0]}, "do not fit 3 classes"),
        ("SVMClassifier", {"rho": [1.0]}, "do not fit 3 classes"),
        ("SVMClassifier", {"vectors_per_class": [1, -1, 2]}, "do not fit together"),
        ("SVMClassifier", {"vectors_per_class": [4, 4]}, "do not fit 3 classes"),
        ("SVMClassifier", {"support_vectors": [1.0] * 7}, "7 numbers of"),
        ("SVMClassifier", {"prob_a": [1.0] * 3}, "do not fit together"),
        ("SVMClassifier", {"prob_a": [1.0], "prob_b": [1.0]}, "do not fit 3 classes"),
        ("SVMClassifier", {"kernel_type": "COSINE"}, "kernel COSINE"),
        ("SVMClassifier", {"kernel_params": [1.0]}, "with 1 parameters"),
        ("SVMClassifier", {"post_transform": "PROBIT"}, "PROBIT is not supported"),
        ("SVMRegressor", {"n_supports": 3}, "coefficients and 1 shifts for 3"),
        ("SVMRegressor", {"n_supports": -1}, "for -1 support vectors"),
        ("SVMRegressor", {"post_transform": "LOGISTIC"}, "post_transform"),
    ],
)
def test_files_that_are_wrong(operator: str, change: dict[str, Any], says: str, tmp_path: Path) -> None:
    attrs: dict[str, Any] = {"coefficients": [1.0] * FEATURES, "rho": [0.0]}
    if operator == "SVMClassifier":
        attrs = machines(3, 0) | {"classlabels_ints": [0, 1, 2]}
    attrs |= {"kernel_params": [0.3, 0.5, 3.0]} | change
    outputs = [I64, F32] if operator == "SVMClassifier" else [F32]
    (tmp_path / "m.onnx").write_bytes(one_node(operator, {"x": rows()}, outputs, **attrs))
    with pytest.raises(GraphError, match=says):
        load_model(tmp_path / "m.onnx")
