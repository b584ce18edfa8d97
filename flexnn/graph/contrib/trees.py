"""Ensembles of trees (domain ai.onnx.ml) as one operator of the core, which walks words that are made here.

A node's two children lie side by side, so that a comparison alone says where to go. Every index of the file is checked
here; the core checks those that it meets, because an artifact is untrusted, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..evaluate import BYTES_MAX
from ..model import Constant, ModelAttr
from .classic import DOMAIN, class_names
from .expansion import Expansion, expands, floats, integers

INT64 = 7
"""TensorProto.DataType."""
DEPTH_MAX = 64
"""Levels of a tree: a walk takes as many steps."""
_RESULTS_MAX = 1 << 24
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""Modes in the order in which TreeEnsemble numbers them."""
_PARTS = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_BRANCH, _EQUAL, _MISSING, _MANY, _FLAGS = 1, 2, 4, 2, 3
"""Bits of a node's meta word (kernels/include/flexnn/params.h)."""


@quick_dataclass(slots=True)
class _Forest:
    """Nodes of all trees, by number. Leaves lead nowhere."""

    roots: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    modes: np.ndarray
    """Index into _MODES; of leaves -1."""
    yes: np.ndarray
    no: np.ndarray
    tracks: np.ndarray
    """Whether a missing value (NaN) leads to ``yes``, too."""


@quick_dataclass(slots=True)
class _Leaves:
    """Scores that leaves say: entry i, of ``results[i]``, is ``weights[i]``; those of one node follow each other."""

    first: np.ndarray
    """First entry of each node."""
    count: np.ndarray
    """Entries of each node."""
    results: np.ndarray
    weights: np.ndarray


@quick_dataclass(slots=True)
class _Order:
    """Nodes in the order of their words: the roots, then tree by tree, children side by side."""

    nodes: np.ndarray
    children: np.ndarray
    """Place of a node's first child; of a leaf its own."""
    depth: int


@quick_dataclass(slots=True)
class _Asked:
    """The attributes of the core's operator that forest and leaves do not decide."""

    results: int
    to_wide: bool = False
    aggregate: str = "SUM"
    transform: str = "NONE"
    classes: str = "none"
    is_positive: bool = False
    base: np.ndarray = field(default_factory=lambda: np.zeros(0))


def _plain(forest: _Forest) -> np.ndarray:
    """Turn every comparison into <= or ==, whose nodes are returned: x < t is x <= the number before t; x > t, x >= t
    and x != t exchange the children.
    """
    t, mode, inner = forest.thresholds, forest.modes, forest.modes >= 0
    known = ~np.isnan(t)
    exchanged = inner & known & np.isin(mode, (2, 3, 5))
    before = inner & np.isin(mode, (1, 2))
    with np.errstate(all="ignore"):
        lower = np.where(np.isneginf(t), np.nan, np.nextafter(t, -np.inf, dtype=t.dtype))
    forest.thresholds = np.where(before, lower, t)
    forest.yes, forest.no = np.where(exchanged, (forest.no, forest.yes), (forest.yes, forest.no))
    # NaN fails <= and ==. Only != holds for it, whatever the flag says; its children have been exchanged.
    is_not = inner & (mode == 5)
    forest.tracks = np.where(is_not, ~known, np.where(exchanged, ~forest.tracks, forest.tracks))
    if (is_not & ~known).any():  # all numbers differ from NaN: both ways lead to the first child
        forest.no = np.where(is_not & ~known, forest.yes, forest.no)
    return inner & np.isin(mode, (4, 5))


def _ordered(e: Expansion, forest: _Forest) -> _Order:
    """Walk the trees a level at a time. Raises GraphError where they are too deep, as with a cycle."""
    limit = 4 * len(forest.yes) + 4
    levels, trees, parents, base = [forest.roots], [np.arange(len(forest.roots))], [], 0
    while (inner := np.flatnonzero(forest.modes[levels[-1]] >= 0)).size:
        at = levels[-1][inner]
        parents.append(base + inner)
        base += len(levels[-1])
        levels.append(np.stack([forest.yes[at], forest.no[at]], 1).reshape(-1))
        trees.append(trees[-1][inner].repeat(2))
        if len(levels) > DEPTH_MAX + 1:
            raise e.error(f"trees of more than {DEPTH_MAX} levels are not supported")
        if base + len(levels[-1]) > limit:
            raise e.error("the nodes do not form trees")
    nodes, children = np.concatenate(levels), np.arange(sum(map(len, levels)))
    count, first = len(forest.roots), len(forest.roots)
    for parent in parents:
        children[parent] = first + 2 * np.arange(len(parent))
        first += 2 * len(parent)
    order = np.concatenate([np.arange(count), count + np.argsort(np.concatenate(trees)[count:], kind="stable")])
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return _Order(nodes[order], place[children[order]], len(levels) - 1)


