"""Ensembles of trees (domain ai.onnx.ml) as standard operators.

All trees are walked at once, a level at a time: a table of nodes, in which leaves lead to themselves, and for each row
and tree the number of the node where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..evaluate import BYTES_MAX
from .classic import DOMAIN, classified, floats, integers, transformed, widened
from .expansion import Expansion, expands

DEPTH_MAX = 64
"""Levels of a tree: each is a handful of nodes."""
_MODES = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}
_NUMBERED_MODES = tuple(_MODES)
"""Modes in the order in which TreeEnsemble numbers them."""
_PARTS = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")


@dataclass(slots=True)
class _Forest:
    """Nodes of all trees, by number. Leaves lead to themselves."""

    roots: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    is_leaf: np.ndarray
    tracks: np.ndarray
    """Whether a missing value (NaN) leads to ``yes``, too."""
    operator: str
    """ONNX operator: a branch goes to ``yes`` where it is true of feature and threshold."""
    depth: int = 0


def _measure(e: Expansion, forest: _Forest) -> int:
    """Set the forest's depth, and return the number of nodes that the roots lead to.

    Raises GraphError where the trees are too deep, as with a cycle, or where a node compares no feature.
    """
    if (forest.features < 0).any():
        raise e.error("a branch compares a feature with a negative index")
    level = forest.roots
    reached = np.zeros(len(forest.yes), bool)
    reached[level] = True
    while (inner := level[~forest.is_leaf[level]]).size:
        level = np.unique(np.concatenate([forest.yes[inner], forest.no[inner]]))
        reached[level] = True
        forest.depth += 1
        if forest.depth > DEPTH_MAX:
            raise e.error(f"trees of more than {DEPTH_MAX} levels are not supported")
    return int(reached.sum())


def _operator(e: Expansion, modes: set[str]) -> str:
    """Return the operator by which all branches compare."""
    if len(modes) > 1 or not modes <= set(_MODES):
        raise e.error(f"branches of kind {', '.join(sorted(modes))} are not supported")
    return _MODES[modes.pop()] if modes else "LessOrEqual"


def _walked(e: Expansion, x: str, forest: _Forest, said: np.ndarray, average: bool) -> str:
    """Return the sums [rows, results] of the leaves that each row ends at. ``said``: of each node, [nodes, results]."""
    count, results = len(forest.roots), said.shape[1]
    rows = e.add("Slice", e.add("Shape", x), *(e.array(np.array([v], np.int64)) for v in (0, 1)))
    sizes = e.add("Concat", rows, e.array(np.array([count], np.int64)), axis=0)
    at = e.add("Expand", e.array(forest.roots.astype(np.int64)[None]), sizes)
    features, thresholds, yes, no = (
        e.array(values) for values in (forest.features, forest.thresholds, forest.yes, forest.no)
    )
    tracks = e.array(forest.tracks) if forest.tracks.any() else ""
    for _ in range(forest.depth):
        value = e.add("GatherElements", x, e.add("Gather", features, at, axis=0), axis=1)
        goes = e.add(forest.operator, value, e.add("Gather", thresholds, at, axis=0))
        if tracks:
            missing = e.add("And", e.add("IsNaN", value), e.add("Gather", tracks, at, axis=0))
            goes = e.add("Or", goes, missing)
        at = e.add("Where", goes, e.add("Gather", yes, at, axis=0), e.add("Gather", no, at, axis=0))
    each = e.add("Gather", e.array(said), at, axis=0)
    flat = e.add("Reshape", each, e.array(np.array([-1, count * results], np.int64)))
    share = said.dtype.type(1 / count if average else 1)
    return e.add("MatMul", flat, e.array(np.tile(np.eye(results, dtype=said.dtype) * share, (count, 1))))


def _limited(e: Expansion, nodes: int, count: int, results: int) -> None:
    """Refuse tables that a few numbers in a file would make huge."""
    if results < 1 or 4 * results * max(nodes, count * results) > BYTES_MAX:
        raise e.error(f"{results} results of {count} trees are not supported")


# ---- TreeEnsembleRegressor, TreeEnsembleClassifier: leaves are nodes, named by tree and number ----


def _forest(e: Expansion) -> tuple[_Forest, dict[tuple[int, int], int]]:
    """The trees, and the number of each node by its tree and its number there."""
    trees, ids, features, yes, no = (integers(e, f"nodes_{part}") for part in _PARTS)
    thresholds, modes = floats(e, "nodes_values"), e.attr("nodes_modes", [])
    e.attr("nodes_hitrates", [])
    count = len(ids)
    lists = (trees, features, yes, no, thresholds, modes if isinstance(modes, list) else [])
    if not count or any(len(values) != count for values in lists) or not isinstance(modes, list):
        raise e.error("the attributes that list its nodes differ in length")
    tracks = integers(e, "nodes_missing_value_tracks_true")
    if len(tracks) not in (0, count):
        raise e.error("the attributes that list its nodes differ in length")
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    operator = _operator(e, {str(mode) for mode in modes} - {"LEAF"})
    number = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    try:
        yes, no = (
            np.array([i if is_leaf[i] else number[int(trees[i]), int(child[i])] for i in range(count)])
            for child in (yes, no)
        )
    except KeyError:
        raise e.error("a branch leads to a node that does not exist") from None
    children = np.concatenate([yes[~is_leaf], no[~is_leaf]])
    roots = np.setdiff1d(np.arange(count), children)
    if len(number) != count or len(np.unique(children)) != len(children) or len(roots) != len(np.unique(trees)):
        raise e.error("the nodes do not form trees")
    features = np.where(is_leaf, 0, features)
    wants = tracks.astype(bool) if tracks.size else np.zeros(count, bool)
    forest = _Forest(roots, features, thresholds, yes, no, is_leaf, wants, operator)
    if _measure(e, forest) != count:
        raise e.error("the nodes do not form trees")
    return forest, number


def _scores(e: Expansion, part: str, results: int) -> str:
    """Return the sums [rows, results] of the leaves that each row ends at."""
    forest, number = _forest(e)
    trees, ids, which = (integers(e, f"{part}_{name}") for name in ("treeids", "nodeids", "ids"))
    weights = floats(e, f"{part}_weights")
    if len({len(values) for values in (trees, ids, which, weights)}) != 1:
        raise e.error("the attributes that list its leaves differ in length")
    _limited(e, len(forest.yes), len(forest.roots), results)
    if (which < 0).any() or (which >= results).any():
        raise e.error(f"leaf refers to result {which[(which < 0) | (which >= results)][0]}, but there are {results}")
    said = np.zeros((len(forest.yes), results), np.float32)
    for tree, node, result, weight in zip(trees.tolist(), ids.tolist(), which.tolist(), weights, strict=True):
        if (tree, node) not in number:
            raise e.error("a leaf refers to a node that does not exist")
        said[number[tree, node], result] += weight
    kind = e.attr("aggregate_function", "SUM")
    if kind not in ("SUM", "AVERAGE"):
        raise e.error(f"attribute aggregate_function {kind} is not supported")
    return _walked(e, widened(e), forest, said, kind == "AVERAGE")


def _based(e: Expansion, total: str, results: int) -> str:
    """Add the base values."""
    base = floats(e, "base_values")
    if base.size not in (0, results):
        raise e.error(f"{base.size} base values for {results} results")
    return e.add("Add", total, e.array(base)) if base.size else total


@expands("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(e: Expansion) -> None:
    """Sums of leaves."""
    results = e.integer("n_targets", 1)
    transformed(e, _based(e, _scores(e, "target", results), results), 0)


@expands("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(e: Expansion) -> None:
    """Sums of leaves for each class; of two classes perhaps for one only."""
    labels, which = integers(e, "classlabels_int64s"), np.unique(integers(e, "class_ids"))
    if len(labels) == 2 and len(which) == 1:
        _two_classes(e, labels, int(which[0]))
    else:
        count = len(labels)
        classified(e, _based(e, _scores(e, "class", count), count), count, "classlabels_int64s")


def _two_classes(e: Expansion, labels: np.ndarray, which: int) -> None:
    """One score, said as class ``which``, for the second of two classes. The specification leaves open what the first
    one's is; this is what onnxruntime does.
    """
    if which not in (0, 1):
        raise e.error(f"leaf refers to class {which}, but there are 2")
    if e.attr("classlabels_strings", []):
        raise e.error("labels that are texts are not supported")
    scores = _scores(e, "class", 2)
    score = e.add("Gather", scores, e.array(np.array([which], np.int64)), axis=1)
    if which and floats(e, "base_values").size:
        raise e.error("base values for one score of two classes are not supported")
    score = _based(e, score, 1)
    are_shares = bool((floats(e, "class_weights") >= 0).all())
    above = e.add("Greater", score, e.array(np.array(0.5 if are_shares else 0, np.float32)))
    label = e.add("Where", above, e.array(labels[1]), e.array(labels[0]))
    e.add("Reshape", label, e.array(np.array([-1], np.int64)), output=e.output(0))
    if which:
        transformed(e, scores, 1)
        return
    kind = e.attr("post_transform", "NONE")
    is_logistic = kind == "LOGISTIC"
    if kind not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise e.error(f"attribute post_transform {kind} is not supported")
    other = e.add("Sub", e.array(np.array(are_shares and not is_logistic, np.float32)), score)
    both = e.add("Concat", other, score, axis=1)
    e.add("Sigmoid" if is_logistic else "Identity", both, output=e.output(1))


# ---- TreeEnsemble: leaves are a table of their own, branches say which of both they lead to ----


def _table(e: Expansion) -> _Forest:
    """The trees; leaves follow the branches."""
    roots, features, yes, no = (
        integers(e, name) for name in ("tree_roots", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    )
    is_yes_leaf, is_no_leaf = (integers(e, name) for name in ("nodes_trueleafs", "nodes_falseleafs"))
    modes, thresholds = e.numbers("nodes_modes"), e.numbers("nodes_splits")
    tracks = integers(e, "nodes_missing_value_tracks_true")
    leaves = len(integers(e, "leaf_targetids"))
    e.attr("nodes_hitrates", [])
    count = len(features)
    lists = (yes, no, is_yes_leaf, is_no_leaf, modes, thresholds, tracks if tracks.size else features)
    if not count or any(len(values) != count for values in lists):
        raise e.error("the attributes that list its nodes differ in length")
    if thresholds.dtype.kind != "f" or thresholds.dtype.itemsize < 4:
        raise e.error(f"thresholds of type {thresholds.dtype} are not supported")
    kinds = {_NUMBERED_MODES[m] if m < len(_NUMBERED_MODES) else str(m) for m in np.unique(modes).tolist()}
    for child, is_leaf in ((yes, is_yes_leaf), (no, is_no_leaf)):
        if (child < 0).any() or (child >= np.where(is_leaf != 0, leaves, count)).any():
            raise e.error("a branch leads to a node that does not exist")
        child[is_leaf != 0] += count
    if not roots.size or (roots < 0).any() or (roots >= count).any():
        raise e.error("a root refers to a node that does not exist")
    ends = np.arange(count, count + leaves)
    forest = _Forest(
        roots,
        np.pad(features, (0, leaves)),
        np.pad(thresholds, (0, leaves)),
        np.concatenate([yes, ends]),
        np.concatenate([no, ends]),
        np.arange(count + leaves) >= count,
        np.pad(tracks.astype(bool), (0, count + leaves - len(tracks))),
        _operator(e, kinds),
    )
    _measure(e, forest)
    return forest


@expands("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(e: Expansion) -> None:
    """Sums of leaves, in the type of the thresholds and the input."""
    forest, results = _table(e), e.integer("n_targets", 1)
    which, weights = integers(e, "leaf_targetids"), e.numbers("leaf_weights")
    nodes = len(forest.yes)
    if weights.dtype != forest.thresholds.dtype or len(weights) != len(which):
        raise e.error("leaf weights and thresholds must have one type, and the attributes that list leaves one length")
    _limited(e, nodes, len(forest.roots), results)
    if (which < 0).any() or (which >= results).any():
        raise e.error(f"leaf refers to result {which[(which < 0) | (which >= results)][0]}, but there are {results}")
    said = np.zeros((nodes, results), weights.dtype)
    said[np.arange(nodes - len(which), nodes), which] = weights
    kind, transform = e.integer("aggregate_function", 1), e.integer("post_transform", 0)
    if kind not in (0, 1):
        raise e.error(f"attribute aggregate_function {kind} is not supported")
    if transform:  # onnxruntime takes 1 for LOGISTIC and 2 for SOFTMAX, the specification the other way round
        raise e.error(f"attribute post_transform {transform} is not supported")
    e.add("Identity", _walked(e, e.input(0), forest, said, kind == 0), output=e.output(0))
