"""Encoders of classic machine learning (domain ai.onnx.ml): categories as numbers, numbers for those that are missing.

Texts are places among names that are known (graph/labels.py), so that looking one up is a Gather.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..labels import LABELS_MAX, Labels
from ..model import Constant, ModelAttr
from .classic import DOMAIN, FLOAT, texts
from .expansion import Expansion, expands, floats, integers
from .trees import INT64, places

_DEFAULTS: dict[str, tuple[str, ModelAttr]] = {
    "floats": ("default_float", -0.0),
    "int64s": ("default_int64", -1),
    "strings": ("default_string", "_Unused"),
}
_ALL = np.array([-1], np.int64)


class _Listed:
    """Keys or values of an encoder: numbers, or texts."""

    def __init__(self, kind: str, numbers: np.ndarray | None = None, names: Sequence[str] = ()) -> None:
        self.kind, self.numbers, self.names = kind, numbers, names

    def __len__(self) -> int:
        return len(self.names) if self.numbers is None else len(self.numbers)


def _listed(e: Expansion, part: str) -> _Listed:
    """The list of an encoder that is given: numbers, texts or a tensor."""
    tensor = e.attr(f"{part}_tensor", "")
    if isinstance(tensor, list):
        return _Listed("strings", None, [str(text) for text in tensor])
    if isinstance(tensor, Constant):
        return _Listed("tensor", e.numbers(f"{part}_tensor"))
    found = [
        _Listed("floats", floats(e, f"{part}_floats")),
        _Listed("int64s", integers(e, f"{part}_int64s")),
        _Listed("strings", None, texts(e, f"{part}_strings")),
    ]
    given = [own for own in found if len(own)]
    if len(given) != 1:
        raise e.error(f"{len(given)} lists of {part} are given; it must be one")
    return given[0]


@expands("LabelEncoder", domain=DOMAIN)
def label_encoder(e: Expansion) -> None:
    """The value of each key; of what is no key the default."""
    if "classes_strings" in e.node.attrs:
        _mapped(e, texts(e, "classes_strings"), None)
        return
    keys, values = _listed(e, "keys"), _listed(e, "values")
    if len(keys) != len(values):
        raise e.error(f"{len(keys)} keys have {len(values)} values")
    for name in ("default_tensor", "default_float", "default_int64", "default_string"):
        e.attr(name, 0)
    _encoded(e, keys, values, _default(e, values))


def _default(e: Expansion, values: _Listed) -> str | np.ndarray:
    """The value of what is no key."""
    if values.kind == "strings":
        tensor = e.attr("default_tensor", "")
        return str(tensor[0] if isinstance(tensor, list) and tensor else e.attr(*_DEFAULTS["strings"]))
    assert values.numbers is not None
    if values.kind == "tensor":
        if "default_tensor" in e.node.attrs:
            return e.numbers("default_tensor").astype(values.numbers.dtype)
        return np.full(1, -0.0 if values.numbers.dtype.kind == "f" else -1).astype(values.numbers.dtype)
    name, usual = _DEFAULTS[values.kind]
    return np.array([e.attr(name, usual)], values.numbers.dtype)


@expands("CategoryMapper", domain=DOMAIN)
def category_mapper(e: Expansion) -> None:
    """Integers for texts, or texts for integers."""
    _mapped(e, texts(e, "cats_strings"), integers(e, "cats_int64s"))


def _mapped(e: Expansion, names: list[str], numbers: np.ndarray | None) -> None:
    """Integers (by default the places) for texts, or texts for integers, as the input is."""
    whole = np.arange(len(names), dtype=np.int64) if numbers is None else numbers
    if len(whole) != len(names):
        raise e.error(f"{len(names)} texts and {len(whole)} integers")
    number, text = e.integer("default_int64", -1), str(e.attr("default_string", "_Unused"))
    sides = _Listed("int64s", whole), _Listed("strings", None, names)
    if e.input(0) in e.shared.labels:
        _encoded(e, sides[1], sides[0], np.array([number], np.int64))
    else:
        _encoded(e, *sides, text)


def _encoded(e: Expansion, keys: _Listed, values: _Listed, default: str | np.ndarray) -> None:
    """The node's output: the value of each element of the input."""
    x = e.input(0)
    if keys.numbers is not None:
        place = places(e, x, keys.numbers)
    else:
        place = e.add("Gather", e.array(_known(e, keys.names)), e.add("Reshape", x, e.array(_ALL)), axis=0)
    if values.numbers is None:
        e.shared.labels[e.output(0)] = Labels("texts", _few(e, [*values.names, str(default)]))
    else:
        place = e.add("Gather", e.array(np.concatenate([values.numbers, default])), place, axis=0)
    e.add("Reshape", place, e.add("Shape", x), output=e.output(0), allowzero=1)