def _words(
    forest: _Forest, leaves: _Leaves, order: _Order, is_equal: np.ndarray, base: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the forest's words, and the number of entries, of which there are none where each leaf says one result."""
    kind, nodes = forest.thresholds.dtype, order.nodes
    size = kind.itemsize // 4
    inner, count, first = forest.modes[nodes] >= 0, leaves.count[nodes], leaves.first[nodes]
    words = np.zeros((len(nodes), size + 2), "<i4")
    one, many = ~inner & (count == 1), ~inner & (count != 1)
    numbers = np.where(inner, forest.thresholds[nodes], 0).astype(kind)
    numbers[one] = leaves.weights[first[one]]
    words[:, :size] = numbers.view("<i4").reshape(-1, size)
    words[many, 0] = first[many]
    flags = _BRANCH + _EQUAL * is_equal[nodes] + _MISSING * forest.tracks[nodes]
    said = np.zeros(len(nodes), np.int64)
    said[one] = leaves.results[first[one]]
    metas = np.where(inner, (forest.features[nodes] << _FLAGS) + flags, np.where(one, said, count) << _FLAGS)
    words[:, size] = metas + _MANY * many
    words[:, size + 1] = order.children
    entries = np.zeros((len(leaves.results) if many.any() else 0, size + 1), "<i4")
    if many.any():
        entries[:, :size] = leaves.weights.astype(kind).view("<i4").reshape(-1, size)
        entries[:, size] = leaves.results
    parts = [words.reshape(-1), entries.reshape(-1), np.ascontiguousarray(base, kind).view("<i4")]
    return np.concatenate(parts), len(entries)


def _emit(e: Expansion, forest: _Forest, leaves: _Leaves, asked: _Asked, labels: str = "") -> None:
    """The node's outputs. Raises GraphError for indices that are out of range."""
    outputs = [e.output(0), e.output(1)] if labels else [e.output(0)]
    _walked(e, forest, leaves, asked, [e.input(0), labels], outputs)


def _walked(
    e: Expansion, forest: _Forest, leaves: _Leaves, asked: _Asked, inputs: Sequence[str], outputs: Sequence[str]
) -> list[str]:
    """Add the operator. ``inputs``: rows, and labels or "". Raises GraphError for indices that are out of range."""
    inner, results = forest.modes >= 0, leaves.results
    if (forest.features[inner] < 0).any() or (forest.features[inner] >> (31 - _FLAGS)).any():
        raise e.error("a branch compares a feature with a negative index, or one that is too large")
    if (results < 0).any() or (results >= asked.results).any():
        wrong = results[(results < 0) | (results >= asked.results)][0]
        raise e.error(f"leaf refers to result {wrong}, but there are {asked.results}")
    if not 1 <= asked.results <= _RESULTS_MAX or 4 * 4 * len(forest.yes) > BYTES_MAX:
        raise e.error(f"{asked.results} results of {len(forest.roots)} trees are not supported")
    is_equal = _plain(forest)
    order = _ordered(e, forest)
    words, entries = _words(forest, leaves, order, is_equal, asked.base)
    attrs: dict[str, ModelAttr] = {
        "is_wide": int(forest.thresholds.dtype == np.float64),
        "to_wide": int(asked.to_wide),
        "features": int(forest.features[inner].max(initial=-1)) + 1,
        "trees": len(forest.roots),
        "nodes": len(order.nodes),
        "entries": entries,
        "results": asked.results,
        "depth": order.depth,
        "is_plain": int(not is_equal.any() and not forest.tracks[inner].any()),
        "is_positive": int(asked.is_positive),
        "has_base": int(asked.base.size > 0),
        "aggregate": asked.aggregate.lower(),
        "transform": asked.transform.lower(),
        "classes": asked.classes,
    }
    return e.split("flexnn.Trees", [inputs[0], e.array(words), *inputs[1:]], outputs, attrs)


# ---- a tree that searches ----

EXACT: dict[type, int] = {np.float32: 1 << 24, np.float64: 1 << 53}
"""Types of thresholds, and the integers in which each is exact: those below."""


def places(e: Expansion, x: str, keys: np.ndarray) -> str:
    """Place of each element of ``x`` among keys, of equal ones the first; their count where it is none of them. The
    result has one dimension.
    """
    count, kind = len(keys), np.float64 if keys.dtype == np.float64 else np.float32
    if keys.dtype.kind in "iu":
        most = max(abs(int(keys.min(initial=0))), int(keys.max(initial=0)))
        kind = np.float64 if most >= EXACT[np.float32] else np.float32
        if most >= EXACT[kind]:
            raise e.error(f"key {most} is not supported: keys may have 53 bits")
    if count >= EXACT[np.float32]:
        raise e.error(f"{count} keys are not supported")
    forest, leaves = _of_branches(_search(keys.astype(kind)))
    rows = e.add("Reshape", x, e.array(np.array([-1, 1], np.int64)))
    (found,) = _walked(e, forest, leaves, _Asked(1), [rows, ""], [""])
    return e.add("Cast", e.add("Reshape", found, e.array(np.array([-1], np.int64))), to=INT64)


@quick_dataclass(slots=True)
class _Branches:
    """Branches of a tree, the root first. A way that is negative leads to a leaf, which says -1 less it."""

    thresholds: np.ndarray
    modes: list[int] = field(default_factory=list)
    ways: list[list[int]] = field(default_factory=list)
    tracks: list[bool] = field(default_factory=list)

    def add(self, mode: str, yes: int, no: int, tracks: bool = False) -> int:
        """Add a branch; return its number."""
        self.modes.append(_MODES.index(mode))
        self.ways.append([yes, no])
        self.tracks.append(tracks)
        return len(self.modes) - 1


def _search(keys: np.ndarray) -> _Branches:
    """Branches that halve the keys in order, and compare with the one that is left."""
    none = -1 - len(keys)
    ordered, place = np.unique(keys, return_index=True)  # NaN is the last one, and one
    known = int((~np.isnan(ordered)).sum())
    made, thresholds = _Branches(np.zeros(0, keys.dtype)), []
    if known < len(ordered) or not known:  # a comparison that holds for nothing but missing numbers, and only if told
        thresholds.append(np.nan)
        made.add("BRANCH_LEQ", -1 - int(place[-1]) if len(ordered) else none, 1 if known else none, len(ordered) > 0)
    waiting = [(0, known, -1, 0)] if known else []
    while waiting:
        first, end, parent, side = waiting.pop()
        middle = (first + end) // 2
        if end - first == 1:
            here = made.add("BRANCH_EQ", -1 - int(place[first]), none)
        else:
            here = made.add("BRANCH_LEQ", 0, 0)
            waiting += [(first, middle, here, 0), (middle, end, here, 1)]
        thresholds.append(ordered[max(middle - 1, first)])
        if parent >= 0:
            made.ways[parent][side] = here
    made.thresholds = np.array(thresholds, keys.dtype)
    return made


def _of_branches(made: _Branches) -> tuple[_Forest, _Leaves]:
    """The forest of one tree, whose leaves follow its branches."""
    ways = np.array(made.ways, np.int64)
    is_leaf, branches = ways < 0, len(made.ways)
    said = -1 - ways[is_leaf]
    ends = len(said)
    ways[is_leaf] = branches + np.arange(ends)
    forest = _Forest(
        np.zeros(1, np.int64),
        np.zeros(branches + ends, np.int64),
        np.pad(made.thresholds, (0, ends)),
        np.pad(np.array(made.modes, np.int64), (0, ends), constant_values=-1),
        np.pad(ways[:, 0], (0, ends)),
        np.pad(ways[:, 1], (0, ends)),
        np.pad(np.array(made.tracks, bool), (0, ends)),
    )
    at = np.arange(branches + ends) - branches
    weights = said.astype(made.thresholds.dtype)
    return forest, _Leaves(np.maximum(at, 0), (at >= 0).astype(np.int64), np.zeros(ends, np.int64), weights)


# ---- TreeEnsembleRegressor, TreeEnsembleClassifier: leaves are nodes, named by tree and number ----


def _numbers(e: Expansion, name: str, kind: type[np.floating]) -> np.ndarray:
    """A list of numbers, or the tensor that replaces it where numbers have 64 bits."""
    wide = e.attr(f"{name}_as_tensor", "")
    values = e.numbers(f"{name}_as_tensor") if isinstance(wide, Constant) else floats(e, name)
    if values.dtype.kind != "f":
        raise e.error(f"attribute {name}_as_tensor is not a list of numbers")
    return values.astype(kind)


def _is_wide(e: Expansion) -> bool:
    """Whether numbers are compared with 64 bits: because thresholds have as many, or rows."""
    return e.dtype(0) == "f64" or any(
        isinstance(e.node.attrs.get(f"{name}_as_tensor"), Constant) for name in ("nodes_values", "base_values")
    )


def _modes(e: Expansion, names: Sequence[object]) -> np.ndarray:
    """Return the index of each mode; of leaves -1."""
    known = {name: i for i, name in enumerate(_MODES)} | {"LEAF": -1}
    unknown = sorted({str(name) for name in set(names)} - known.keys())
    if unknown:
        raise e.error(f"branches of kind {', '.join(unknown)} are not supported")
    return np.fromiter(map(known.__getitem__, map(str, names)), np.int64, len(names))


class _Numbers:
    """Numbers of nodes, by their tree and their number there. Forests have millions: all are looked up at once."""

    def __init__(self, trees: np.ndarray, ids: np.ndarray) -> None:
        self._trees, tree = np.unique(trees, return_inverse=True)
        self._ids, number = np.unique(ids, return_inverse=True)
        keys = tree * len(self._ids) + number
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self.differ = bool((np.diff(self._keys) > 0).all())
        """Whether no two nodes have the same tree and number."""
        self.trees = len(self._trees)

    def of(self, trees: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the numbers of nodes. Raises KeyError where there is none."""
        tree, number = _place(self._trees, trees), _place(self._ids, ids)
        keys = tree * len(self._ids) + number
        at = _place(self._keys, keys)
        if not ((self._trees[tree] == trees) & (self._ids[number] == ids) & (self._keys[at] == keys)).all():
            raise KeyError
        found: np.ndarray = self._order[at]
        return found


def _place(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return where values are in an array in order, if they are there at all."""
    return np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)


def _forest(e: Expansion, kind: type[np.floating]) -> tuple[_Forest, _Numbers]:
    """The trees, and the numbers of their nodes."""
    trees, ids, features, yes, no = (integers(e, f"nodes_{part}") for part in _PARTS)
    thresholds, names = _numbers(e, "nodes_values", kind), e.attr("nodes_modes", [])
    e.attr("nodes_hitrates", [])
    e.attr("nodes_hitrates_as_tensor", [])
    count = len(ids)
    lists = (trees, features, yes, no, thresholds, names if isinstance(names, list) else [])
    if not count or any(len(values) != count for values in lists) or not isinstance(names, list):
        raise e.error("the attributes that list its nodes differ in length")
    tracks = integers(e, "nodes_missing_value_tracks_true")
    if len(tracks) not in (0, count):
        raise e.error("the attributes that list its nodes differ in length")
    modes = _modes(e, names)
    inner = modes >= 0
    number = _Numbers(trees, ids)
    try:
        yes, no = (number.of(trees, np.where(inner, child, ids)) for child in (yes, no))
    except KeyError:
        raise e.error("a branch leads to a node that does not exist") from None
    parents = np.bincount(np.concatenate([yes[inner], no[inner]]), minlength=count)
    roots = np.flatnonzero(parents == 0)
    if not number.differ or parents.max() > 1 or len(roots) != number.trees:
        raise e.error("the nodes do not form trees")
    forest = _Forest(roots, features, thresholds, modes, yes, no, tracks == 1 if tracks.size else np.zeros(count, bool))
    if len(_ordered(e, forest).nodes) != count:
        raise e.error("the nodes do not form trees")
    return forest, number


def _leaves(e: Expansion, part: str, forest: _Forest, number: _Numbers) -> _Leaves:
    """Scores that the leaves say."""
    trees, ids, which = (integers(e, f"{part}_{name}") for name in ("treeids", "nodeids", "ids"))
    weights = _numbers(e, f"{part}_weights", forest.thresholds.dtype.type)
    if len({len(values) for values in (trees, ids, which, weights)}) != 1:
        raise e.error("the attributes that list its leaves differ in length")
    try:
        owners = number.of(trees, ids)
    except KeyError:
        raise e.error("a leaf refers to a node that does not exist") from None
    order = np.argsort(owners, kind="stable")
    count = np.bincount(owners, minlength=len(forest.yes))
    return _Leaves(np.cumsum(count) - count, count, which[order], weights[order])


def _text(e: Expansion, name: str, default: str, known: Sequence[str]) -> str:
    value = e.attr(name, default)
    if value not in known:
        raise e.error(f"attribute {name} {value} is not supported")
    return str(value)


def _base(e: Expansion, results: int, kind: type[np.floating]) -> np.ndarray:
    base = _numbers(e, "base_values", kind)
    if base.size not in (0, results):
        raise e.error(f"{base.size} base values for {results} results")
    return base


@expands("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(e: Expansion) -> None:
    """Aggregated leaves."""
    kind = np.float64 if _is_wide(e) else np.float32
    forest, number = _forest(e, kind)
    results = e.integer("n_targets", 1)
    aggregate = _text(e, "aggregate_function", "SUM", _AGGREGATES)
    asked = _Asked(results, False, aggregate, _text(e, "post_transform", "NONE", _TRANSFORMS))
    leaves = _leaves(e, "target", forest, number)
    asked.base = _base(e, results, kind)
    _emit(e, forest, leaves, asked)


@expands("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(e: Expansion) -> None:
    """Sums of leaves for each class; of two classes perhaps for one only.

    The specification leaves open what the other one's score is; this is what onnxruntime does. Where leaves say both,
    onnxruntime's label is not of the higher one; the specification's is.
    """
    kind = np.float64 if _is_wide(e) else np.float32
    labels = class_names(e, "classlabels_int64s")
    forest, number = _forest(e, kind)
    leaves = _leaves(e, "class", forest, number)
    which, count = np.unique(leaves.results), len(labels)
    asked = _Asked(count, transform=_text(e, "post_transform", "NONE", _TRANSFORMS), classes="many")
    asked.is_positive = not bool((leaves.weights < 0).any())
    base = _numbers(e, "base_values", kind)
    if count == 2 and len(which) == 1:
        asked.classes = "second" if which[0] else "first"
        if base.size > (0 if which[0] else 1):
            raise e.error(f"{base.size} base values for one score of two classes are not supported")
        if asked.transform == "PROBIT":
            raise e.error("attribute post_transform PROBIT is not supported for one score of two classes")
        asked.base = np.pad(base, (0, 2 * bool(base.size) - base.size))
    elif count < 2:
        raise e.error(f"{count} labels are not supported")
    else:
        asked.base = _base(e, count, kind)
    _emit(e, forest, leaves, asked, e.array(labels))


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
    if (modes >= len(_MODES)).any() or (modes < 0).any():
        raise e.error(f"branches of kind {modes[(modes >= len(_MODES)) | (modes < 0)][0]} are not supported")
    for child, is_leaf in ((yes, is_yes_leaf), (no, is_no_leaf)):
        if (child < 0).any() or (child >= np.where(is_leaf != 0, leaves, count)).any():
            raise e.error("a branch leads to a node that does not exist")
        child[is_leaf != 0] += count
    if not roots.size or (roots < 0).any() or (roots >= count).any():
        raise e.error("a root refers to a node that does not exist")
    ends = np.arange(count, count + leaves)
    return _Forest(
        roots,
        np.pad(features, (0, leaves)),
        np.pad(thresholds, (0, leaves)),
        np.pad(modes.astype(np.int64), (0, leaves), constant_values=-1),
        np.concatenate([yes, ends]),
        np.concatenate([no, ends]),
        np.pad(tracks == 1, (0, count + leaves - len(tracks))),
    )


@expands("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(e: Expansion) -> None:
    """Aggregated leaves, in the type of the thresholds and the input."""
    forest, results = _table(e), e.integer("n_targets", 1)
    which, weights = integers(e, "leaf_targetids"), e.numbers("leaf_weights")
    if weights.dtype != forest.thresholds.dtype or len(weights) != len(which):
        raise e.error("leaf weights and thresholds must have one type, and the attributes that list leaves one length")
    kind, transform = e.integer("aggregate_function", 1), e.integer("post_transform", 0)
    if not 0 <= kind < len(_AGGREGATES):
        raise e.error(f"attribute aggregate_function {kind} is not supported")
    if transform not in (0, 3, 4):  # onnxruntime takes 1 for LOGISTIC and 2 for SOFTMAX, the specification the reverse
        raise e.error(f"attribute post_transform {transform} is not supported")
    count = len(forest.yes) - len(which)
    is_leaf = np.arange(len(forest.yes)) >= count
    leaves = _Leaves(np.where(is_leaf, np.arange(len(is_leaf)) - count, 0), is_leaf.astype(np.int64), which, weights)
    asked = _Asked(results, weights.dtype == np.float64, _AGGREGATES[kind], _TRANSFORMS[transform])
    _emit(e, forest, leaves, asked)
