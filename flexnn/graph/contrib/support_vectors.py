"""Support vector machines (domain ai.onnx.ml) as products, with onnxruntime's rules where the standard has none."""

from __future__ import annotations

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .classic import DOMAIN, FLOAT, class_names, transformed, widened
from .expansion import Expansion, expands, floats, integers

LEAST = np.float32(1e-7)
"""Least probability of a pair, either way, as in onnxruntime."""
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@quick_dataclass(frozen=True, slots=True)
class _Kernel:
    """How alike two rows are."""

    kind: str
    gamma: float
    shift: float
    degree: float


def _kernel(e: Expansion) -> _Kernel:
    kind, numbers = e.attr("kernel_type", "LINEAR"), floats(e, "kernel_params").tolist() or [0.0] * 3
    if kind not in _KERNELS or len(numbers) != 3:
        raise e.error(f"kernel {kind} with {len(numbers)} parameters is not supported")
    return _Kernel(str(kind), *numbers)


def _rows(e: Expansion) -> str:
    """The input as rows of float32: one dimension is one row."""
    dims = e.dims(0)
    return e.add("Reshape", widened(e), e.array(np.array([1, -1], np.int64))) if dims and len(dims) == 1 else widened(e)


def _vectors(e: Expansion, count: int) -> np.ndarray:
    """The support vectors, [count, features]."""
    vectors = floats(e, "support_vectors")
    if not vectors.size or vectors.size % count:
        raise e.error(f"{vectors.size} numbers of {count} support vectors")
    return vectors.reshape(count, -1)


def _product(e: Expansion, x: str, weights: np.ndarray, shift: np.ndarray | float = 0.0) -> str:
    y = e.add("MatMul", x, e.array(np.ascontiguousarray(weights, np.float32)))
    return e.add("Add", y, e.array(np.asarray(shift, np.float32))) if np.any(shift) else y


def _weighed(e: Expansion, vectors: np.ndarray | None, kernel: _Kernel, weights: np.ndarray, shift: np.ndarray) -> str:
    """Sums of how alike each row is to each vector, by ``weights`` [vectors, sums]; None: of the features themselves.

    Sums of a linear kernel are products with one row of features each, made here in double precision: those of many
    vectors nearly cancel, which costs float32 all digits where features are large.
    """
    if vectors is None:
        return _product(e, _rows(e), weights, shift)
    if kernel.kind == "LINEAR":
        return _product(e, _rows(e), vectors.T.astype(np.float64) @ weights, shift)
    return _product(e, _alike(e, _rows(e), vectors, kernel), weights, shift)


def _alike(e: Expansion, x: str, vectors: np.ndarray, kernel: _Kernel) -> str:
    """How alike each row is to each vector, where that is more than a product."""
    if kernel.kind == "RBF":
        return _radial(e, x, vectors.astype(np.float64), kernel.gamma)
    y = _product(e, x, kernel.gamma * vectors.T, kernel.shift)
    return (
        e.add("Tanh", y)
        if kernel.kind == "SIGMOID"
        else e.add("Pow", y, e.array(np.array([kernel.degree], np.float32)))
    )


def _radial(e: Expansion, x: str, vectors: np.ndarray, gamma: float) -> str:
    """Exp(-gamma |x - v|²) of products: both less the vectors' mean, so that little is lost by subtracting squares."""
    middle = vectors.mean(0).astype(np.float32)
    vectors = vectors - middle
    x = e.add("Sub", x, e.array(middle))
    ones = np.full((len(middle), 1), -gamma)
    own = _product(e, e.add("Mul", x, x), ones)
    both = _product(e, x, 2 * gamma * vectors.T, -gamma * np.square(vectors).sum(1))
    distance = e.add("Add", both, own)
    least = e.add("Min", distance, e.array(np.zeros(1, np.float32))) if gamma >= 0 else distance
    return e.add("Exp", least)


@expands("SVMRegressor", domain=DOMAIN)
def svm_regressor(e: Expansion) -> None:
    """A sum over support vectors, or of the features; of one class 1 inside and -1 outside."""
    count, weights, shift, kernel = e.integer("n_supports", 0), floats(e, "coefficients"), floats(e, "rho"), _kernel(e)
    if e.attr("post_transform", "NONE") != "NONE":
        raise e.error("attribute post_transform is not supported")
    if count < 0 or shift.size < 1 or not weights.size or (count and weights.size != count):
        raise e.error(f"{weights.size} coefficients and {shift.size} shifts for {count} support vectors")
    y = _weighed(e, _vectors(e, count) if count else None, kernel, weights[:, None], shift[:1])
    e.attr("support_vectors", [])
    if e.integer("one_class", 0):
        ends = (e.array(np.array([end], np.float32)) for end in (1, -1))
        y = e.add("Where", e.add("Greater", y, e.array(np.zeros(1, np.float32))), *ends)
    e.add("Identity", y, output=e.output(0))


