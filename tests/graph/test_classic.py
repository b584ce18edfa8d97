"""Classic machine learning (ai.onnx.ml) against onnxruntime, and files that are wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

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


def inputs_of(dtype=np.float32):
    return np.random.default_rng(1).standard_normal((ROWS, FEATURES)).astype(dtype)


def check(operator, outputs="f", atol=1e-5, **rest):
    compare(model_of(operator, outputs, **rest).SerializeToString(), inputs_of(), atol)


def compare(model, x, atol=1e-5):
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model)
        with flexnn.Session(flexnn.compile(path), threads=2) as session:
            for mine, theirs in zip(session.run(None, {"x": x}), wanted, strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=atol)


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


@pytest.mark.parametrize("least", [0.0, -0.5])
@pytest.mark.parametrize(
    ("said_as", "transform", "base"),
    [
        (0, "NONE", []),
        (0, "NONE", [0.2]),
        (0, "LOGISTIC", []),
        (0, "LOGISTIC", [-0.3]),
        (0, "SOFTMAX", []),
        (1, "NONE", []),
        (1, "LOGISTIC", []),
        (1, "SOFTMAX", []),
    ],
)
def test_one_score_of_two_classes(said_as, transform, base, least):
    """Weights that are all shares are told from those around zero."""
    attrs = trees(5, 3, "class", 1)
    attrs["class_ids"] = [said_as] * len(attrs["class_ids"])
    attrs["class_weights"] = [(weight + least) / 3 for weight in attrs["class_weights"]]
    rest = {"base_values": base} if base else {}
    check("TreeEnsembleClassifier", "if", **attrs, **rest, classlabels_int64s=[7, 3], post_transform=transform)


EDGES = np.array([-np.inf, -1, -0.0, 0, 1e-40, 0.5, 1, np.inf, np.nan])


def edges(seed, dtype=np.float32, features=FEATURES):
    """Rows of numbers that thresholds are equal to, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    x = rng.choice(EDGES, (ROWS, features))
    return np.where(rng.random(x.shape) < 0.3, rng.normal(size=x.shape), x).astype(dtype)


def edged(attrs, seed, modes):
    """The trees with thresholds at the edges, branches of these modes, and missing values that go either way."""
    rng = np.random.default_rng(seed)
    count = len(attrs["nodes_modes"])
    attrs["nodes_values"] = rng.choice(EDGES, count).tolist()
    attrs["nodes_modes"] = [str(rng.choice(modes)) if m != "LEAF" else m for m in attrs["nodes_modes"]]
    attrs["nodes_missing_value_tracks_true"] = rng.integers(0, 2, count).tolist()
    return attrs


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@pytest.mark.parametrize("modes", [MODES, *([m] for m in MODES)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_comparison_at_the_edges(modes, dtype):
    for seed in range(4):
        attrs = edged(trees(9, 5, "class", 3, seed), seed, modes)
        model = model_of("TreeEnsembleClassifier", "if", **attrs, classlabels_int64s=[4, 2, 9])
        model.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        compare(model.SerializeToString(), edges(seed, dtype))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("results", [1, 3])
def test_aggregates_and_transforms(aggregate, transform, results):
    attrs = trees(5, 4, "target", results)
    attrs["target_weights"] = [w / 5 for w in attrs["target_weights"]]
    rest = {"n_targets": results, "aggregate_function": aggregate, "post_transform": transform}
    # onnxruntime computes PROBIT in float32, where two numbers that it subtracts may be nearly equal.
    check("TreeEnsembleRegressor", **attrs, **rest, atol=2e-4 if transform == "PROBIT" else 1e-5)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_rows_of_integers(dtype):
    model = model_of("TreeEnsembleClassifier", "if", **trees(5, 4, "class", 3), classlabels_int64s=[4, 2, 9])
    model.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    compare(model.SerializeToString(), np.random.default_rng(0).integers(-2, 3, (ROWS, FEATURES)).astype(dtype))


def test_classes_that_no_leaf_says():
    """The label is of the highest score that a leaf said, though a score that none said is higher, 0."""
    attrs = trees(3, 3, "class", 1)
    rng = np.random.default_rng(0)
    attrs["class_ids"] = rng.integers(0, 4, len(attrs["class_ids"])).tolist()
    attrs["class_weights"] = [-w for w in attrs["class_weights"]]
    check("TreeEnsembleClassifier", "if", **attrs, classlabels_int64s=[4, 2, 9, 1])


@pytest.mark.parametrize("rows", [1, 7, 500])
def test_open_rows_are_native(tmp_path, rows):
    model = model_of("TreeEnsembleRegressor", "f", **trees(30, 5, "target", 2), n_targets=2)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = np.random.default_rng(rows).standard_normal((rows, FEATURES)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})[0]
    with flexnn.Session(flexnn.compile(tmp_path / "m.onnx")) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-5)
        assert session.statistics()["hosted_operators"] == {}


def test_rows_of_too_few_features(tmp_path):
    model = model_of("TreeEnsembleRegressor", "f", **trees(5, 5, "target", 1), n_targets=1)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match=r"does not have the 6 features"):
        flexnn.compile(tmp_path / "m.onnx")


def test_missing_values():
    attrs = trees(9, 5, "target", 2)
    attrs["nodes_missing_value_tracks_true"] = [int(i % 3 != 0) for i in range(len(attrs["nodes_modes"]))]
    compare(model_of("TreeEnsembleRegressor", "f", n_targets=2, **attrs).SerializeToString(), with_holes())


