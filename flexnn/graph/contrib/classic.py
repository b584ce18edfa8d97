"""Classic machine learning (domain ai.onnx.ml) as standard operators: what scikit-learn and its like are exported to.

https://onnx.ai/onnx/operators/index.html#ai-onnx-ml. Trees are walked all at once, a level at a time: a table of nodes,
in which leaves lead to themselves, and for each row and tree the number of the node where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..evaluate import BYTES_MAX
from .expansion import Expansion, expands

DOMAIN = "ai.onnx.ml"
FLOAT = 1
"""TensorProto.DataType."""
DEPTH_MAX = 64
"""Levels of a tree: each is a handful of nodes."""
_TRANSFORMS = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
_MODES = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
}
_PARTS = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")


def _integers(e: Expansion, name: str) -> np.ndarray:
    value = e.attr(name, [])
    if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
        raise e.error(f"attribute {name} is not a list of integers")
    return np.array(value, np.int64)


def _floats(e: Expansion, name: str) -> np.ndarray:
    value = e.attr(name, [])
    if not isinstance(value, list) or not all(isinstance(v, float) for v in value):
        raise e.error(f"attribute {name} is not a list of numbers")
    return np.array(value, np.float32)


def _widened(e: Expansion) -> str:
    """The input, as float32."""
    return e.add("Cast", e.input(0), to=FLOAT)


def _transformed(e: Expansion, scores: str, index: int) -> None:
    """Output ``index``: the scores through the node's transform."""
    kind = e.attr("post_transform", "NONE")
    if kind not in _TRANSFORMS:
        raise e.error(f"attribute post_transform {kind} is not supported")
    e.add(_TRANSFORMS[str(kind)], scores, output=e.output(index))


def _classified(e: Expansion, scores: str, classes: int, labels: str) -> None:
    """Labels of the highest scores, and the scores. ``labels``: of which attribute."""
    names = _integers(e, labels)
    if e.attr("classlabels_strings", []):
        raise e.error("labels that are texts are not supported")
    if len(names) != classes or classes < 2:
        raise e.error(f"{classes} scores for {len(names)} labels are not supported")
    best = e.add("ArgMax", scores, axis=1, keepdims=0)
    e.add("Gather", e.array(names), best, output=e.output(0), axis=0)
    _transformed(e, scores, 1)


@expands("Scaler", domain=DOMAIN)
def scaler(e: Expansion) -> None:
    """(x - offset) scale."""
    centred = e.add("Sub", _widened(e), e.array(_floats(e, "offset")))
    e.add("Mul", centred, e.array(_floats(e, "scale")), output=e.output(0))


@expands("Binarizer", domain=DOMAIN)
def binarizer(e: Expansion) -> None:
    """1 above the threshold, else 0."""
    above = e.add("Greater", _widened(e), e.array(np.array(e.number("threshold", 0.0), np.float32)))
    e.add("Cast", above, output=e.output(0), to=FLOAT)


@expands("Normalizer", domain=DOMAIN)
def normalizer(e: Expansion) -> None:
    """Rows by their L1 or L2 norm."""
    kind = e.attr("norm", "MAX")
    if kind not in ("L1", "L2"):
        raise e.error(f"attribute norm {kind} is not supported")
    e.add("LpNormalization", _widened(e), output=e.output(0), axis=-1, p=1 if kind == "L1" else 2)