def _known(e: Expansion, keys: Sequence[str]) -> np.ndarray:
    """Place among ``keys`` of each text that the input may be; their count where it is none of them."""
    labels = e.shared.labels.get(e.input(0))
    if labels is None or labels.kind == "mappings":
        raise e.error(f"its input {e.input(0)!r} is no text whose names are known")
    place = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    e.reads_labels = True
    found = [place.get(str(name), len(keys)) for name in labels.names]
    return np.array(found + [len(keys)] * (labels.kind == "words"), np.int64)


def _few(e: Expansion, names: list[str]) -> list[str]:
    if len(names) > LABELS_MAX:
        raise e.error(f"{len(names)} labels; at most {LABELS_MAX} are supported")
    return names


@expands("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(e: Expansion) -> None:
    """A new last dimension of a number for each category: 1 at that of the element, else 0."""
    x, names, numbers = e.input(0), texts(e, "cats_strings"), integers(e, "cats_int64s")
    count = len(names) or len(numbers)
    if not count or (names and len(numbers)) or len({*names, *numbers.tolist()}) != count:
        raise e.error("its categories are none, or given twice")
    if names:
        which, wanted = e.add("Gather", e.array(_known(e, names)), x, axis=0), np.arange(count, dtype=np.int64)
    else:
        which, wanted = e.add("Cast", x, to=INT64), numbers
    if not e.integer("zeros", 1):  # a Gather refuses what is no category
        place = which if names else places(e, which, numbers)
        found = e.add("Gather", e.array(np.arange(count, dtype=np.int64)), place, axis=0)
        which, wanted = e.add("Reshape", found, e.add("Shape", x), allowzero=1), np.arange(count, dtype=np.int64)
    e.add("Cast", e.add("Equal", e.unsqueezed(which, -1), e.array(wanted)), output=e.output(0), to=FLOAT)


@expands("Imputer", domain=DOMAIN)
def imputer(e: Expansion) -> None:
    """Columns in which another number stands for one that says that a number is missing."""
    wide, whole = floats(e, "imputed_value_floats"), integers(e, "imputed_value_int64s")
    missing = {np.float32: e.number("replaced_value_float", 0.0), np.int64: e.integer("replaced_value_int64", 0)}
    if wide.size and whole.size:
        raise e.error("integers and other numbers are imputed at once")
    instead = wide if wide.size else whole
    if not instead.size:
        raise e.error("no number is imputed")
    x, number = e.input(0), missing[instead.dtype.type]
    if np.isnan(number):
        is_missing = e.add("IsNaN", x)
    else:
        is_missing = e.add("Equal", x, e.add("CastLike", e.array(np.array([number], instead.dtype)), x))
    e.add("Where", is_missing, e.add("CastLike", e.array(instead), x), x, output=e.output(0))


@expands("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(e: Expansion) -> None:
    """The first columns of each input, so many of it, side by side."""
    counts = integers(e, "inputdimensions")
    if len(counts) != len(e.node.input) or (counts < 1).any():
        raise e.error(f"attribute inputdimensions {counts.tolist()} does not fit {len(e.node.input)} inputs")
    parts = []
    for i, count in enumerate(counts.tolist()):
        part, dims = e.add("Cast", e.input(i), to=FLOAT), e.dims(i)
        if dims is None or dims[-1:] != (count,):
            part = e.cut(part, count, -1)
        rows = 1 if dims is not None and len(dims) == 1 else 0  # 0: as many as there are
        parts.append(e.add("Reshape", part, e.array(np.array([rows, count], np.int64))))
    e.add("Concat", *parts, output=e.output(0), axis=1)