def with_holes(dtype=np.float32):
    x = inputs_of(dtype)
    x[np.random.default_rng(2).random(x.shape) < 0.3] = np.nan
    return x


def table(count, depth, results, dtype, tracks=False, seed=0):
    """Attributes of a TreeEnsemble: full trees, whose branches and leaves are numbered level by level."""
    rng = np.random.default_rng(seed)
    each, leaves = 2**depth - 1, 2**depth
    at = np.arange(each)
    ways = []
    for side in (1, 2):
        child = 2 * at + side
        is_leaf = child >= each
        of_tree = [np.where(is_leaf, child - each + tree * leaves, child + tree * each) for tree in range(count)]
        ways += [np.concatenate(of_tree).tolist(), np.tile(is_leaf, count).astype(int).tolist()]
    tensors = {
        "nodes_splits": rng.standard_normal(count * each).astype(dtype),
        "nodes_modes": np.zeros(count * each, np.uint8),
        "leaf_weights": rng.standard_normal(count * leaves).astype(dtype),
    }
    return {
        "tree_roots": (np.arange(count) * each).tolist(),
        "nodes_featureids": rng.integers(0, FEATURES, count * each).tolist(),
        **dict(
            zip(("nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs"), ways, strict=True)
        ),
        "leaf_targetids": rng.integers(0, results, count * leaves).tolist(),
        "n_targets": results,
        **{name: numpy_helper.from_array(values, name) for name, values in tensors.items()},
        **({"nodes_missing_value_tracks_true": rng.integers(0, 2, count * each).tolist()} if tracks else {}),
    }


def table_model(dtype, **attrs):
    model = model_of("TreeEnsemble", "f", **attrs)
    model.opset_import[1].version = 5
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.elem_type = kind
    return model.SerializeToString()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("results", "aggregate"), [(1, 1), (3, 1), (2, 0)])
def test_a_table_of_trees(dtype, results, aggregate):
    for tracks in (False, True):
        attrs = table(7, 4, results, dtype, tracks)
        model = table_model(dtype, **attrs, aggregate_function=aggregate)
        compare(model, with_holes(dtype) if tracks else inputs_of(dtype))


@pytest.mark.parametrize("mode", [1, 2, 3, 4])
def test_other_branches_of_a_table(mode):
    attrs = table(4, 3, 2, np.float32)
    attrs["nodes_modes"] = numpy_helper.from_array(np.full(4 * 7, mode, np.uint8))
    splits = inputs_of()[0, :4].repeat(7)  # equal to some
    compare(table_model(np.float32, **attrs | {"nodes_splits": numpy_helper.from_array(splits)}), inputs_of())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("nodes_truenodeids", 10**12, "node that does not exist"),
        ("nodes_falsenodeids", -1, "node that does not exist"),
        ("nodes_truenodeids", 0, "do not form trees"),  # a cycle
        ("tree_roots", 10**9, "a root refers to a node that does not exist"),
        ("nodes_featureids", -3, "negative index"),
        ("leaf_targetids", 5, "leaf refers to result 5, but there are 2"),
        ("nodes_trueleafs", None, "differ in length"),
        ("leaf_targetids", None, "list leaves one length|does not exist"),
        ("n_targets", 10**15, "results"),
        ("post_transform", 1, "post_transform 1"),
        ("aggregate_function", 4, "aggregate_function 4"),
        ("nodes_splits", np.zeros(14, np.float16), "thresholds of type float16"),
        ("nodes_modes", np.full(14, 6, np.uint8), "branches of kind 6"),
        ("nodes_splits", np.zeros(14, np.int32), "thresholds of type int32"),
        ("leaf_weights", np.zeros(16, np.float64), "must have one type"),
        ("leaf_weights", np.zeros((4, 4), np.float32), "wrong type"),
    ],
)
def test_tables_that_are_none(tmp_path, name, value, message):
    attrs = table(2, 3, 2, np.float32)
    if isinstance(value, np.ndarray):
        attrs[name] = numpy_helper.from_array(value)
    elif value is None:
        attrs[name].pop()
    elif isinstance(attrs.get(name), list):
        attrs[name][0] = value
    else:
        attrs[name] = value
    (tmp_path / "m.onnx").write_bytes(table_model(np.float32, **attrs))
    with pytest.raises(GraphError, match=message):
        load_model(tmp_path / "m.onnx")


def refused(tmp_path, message, operator="TreeEnsembleRegressor", outputs="f", **attrs):
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(operator, outputs, **attrs).SerializeToString())
    with pytest.raises(GraphError, match=message):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("nodes_truenodeids", 0, 0, "do not form trees"),  # a cycle
        ("nodes_truenodeids", 0, 2, "do not form trees"),  # both ways lead to one node
        ("nodes_falsenodeids", 0, 10**12, "node that does not exist"),
        ("nodes_nodeids", 1, 0, "do not form trees|does not exist"),
        ("nodes_modes", 0, "BRANCH_MEMBER", "branches of kind BRANCH_MEMBER"),
        ("nodes_featureids", 0, -1, "negative index"),
        ("target_ids", 0, -1, "leaf refers to result -1, but there are 1"),
        ("target_nodeids", 0, 10**12, "a leaf refers to a node that does not exist"),
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
    refused(tmp_path, "0 labels; 1 to 65536 are supported", "ZipMap")
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
    """The operator is named even though the input's shape is open."""
    model = model_of("NoSuchOperator", "f")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match=r"NoSuchOperator node 'y0': operator of domain 'ai.onnx.ml'"):
        flexnn.compile(tmp_path / "m.onnx")
