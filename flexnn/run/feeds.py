"""Checks of a run's inputs, which come by name and go in the model's order, and of the outputs that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn.errors import printable
from flexnn.graph.ir import DTYPES, Array
from flexnn.graph.ports import Dim, Port

if TYPE_CHECKING:
    from flexnn.graph.labels import Labelled, Labels, Words


class Feeds:
    """Inputs and outputs of a model."""

    def __init__(
        self,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        may_lack: frozenset[str] = frozenset(),
        labels: Mapping[str, Labels] | None = None,
    ) -> None:
        """Take the ports; inputs that ``may_lack`` from a feed are None then. ``labels``: what numbers stand for.
        Raises GraphError where they are of another kind.
        """
        self._may_lack = may_lack
        self._inputs = [(port.name, DTYPES[str(port.dtype)], port.dims) for port in inputs]
        self._names = {port.name for port in inputs}
        self._places = {port.name: i for i, port in enumerate(outputs)}
        self._fitting: list[tuple[int, ...] | None] = [None] * len(inputs)
        """Shape of each input that was found to fit last."""
        self.words: Words | None = None
        """Inputs that are texts; None: there are none."""
        self.labelled: Labelled | None = None
        """Outputs that stand for something else than numbers; None: there are none."""
        if labels:
            from flexnn.graph.labels import Labelled, Words, check_labels

            check_labels(labels, inputs, outputs)
            self.words, self.labelled = Words(labels) or None, Labelled(outputs, labels)

    def arrays(self, feed: Mapping[str, Any]) -> list[Array]:
        """Return the arrays of a feed, contiguous and aligned, in the model's order. Raises ValueError, TypeError."""
        if not isinstance(feed, Mapping):
            raise TypeError(f"input_feed is a {type(feed).__name__}, not a mapping of names to arrays")
        if self.words is not None:
            feed = self.words.places(feed)
        arrays: list[Any] = []
        lacks = 0
        for i, (name, dtype, dims) in enumerate(self._inputs):
            given = feed.get(name)
            if given is None and name in self._may_lack:
                lacks += 1
                arrays.append(None)
                continue
            if given is None and name not in feed:
                self._refuse_others(feed)
                raise ValueError(f"input {name!r} is missing")
            array = given if type(given) is np.ndarray else _array(name, given)
            if array.dtype != dtype or (array.shape != self._fitting[i] and not _fits(array.shape, dims)):
                self._refuse_others(feed)
                shape = "any shape" if dims is None else ["?" if d is None else d for d in dims]
                raise ValueError(f"input {name!r} is {array.dtype}{list(array.shape)}, the model takes {dtype}{shape}")
            self._fitting[i] = array.shape
            flags = array.flags
            arrays.append(array if flags.c_contiguous and flags.aligned else np.require(array, None, ["C", "ALIGNED"]))
        if len(feed) != len(self._inputs) - lacks:
            self._refuse_others(feed)
        return arrays

    def wanted(self, names: Sequence[str] | None) -> list[int] | None:
        """Return the positions of the outputs of these names; None: all. Raises ValueError, TypeError."""
        if names is None:
            return None
        if isinstance(names, str):
            raise TypeError(f"output_names is the text {names!r}, not a list of names")
        wanted = list(names)
        for name in wanted:
            if name not in self._places:
                raise ValueError(f"no output {name!r}; the outputs are {printable(', '.join(self._places))}")
        return [self._places[name] for name in wanted]

    def _refuse_others(self, feed: Mapping[str, Any]) -> None:
        for name in feed:
            if name not in self._names:
                names = printable(", ".join(own for own, _, _ in self._inputs))
                raise ValueError(f"no input {name!r}; the inputs are {names}")


def _array(name: str, given: object) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ValueError(f"input {name!r} is not an array: {error}") from None


def _fits(shape: tuple[int, ...], dims: tuple[Dim, ...] | None) -> bool:
    """Return whether an array of ``shape`` fits an input declared as ``dims``."""
    if dims is None:
        return True
    return len(shape) == len(dims) and all(not isinstance(d, int) or d == n for n, d in zip(shape, dims, strict=True))
