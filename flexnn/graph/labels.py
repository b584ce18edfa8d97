"""Numbers that stand for labels: of outputs names of classes as texts, and scores of each class as mappings; of inputs
texts that operators look up.

A run computes numbers. What they stand for is looked up when the caller reads an output or gives an input, so nothing
else changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from .ir import Array, GraphError
from .ports import Port

TYPES = {"texts": "tensor(string)", "mappings": "seq(map({key},tensor(float)))", "words": "tensor(string)"}
"""Types of such outputs and inputs, as onnxruntime names them."""
NUMBERS = {"texts": ("i64",), "mappings": ("f16", "f32", "f64"), "words": ("i64",)}
"""Types of the numbers that stand for them."""
LABELS_MAX = 1 << 16
"""Most labels of an output, and texts that a model knows."""
LABEL_MAX = 1 << 12
"""Most characters of one."""
KEPT_MAX = 1 << 12
"""Most names that a session keeps as an array, too."""


class Labels(NamedTuple):
    """Labels of an output or input. ``kind``: ``texts``: each number is an index of ``names``; ``mappings``: the last
    axis has a score for each of ``names``; ``words``: of an input, each number is an index of ``names``, or their
    count, where a text is none of them.
    """

    kind: str
    names: list[str] | list[int]

    @property
    def type(self) -> str:
        """The output's type."""
        return TYPES[self.kind].format(key="string" if self.names and isinstance(self.names[0], str) else "int64")

    @property
    def table(self) -> Array:
        """The names as an array of objects."""
        return np.array(self.names, object)

    def of(self, array: Array, table: Array | None = None) -> Array | Mappings:
        """Return what ``array`` stands for; ``table``: that of the names, if it is there. Raises GraphError where it
        has other numbers than labels, which models that FlexNN compiled have not.
        """
        count = len(self.names)
        if self.kind == "mappings":
            if array.shape[-1:] != (count,):
                raise GraphError(f"scores of shape {list(array.shape)} have {count} labels")
            return Mappings(self.names, array.reshape(-1, count))
        try:
            texts: Array = (self.table if table is None else table)[array]
        except IndexError:
            raise GraphError(f"a number is none of {count} labels") from None
        return texts


def check_labels(labels: Mapping[str, Labels], inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Check that what numbers of inputs and outputs stand for is of their kind. Raises GraphError."""
    for ports, other in ((inputs, "mappings"), (outputs, "words")):
        for port in ports:
            found = labels.get(port.name)
            if found and (found.kind == other or port.dtype not in (None, *NUMBERS[found.kind])):
                raise GraphError(f"{port.name!r} has {found.kind} as labels, which are none of {port.dtype}")


class Labelled:
    """Outputs of a model as what they stand for."""

    def __init__(self, ports: Sequence[Port], labels: Mapping[str, Labels]) -> None:
        found = [(i, labels[port.name]) for i, port in enumerate(ports) if port.name in labels]
        self._own = [(i, own, own.table if len(own.names) <= KEPT_MAX else None) for i, own in found]

    def of(self, outputs: Sequence[Array]) -> list[Any]:
        """Return all outputs, those that have labels as what they stand for. Raises GraphError."""
        made: list[Any] = list(outputs)
        for i, labels, table in self._own:
            made[i] = labels.of(made[i], table)
        return made


class _Places(dict[object, int]):
    """Places of names by name. What is no text is looked up as the text that it is printed as; bytes are UTF-8."""

    def __missing__(self, given: object) -> int:
        text = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)
        return self.get(text, len(self))


class Words:
    """Inputs that are texts. They become places among the names that the model knows."""

    def __init__(self, labels: Mapping[str, Labels]) -> None:
        own = {name: found.names for name, found in labels.items() if found.kind == "words"}
        self._places = {name: _Places(zip(names, range(len(names)), strict=True)) for name, names in own.items()}

    def __bool__(self) -> bool:
        return bool(self._places)

    def places(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a feed with the places of its texts; arrays of int64 are taken as such, and so is what is no mapping.
        Raises ValueError.
        """
        if not isinstance(feed, Mapping):
            return feed
        return {name: self._of(name, given) if name in self._places else given for name, given in feed.items()}

    def _of(self, name: str, given: Any) -> Array:
        array = np.asarray(given)
        if array.dtype == np.int64:
            return array
        if array.dtype.kind not in "OSTU":
            raise ValueError(f"input {name!r} is {array.dtype}{list(array.shape)}, the model takes texts")
        texts = array.ravel().tolist()
        known = self._places[name]
        try:
            places: Array = np.fromiter(map(known.__getitem__, texts), np.int64, len(texts))
        except TypeError:  # what cannot be looked up as it is
            places = np.fromiter(map(known.__missing__, texts), np.int64, len(texts))
        return places.reshape(array.shape)


class Mappings(Sequence[dict[Any, float]]):
    """Scores by label, a mapping for each row of ``scores``. A mapping is made when it is asked for; as an array, they
    are ``scores``.
    """

    def __init__(self, names: Sequence[Any], scores: Array) -> None:
        self.names, self.scores = names, scores

    @overload
    def __getitem__(self, index: int) -> dict[Any, float]: ...
    @overload
    def __getitem__(self, index: slice) -> Mappings: ...
    def __getitem__(self, index: int | slice) -> dict[Any, float] | Mappings:
        if isinstance(index, slice):
            return Mappings(self.names, self.scores[index])
        return dict(zip(self.names, self.scores[index].tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.scores)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} mappings of {len(self.names)} labels>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = np.asarray(self.scores, dtype)
        return array.copy() if copy else array
