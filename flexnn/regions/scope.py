"""Values between the parts of a run, and the names by which the nodes of a region see them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from math import prod

import numpy as np

from flexnn.graph.element import Bounds
from flexnn.graph.ir import Array, GraphError, Shape
from flexnn.quick_dataclass import quick_dataclass

FEW_BYTES = 4 << 10
"""Most bytes of integers from the caller that may decide shapes and branches."""


class NumbersError(GraphError):
    """Binding needs the numbers of values of which only the shapes are known; ``names``: which."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        super().__init__(f"the numbers of {', '.join(map(repr, self.names))} are needed")


@quick_dataclass(slots=True, eq=False)
class Value:
    """A value that is there, or will be when what was recorded before has run."""

    shape: Shape
    dtype: np.dtype
    array: Array | None = None
    """Its numbers, where binding may use them."""
    is_settled: bool = False
    """Whether no input reaches it, so that it is the same in each run at these shapes."""
    is_steady: bool = False
    """Whether only shapes and small integers from the caller decide it."""
    bounds: Bounds | None = None
    """The least and the most of each of its elements, which are integers; None: unknown."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        return self.size * self.dtype.itemsize

    def numbers(self, name: str) -> Array:
        """Return its numbers. Raises NumbersError, naming the value ``name``."""
        if self.array is None:
            raise NumbersError([name])
        return self.array


def known(array: Array, *, is_settled: bool = False, is_steady: bool = False) -> Value:
    """Return the value of an array whose numbers binding may use."""
    return Value(array.shape, array.dtype, array, is_settled, is_steady)


def is_few(dtype: np.dtype, nbytes: int) -> bool:
    """Return whether an input of the model is a few integers, so that its numbers may decide shapes and branches."""
    return dtype.kind in "iub" and nbytes <= FEW_BYTES


class Scope(Mapping[str, Value]):
    """Values of one region, and those of the regions around it."""

    def __init__(self, values: dict[str, Value], outer: Scope | None = None) -> None:
        self.own = values
        self.outer = outer

    def __getitem__(self, name: str) -> Value:
        if name in self.own:
            return self.own[name]
        if self.outer is None:
            raise KeyError(name)
        return self.outer[name]

    def __contains__(self, name: object) -> bool:
        return name in self.own or (self.outer is not None and name in self.outer)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        if self.outer is not None:
            yield from (name for name in self.outer if name not in self.own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def is_settled(self, name: str) -> bool:
        """Return whether no input reaches the value."""
        return name in self and self[name].is_settled

    def is_steady(self, name: str) -> bool:
        """Return whether only shapes and small integers from the caller decide the value."""
        return name in self and self[name].is_steady

    def keep(self, names: Container[str]) -> None:
        """Drop the region's own values except these."""
        for name in [name for name in self.own if name not in names]:
            del self.own[name]

    def copy(self) -> Scope:
        """Return a scope with the same values, whose own ones may change."""
        return Scope(dict(self.own), self.outer)
