"""Constants of a template whose numbers depend on its sizes: how each is made, as data that an artifact can hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .ir import Array
from .model import ModelNode
from .replay import Folded, Numbers

KEPT_BYTES = 64 << 10
"""Most bytes of a model's constant that a maker keeps; it loads larger ones when they are needed."""
FEW_BYTES = 4 << 10
"""Most bytes of a node's outputs that are kept while other constants are made of them."""


@quick_dataclass(frozen=True, slots=True)
class LateSizes:
    """Numbers of the trail."""

    indices: Array
    """Indices in the trail, in the constant's shape."""
    dtype: np.dtype[np.generic]

    def __call__(self, numbers: Numbers) -> Array:
        """Return the constant."""
        return np.array([numbers[i] for i in self.indices.reshape(-1).tolist()], self.dtype).reshape(self.indices.shape)

    def key(self, numbers: Numbers) -> Hashable:
        """Return what says which constant it is, with these numbers."""
        return numbers.words[self.indices].tobytes(), self.indices.shape, self.dtype.str


class OfModel(Protocol):
    """The numbers of one of the model's constants (a ModelSource)."""

    index: int
    used: bool

    def load(self) -> Array:
        """The numbers."""
        ...


@quick_dataclass(frozen=True, slots=True)
class LateConstant:
    """One of the model's constants, too large to be kept: each reader loads it."""

    source: OfModel
    shape: tuple[int, ...]

    def __call__(self, _: Numbers) -> Array:
        """Return the constant."""
        return np.asarray(self.source.load()).reshape(self.shape)

    def key(self, _: Numbers) -> Hashable:
        """Return what says which constant it is."""
        return self.source.index, self.shape


@quick_dataclass(frozen=True, slots=True)
class LateShape:
    """Another constant in a shape of sizes."""

    base: Late
    shape: list[int]
    """Indices in the trail."""

    def __call__(self, numbers: Numbers) -> Array:
        """Return the constant."""
        return self.base(numbers).reshape([int(numbers[i]) for i in self.shape])


@quick_dataclass(frozen=True, slots=True)
class LateMap:
    """A function of another constant."""

    base: Late
    function: Callable[[Array], Array]

    def __call__(self, numbers: Numbers) -> Array:
        """Return the constant."""
        return self.function(self.base(numbers))


@quick_dataclass(frozen=True, slots=True)
class LateFold:
    """An output of a node of the model whose inputs are constants."""

    node: ModelNode
    inputs: list[Late | Array | None]
    opset: int
    output: int
    """Number of the output."""

    def __call__(self, numbers: Numbers) -> Array:
        """Return the constant."""
        from .evaluate.of_node import evaluate_node  # few templates fold

        folded = numbers.folded
        key = self._key(numbers, folded) if folded is not None else -1
        made = folded.made.get(key) if folded is not None else None
        if made is None:
            known = [v if v is None or isinstance(v, np.ndarray) else v(numbers) for v in self.inputs]
            made = evaluate_node(self.node, known, self.opset)
            if folded is not None and sum(array.nbytes for array in made) <= FEW_BYTES:
                folded.made[key] = made
        return made[self.output]

    def _key(self, numbers: Numbers, folded: Folded) -> int:
        """Return the number of the node's outputs: layers each make the same masks and rotations."""
        key = folded.keys.get(id(self))
        if key is None:
            inputs = [
                (v.output, v._key(numbers, folded))
                if isinstance(v, LateFold)
                else v.key(numbers)
                if isinstance(v, LateSizes | LateConstant)
                else id(v)
                for v in self.inputs
            ]
            key = folded.numbers.setdefault((id(self.node), *inputs), len(folded.numbers))
            folded.keys[id(self)] = key
        return key


Late = LateSizes | LateConstant | LateShape | LateMap | LateFold


def numbers_read(late: Late | Array | None) -> set[int]:
    """Return the indices of those numbers of the trail that decide a constant."""
    if isinstance(late, LateSizes):
        return set(late.indices.reshape(-1).tolist())
    if isinstance(late, LateShape):
        return numbers_read(late.base).union(late.shape)
    if isinstance(late, LateMap):
        return numbers_read(late.base)
    return set[int]().union(*map(numbers_read, late.inputs)) if isinstance(late, LateFold) else set()


@quick_dataclass(frozen=True, slots=True)
class Transposed:
    """Function that permutes dimensions."""

    perm: list[int]

    def __call__(self, values: Array) -> Array:
        """Return the array, transposed."""
        return values.transpose(self.perm)


@quick_dataclass(frozen=True, slots=True)
class Row:
    """Function that takes a slice of the first dimension, with it or without."""

    index: int
    keeps: bool = False

    def __call__(self, values: Array) -> Array:
        """Return the slice."""
        return values[self.index : self.index + 1] if self.keeps else np.asarray(values[self.index])
