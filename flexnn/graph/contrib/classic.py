"""Classic machine learning (domain ai.onnx.ml) as standard operators: what scikit-learn and its like are exported to.

https://onnx.ai/onnx/operators/index.html#ai-onnx-ml. Trees are in trees.py, encoders in encoders.py, support
vector machines in support_vectors.py.
"""

from __future__ import annotations

import numpy as np

from ..labels import LABEL_MAX, LABELS_MAX, Labels
from .expansion import Expansion, expands, floats, integers

DOMAIN = "ai.onnx.ml"
FLOAT = 1
"""TensorProto.DataType."""
_TRANSFORMS = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}


def widened(e: Expansion) -> str:
    """The input, as float32."""
    return e.add("Cast", e.input(0), to=FLOAT)


def transformed(e: Expansion, scores: str, index: int) -> None:
    """Output ``index``: the scores through the node's transform."""
    kind = e.attr("post_transform", "NONE")
    if kind not in _TRANSFORMS:
        raise e.error(f"attribute post_transform {kind} is not supported")
    e.add(_TRANSFORMS[str(kind)], scores, output=e.output(index))


def classified(e: Expansion, scores: str, classes: int, labels: str) -> None:
    """Labels of the highest scores, and the scores. ``labels``: of which attribute."""
    names = class_names(e, labels)
    if len(names) != classes or classes < 2:
        raise e.error(f"{classes} scores for {len(names)} labels are not supported")
    best = e.add("ArgMax", scores, axis=1, keepdims=0)
    e.add("Gather", e.array(names), best, output=e.output(0), axis=0)
    transformed(e, scores, 1)


def class_names(e: Expansion, integer_labels: str) -> np.ndarray:
    """The integers that output 0 has for each class: those of attribute ``integer_labels``, or, where labels are texts,
    their places.
    """
    names = texts(e, "classlabels_strings")
    if not names:
        return integers(e, integer_labels)
    e.attr(integer_labels, [])
    e.shared.labels[e.output(0)] = Labels("texts", names)
    return np.arange(len(names), dtype=np.int64)


def texts(e: Expansion, name: str) -> list[str]:
    """A list of texts; empty where it is absent."""
    value = e.attr(name, [])
    if not isinstance(value, list) or not all(isinstance(v, str) and len(v) <= LABEL_MAX for v in value):
        raise e.error(f"attribute {name} is not a list of texts of at most {LABEL_MAX} characters")
    if len(value) > LABELS_MAX:
        raise e.error(f"attribute {name} has {len(value)} labels; at most {LABELS_MAX} are supported")
    return list(map(str, value))


@expands("Scaler", domain=DOMAIN)
def scaler(e: Expansion) -> None:
    """(x - offset) scale."""
    centred = e.add("Sub", widened(e), e.array(floats(e, "offset")))
    e.add("Mul", centred, e.array(floats(e, "scale")), output=e.output(0))


@expands("Binarizer", domain=DOMAIN)
def binarizer(e: Expansion) -> None:
    """1 above the threshold, else 0."""
    above = e.add("Greater", widened(e), e.array(np.array(e.number("threshold", 0.0), np.float32)))
    e.add("Cast", above, output=e.output(0), to=FLOAT)


@expands("Normalizer", domain=DOMAIN)
def normalizer(e: Expansion) -> None:
    """Rows by their L1 or L2 norm."""
    kind = e.attr("norm", "MAX")
    if kind not in ("L1", "L2"):
        raise e.error(f"attribute norm {kind} is not supported")
    e.add("LpNormalization", widened(e), output=e.output(0), axis=-1, p=1 if kind == "L1" else 2)


@expands("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(e: Expansion) -> None:
    """Columns by number; of a vector a row."""
    where = e.add("Reshape", e.input(1), e.array(np.array([-1], np.int64)))
    values = e.input(0)
    dims = e.dims(0)
    if dims is not None and len(dims) == 1:
        values = e.add("Reshape", values, e.array(np.array([1, -1], np.int64)))
    e.add("Gather", values, where, output=e.output(0), axis=-1)
    if e.input(0) in e.shared.labels:
        e.shared.labels[e.output(0)], e.reads_labels = e.shared.labels[e.input(0)], True


@expands("LinearRegressor", domain=DOMAIN)
def linear_regressor(e: Expansion) -> None:
    """A product, of targets times features weights."""
    transformed(e, _product(e, e.integer("targets", 1)), 0)


@expands("LinearClassifier", domain=DOMAIN)
def linear_classifier(e: Expansion) -> None:
    """A product with a row of weights for each class."""
    e.integer("multi_class", 0)
    count = len(texts(e, "classlabels_strings") or integers(e, "classlabels_ints"))
    classified(e, _product(e, count), count, "classlabels_ints")


def _product(e: Expansion, rows: int) -> str:
    weights, shift = floats(e, "coefficients"), floats(e, "intercepts")
    if rows < 1 or not weights.size or weights.size % rows or shift.size not in (0, rows):
        raise e.error(f"{weights.size} coefficients and {shift.size} intercepts for {rows} results")
    y = e.add("MatMul", widened(e), e.array(np.ascontiguousarray(weights.reshape(rows, -1).T)))
    return e.add("Add", y, e.array(shift)) if shift.size else y


@expands("ZipMap", domain=DOMAIN)
def zip_map(e: Expansion) -> None:
    """The scores themselves, which callers get as mappings (graph/labels.py)."""
    names: list[str] | list[int] = texts(e, "classlabels_strings") or integers(e, "classlabels_int64s").tolist()
    if not 1 <= len(names) <= LABELS_MAX:
        raise e.error(f"{len(names)} labels; 1 to {LABELS_MAX} are supported")
    dims = e.dims(0)
    if dims is not None and (len(dims) not in (1, 2) or (isinstance(dims[-1], int) and dims[-1] != len(names))):
        raise e.error(f"{len(names)} labels for scores of shape {list(dims)}")
    e.shared.labels[e.output(0)] = Labels("mappings", names)
    rows = 1 if dims is not None and len(dims) == 1 else 0
    shape = e.array(np.array([rows, len(names)], np.int64))  # 0: as many as before, so a row has a score for each
    e.add("Reshape", e.input(0), shape, output=e.output(0))