@expands("SVMClassifier", domain=DOMAIN)
def svm_classifier(e: Expansion) -> None:
    """The class that most machines of a pair vote for; with one machine for each class that of the highest score."""
    names, kernel = class_names(e, "classlabels_ints"), _kernel(e)
    counts, weights, shifts = integers(e, "vectors_per_class"), floats(e, "coefficients"), floats(e, "rho")
    chances = floats(e, "prob_a"), floats(e, "prob_b")
    if (counts < 0).any() or not weights.size or not shifts.size or len(chances[0]) != len(chances[1]):
        raise e.error("its lists of numbers do not fit together")
    if not counts.sum():
        e.attr("support_vectors", [])
        best = _of_each(e, len(names), weights, float(shifts[0]), bool(chances[0].size))
    else:
        classes, pairs = len(names), len(names) * (len(names) - 1) // 2
        wrong = any(part.size not in (0, pairs) for part in chances) or shifts.size != pairs
        if classes < 2 or len(counts) != classes or weights.size != (classes - 1) * counts.sum() or wrong:
            raise e.error(f"its lists of numbers do not fit {classes} classes")
        paired = _paired(counts, weights.reshape(classes - 1, -1))
        scores = _weighed(e, _vectors(e, int(counts.sum())), kernel, paired, shifts)
        best = _elected(e, scores, classes)
        _written(e, scores, classes, chances)
    e.add("Gather", e.array(names), best, output=e.output(0), axis=0)


def _of_each(e: Expansion, classes: int, weights: np.ndarray, shift: float, has_chances: bool) -> str:
    """Scores of a machine for each class, as output 1; the class that wins."""
    if weights.size % classes or (classes == 1 and e.attr("post_transform", "NONE") != "NONE"):
        raise e.error(f"{weights.size} coefficients for {classes} classes are not supported")
    scores = _product(e, _rows(e), weights.reshape(classes, -1).T, shift)
    transformed(e, scores, 1)
    best = e.add("ArgMax", scores, axis=1, keepdims=0)
    if classes != 2 or has_chances:
        return best
    # of two classes the second one wins as soon as the highest score, whose ever it is, is high enough
    most = e.add("Max", *(e.add("Gather", scores, e.array(np.array(i)), axis=1) for i in (0, 1)))
    test, least = ("GreaterOrEqual", 0.5) if (weights >= 0).all() else ("Greater", 0.0)
    return e.add("Where", e.add(test, most, e.array(np.array([least], np.float32))), e.array(np.array([1])), best)


def _paired(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of all vectors [vectors, pairs] in the decision between two classes: those of the vectors of both."""
    classes, owner = len(counts), np.repeat(np.arange(len(counts)), counts)
    columns = []
    for i in range(classes):
        for j in range(i + 1, classes):
            columns.append(np.where(owner == i, weights[j - 1], 0) + np.where(owner == j, weights[i], 0))
    return np.stack(columns, 1)


def _elected(e: Expansion, scores: str, classes: int) -> str:
    """The class of most votes, of equal ones the first: of a pair, the first class has the vote above 0."""
    first, second = np.triu_indices(classes, 1)
    own = np.arange(classes)
    is_first, is_second = ((side[:, None] == own).astype(np.float32) for side in (first, second))
    above = e.add("Cast", e.add("Greater", scores, e.array(np.zeros(1, np.float32))), to=FLOAT)
    return e.add("ArgMax", _product(e, above, is_first - is_second, is_second.sum(0)), axis=1, keepdims=0)


def _written(e: Expansion, scores: str, classes: int, chances: tuple[np.ndarray, np.ndarray]) -> None:
    """Output 1: probabilities of classes, or the scores of pairs; those of the only pair for both of its classes."""
    if chances[0].size:
        slopes, shifts = (e.array(-part.reshape(1, -1)) for part in chances)
        shares = e.add("Sigmoid", e.add("Add", e.add("Mul", scores, slopes), shifts))
        bounded = e.clipped(shares, float(LEAST), float(1 - LEAST))  # of either class of a pair
        transformed(e, e.add("flexnn.Couple", bounded, classes=classes), 1)
        return
    if classes > 2:
        transformed(e, scores, 1)
        return
    kind = e.attr("post_transform", "NONE")
    if kind == "PROBIT":
        raise e.error(f"attribute post_transform {kind} is not supported")
    if kind in ("NONE", "LOGISTIC"):
        both = e.add("Concat", e.add("Neg", scores), scores, axis=1)
        transformed(e, both, 1)
        return
    e.add("Concat", e.add("Sub", e.array(np.ones(1, np.float32)), scores), scores, output=e.output(1), axis=1)