@expands("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(e: Expansion) -> None:
    """Columns by number; of a constant vector a row."""
    where = e.add("Reshape", e.input(1), e.array(np.array([-1], np.int64)))
    values = e.input(0)
    if e.rank(0) == 1:
        values = e.add("Reshape", values, e.array(np.array([1, -1], np.int64)))
    e.add("Gather", values, where, output=e.output(0), axis=-1)


@expands("LinearRegressor", domain=DOMAIN)
def linear_regressor(e: Expansion) -> None:
    """A product, of targets times features weights."""
    _transformed(e, _product(e, e.integer("targets", 1)), 0)


@expands("LinearClassifier", domain=DOMAIN)
def linear_classifier(e: Expansion) -> None:
    """A product with a row of weights for each class."""
    e.integer("multi_class", 0)
    count = len(_integers(e, "classlabels_ints"))
    _classified(e, _product(e, count), count, "classlabels_ints")


def _product(e: Expansion, rows: int) -> str:
    weights, shift = _floats(e, "coefficients"), _floats(e, "intercepts")
    if rows < 1 or not weights.size or weights.size % rows or shift.size not in (0, rows):
        raise e.error(f"{weights.size} coefficients and {shift.size} intercepts for {rows} results")
    y = e.add("MatMul", _widened(e), e.array(np.ascontiguousarray(weights.reshape(rows, -1).T)))
    return e.add("Add", y, e.array(shift)) if shift.size else y


# ---- trees ----


@dataclass(slots=True)
class _Forest:
    """Nodes of all trees, by number."""

    roots: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    depth: int
    operator: str
    """What leads to ``yes``."""
    number: dict[tuple[int, int], int]
    """Of a node, by tree and its number there."""


def _forest(e: Expansion) -> _Forest:
    trees, ids, features, yes, no = (_integers(e, f"nodes_{part}") for part in _PARTS)
    thresholds, modes = _floats(e, "nodes_values"), e.attr("nodes_modes", [])
    e.attr("nodes_hitrates", [])
    count = len(ids)
    lists = (trees, features, yes, no, thresholds, modes if isinstance(modes, list) else [])
    if not count or any(len(values) != count for values in lists) or not isinstance(modes, list):
        raise e.error("the lists of its nodes differ in length")
    if _integers(e, "nodes_missing_value_tracks_true").any():
        raise e.error("missing values are not supported")
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    kinds = {str(mode) for mode in modes} - {"LEAF"}
    if len(kinds) > 1 or not kinds <= set(_MODES):
        raise e.error(f"branches of kind {', '.join(sorted(kinds))} are not supported")
    number = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    here = np.arange(count)
    try:
        yes, no = (
            np.array([i if is_leaf[i] else number[int(trees[i]), int(way[i])] for i in range(count)])
            for way in (yes, no)
        )
    except KeyError:
        raise e.error("a branch leads to no node") from None
    ways = yes, no
    children = np.concatenate([way[~is_leaf] for way in ways])
    roots = np.setdiff1d(here, children)
    if len(number) != count or len(np.unique(children)) != len(children) or len(roots) != len(np.unique(trees)):
        raise e.error("its nodes are no trees")
    depth, reached, level = 0, len(roots), roots
    while len(level := np.concatenate([way[level[~is_leaf[level]]] for way in ways])):
        depth, reached = depth + 1, reached + len(level)
        if depth > DEPTH_MAX:
            raise e.error(f"trees of more than {DEPTH_MAX} levels are not supported")
    if reached != count:
        raise e.error("its nodes are no trees")
    if (features < 0).any():
        raise e.error("a branch looks at a feature below 0")
    features = np.where(is_leaf, 0, features)
    operator = _MODES[kinds.pop()] if kinds else "LessOrEqual"
    return _Forest(roots, features, thresholds, yes, no, depth, operator, number)


def _leaves(e: Expansion, forest: _Forest, part: str, results: int) -> str:
    """What a row's leaves say together: [rows, results]."""
    trees, ids, which = (_integers(e, f"{part}_{name}") for name in ("treeids", "nodeids", "ids"))
    weights = _floats(e, f"{part}_weights")
    if len({len(values) for values in (trees, ids, which, weights)}) != 1:
        raise e.error("the lists of its leaves differ in length")
    if results < 1 or (which < 0).any() or (which >= results).any():
        raise e.error(f"a leaf speaks of none of {results} results")
    count = len(forest.roots)
    if 4 * results * max(len(forest.yes), count * results) > BYTES_MAX:
        raise e.error(f"{results} results of {count} trees are not supported")
    said = np.zeros((len(forest.yes), results), np.float32)
    for tree, node, result, weight in zip(trees.tolist(), ids.tolist(), which.tolist(), weights, strict=True):
        if (tree, node) not in forest.number:
            raise e.error("a leaf is no node")
        said[forest.number[tree, node], result] += weight
    x = _widened(e)
    rows = e.add("Slice", e.add("Shape", x), *(e.array(np.array([v], np.int64)) for v in (0, 1)))
    sizes = e.add("Concat", rows, e.array(np.array([count], np.int64)), axis=0)
    at = e.add("Expand", e.array(forest.roots.astype(np.int64)[None]), sizes)
    features, thresholds, yes, no = (
        e.array(values) for values in (forest.features, forest.thresholds, forest.yes, forest.no)
    )
    for _ in range(forest.depth):
        value = e.add("GatherElements", x, e.add("Gather", features, at, axis=0), axis=1)
        goes = e.add(forest.operator, value, e.add("Gather", thresholds, at, axis=0))
        at = e.add("Where", goes, e.add("Gather", yes, at, axis=0), e.add("Gather", no, at, axis=0))
    each = e.add("Gather", e.array(said), at, axis=0)
    flat = e.add("Reshape", each, e.array(np.array([-1, count * results], np.int64)))
    kind = e.attr("aggregate_function", "SUM")
    if kind not in ("SUM", "AVERAGE"):
        raise e.error(f"attribute aggregate_function {kind} is not supported")
    share = np.float32(1 if kind == "SUM" else 1 / count)
    total = e.add("MatMul", flat, e.array(np.tile(np.eye(results, dtype=np.float32) * share, (count, 1))))
    base = _floats(e, "base_values")
    if base.size not in (0, results):
        raise e.error(f"{base.size} base values for {results} results")
    return e.add("Add", total, e.array(base)) if base.size else total


@expands("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(e: Expansion) -> None:
    """Sums of leaves."""
    _transformed(e, _leaves(e, _forest(e), "target", e.integer("n_targets", 1)), 0)


@expands("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(e: Expansion) -> None:
    """Sums of leaves for each class."""
    count = len(_integers(e, "classlabels_int64s"))
    if len(np.unique(_integers(e, "class_ids"))) < 2:
        raise e.error("one score for two classes is not supported")
    _classified(e, _leaves(e, _forest(e), "class", count), count, "classlabels_int64s")


@expands("ZipMap", domain=DOMAIN)
def zip_map(e: Expansion) -> None:
    """Makes mappings, which are no tensors."""
    raise e.error("mappings are not supported: export the model with the option zipmap=False")
