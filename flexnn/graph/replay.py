"""Trails done again: the operations and conditions of sizes (graph/sizes.py) in few bytes, computed in C."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

from .ir import Array

Number = int | float


class Folded:
    """Outputs of nodes, which constants of the same numbers are made of."""

    __slots__ = ("keys", "made", "numbers")

    def __init__(self) -> None:
        self.made: dict[int, list[Array]] = {}
        """Outputs, by their number."""
        self.numbers: dict[Hashable, int] = {}
        """Number of the outputs, by node and inputs."""
        self.keys: dict[int, int] = {}
        """The same, by the identity of their maker."""


class Numbers:
    """All numbers of a trail, by index."""

    __slots__ = ("_floats", "folded", "words")

    def __init__(self, words: Array, floats: frozenset[int]) -> None:
        self.words = words
        """The integers; of floats, their bits."""
        self._floats = floats
        self.folded: Folded | None = None
        """Outputs of nodes, while several constants are made of them (graph/late.py)."""

    @property
    def listed(self) -> list[Number]:
        """The numbers as those of Python."""
        listed: list[Number] = self.words.tolist()
        for i in self._floats:
            listed[i] = float(self.words.view(np.float64)[i])
        return listed

    def __getitem__(self, index: int) -> Number:
        is_float = index in self._floats
        return float(self.words.view(np.float64)[index]) if is_float else int(self.words[index])

    def single(self, indices: Array) -> Array:
        """Return some of the numbers as float32."""
        return np.array([self[i] for i in indices.tolist()], np.float32)


@quick_dataclass(frozen=True)
class Replay:
    """Operations and conditions of a trail without its sizes."""

    operations: Array
    """Rows of planner/include/flexnn/trail.h, int32, as those of the conditions and of the preferences."""
    conditions: Array
    preferences: Array
    """Conditions under which binding would not find something better."""
    words: Array
    """Bits of the constants, and the numbers that were given when it was traced, at their indices; others are 0."""
    floats: Array
    """Indices of the numbers that are floats."""
    givens: Array
    """Indices of the numbers that are given."""

    @cached_property
    def _float_set(self) -> frozenset[int]:
        return frozenset(self.floats.tolist())

    @property
    def traced(self) -> list[int]:
        """The numbers that were given when it was traced."""
        return self.words[self.givens].tolist()  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.operations, self.conditions, self.preferences, self.words, self.floats, self.givens)
        return sum(array.nbytes for array in arrays)

    def at(self, given: Sequence[int]) -> Numbers | None:
        """Return all numbers for those that are given; None where a condition does not hold, or 64 bits are too few."""
        words = self.words.copy()
        try:
            holds = _core.trail_replay(self.operations, self.conditions, words, self.givens, given)
        except OverflowError:
            return None
        return Numbers(words, self._float_set) if holds else None

    def is_best(self, numbers: Numbers) -> bool:
        """Return whether binding to numbers that ``at`` returned would find nothing better."""
        try:
            return bool(_core.trail_replay(self.operations[:0], self.preferences, numbers.words))
        except ValueError:  # preferences of a file that speak of numbers that there are not
            return False
