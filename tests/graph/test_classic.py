"""Classic machine learning (ai.onnx.ml) against onnxruntime, and files that are wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.graph import load_model
from flexnn.graph.ir import GraphError

FEATURES, ROWS = 6, 50
TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}


def model_of(operator, outputs, constants=(), inputs=("x",), **attrs):
    node = helper.make_node(
        operator, list(inputs), [f"y{i}" for i in range(len(outputs))], domain="ai.onnx.ml", **attrs
    )
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, FEATURES])]
    made = [helper.make_tensor_value_info(f"y{i}", TYPES[k], None) for i, k in enumerate(outputs)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "test", ports, made, list(constants))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(operator, outputs="f", **rest):
    x = np.random.default_rng(1).standard_normal((ROWS, FEATURES)).astype(np.float32)
    model = model_of(operator, outputs, **rest).SerializeToString()
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model)
        with flexnn.Session(flexnn.compile(path), threads=2) as session:
            for mine, theirs in zip(session.run(None, {"x": x}), wanted, strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def numbers(count, seed=0):
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32).tolist()


def trees(count, depth, part, results, seed=0):
    """Attributes of random trees; some branches end early."""
    rng = np.random.default_rng(seed)
    nodes = {
        name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    leaves = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(count):
        waiting, used = [(0, 0)], 1
        while waiting:
            node, level = waiting.pop()
            is_leaf = level == depth or (level > 1 and rng.random() < 0.2)
            ways = (0, 0) if is_leaf else (used, used + 1)
            values = (tree, node, int(rng.integers(FEATURES)), float(rng.normal()), "LEAF" if is_leaf else "BRANCH_LEQ")
            for name, value in zip(nodes, (*values, *ways), strict=True):
                nodes[name].append(value)
            if is_leaf:
                for result in range(results):
                    for name, value in zip(leaves, (tree, node, result, float(rng.random())), strict=True):
                        leaves[name].append(value)
            else:
                waiting += [(used, level + 1), (used + 1, level + 1)]
                used += 2
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{part}_{k}": v for k, v in leaves.items()}


def test_scaler():
    check("Scaler", offset=numbers(FEATURES), scale=numbers(FEATURES, 1))
    check("Scaler", offset=[0.5], scale=[2.0])


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_normalizer(norm):
    check("Normalizer", norm=norm)


def test_binarizer():
    check("Binarizer", threshold=0.3)


def test_columns():
    chosen = helper.make_tensor("which", TensorProto.INT64, [2], [4, 1])
    check("ArrayFeatureExtractor", constants=[chosen], inputs=("x", "which"))


def test_linear_regressor():
    check("LinearRegressor", coefficients=numbers(2 * FEATURES), intercepts=numbers(2), targets=2)
    check("LinearRegressor", coefficients=numbers(FEATURES))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_classifier(transform):
    rest = {"classlabels_ints": [7, 3, 5], "intercepts": numbers(3), "post_transform": transform}
    check("LinearClassifier", "if", coefficients=numbers(3 * FEATURES), **rest)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
@pytest.mark.parametrize("results", [1, 3])
def test_forest_that_says_numbers(results, aggregate):
    rest = {"n_targets": results, "aggregate_function": aggregate, "base_values": numbers(results)}
    check("TreeEnsembleRegressor", **trees(9, 5, "target", results), **rest)


def test_one_leaf():
    check("TreeEnsembleRegressor", **trees(1, 0, "target", 1), n_targets=1)


@pytest.mark.parametrize("mode", ["BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
def test_other_branches(mode):
    attrs = trees(4, 4, "target", 1)
    attrs["nodes_modes"] = [mode if m != "LEAF" else m for m in attrs["nodes_modes"]]
    check("TreeEnsembleRegressor", **attrs, n_targets=1)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_forest_that_says_classes(transform):
    check(
        "TreeEnsembleClassifier",
        "if",
        **trees(9, 5, "class", 3),
        classlabels_int64s=[1, 2, 9],
        post_transform=transform,
    )


def refused(tmp_path, message, operator="TreeEnsembleRegressor", outputs="f", **attrs):
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(operator, outputs, **attrs).SerializeToString())
    with pytest.raises(GraphError, match=message):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("nodes_truenodeids", 0, 0, "no trees"),  # a cycle
        ("nodes_truenodeids", 0, 2, "no trees"),  # both ways lead to one node
        ("nodes_falsenodeids", 0, 10**12, "leads to no node"),
        ("nodes_nodeids", 1, 0, "no trees|no node"),
        ("nodes_modes", 0, "BRANCH_EQ", "branches of kind"),
        ("target_ids", 0, -1, "none of 1 results"),
        ("target_nodeids", 0, 10**12, "a leaf is no node"),
    ],
)
def test_trees_that_are_none(tmp_path, name, at, value, message):
    attrs = trees(2, 3, "target", 1)
    attrs[name][at] = value
    refused(tmp_path, message, n_targets=1, **attrs)


def test_what_is_not_supported(tmp_path):
    refused(tmp_path, "differ in length", n_targets=1, **{**trees(2, 3, "target", 1), "nodes_values": [0.5]})
    refused(tmp_path, "results", n_targets=10**15, **trees(2, 3, "target", 1))
    refused(tmp_path, "levels", n_targets=1, **deep())
    refused(tmp_path, "export the model with the option zipmap=False", "ZipMap")
    refused(tmp_path, "6 coefficients and 0 intercepts", "LinearRegressor", coefficients=numbers(6), targets=4)
    refused(tmp_path, "transform PROBIT", "LinearRegressor", coefficients=numbers(6), post_transform="PROBIT")


def deep():
    """A tree of a thousand levels."""
    attrs = {
        f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    for node in range(2001):
        branch = node % 2 == 0 and node < 2000
        row = (
            0,
            node,
            0,
            0.0,
            "BRANCH_LEQ" if branch else "LEAF",
            node + 2 if branch else 0,
            node + 1 if branch else 0,
        )
        for name, value in zip(attrs, row, strict=True):
            attrs[name].append(value)
    leaves = {"treeids": [0], "nodeids": [1], "ids": [0], "weights": [1.0]}
    return attrs | {f"target_{k}": v for k, v in leaves.items()}


def test_the_operator_is_named_before_shapes_are_asked_for(tmp_path):
    """Of an input whose shape is open."""
    model = model_of("SVMRegressor", "f")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match=r"SVMRegressor node 'y0': operator of domain 'ai.onnx.ml'"):
        flexnn.compile(tmp_path / "m.onnx")
