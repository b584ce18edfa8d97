"""Blocks of memory with fixed lifetimes, which every strategy places."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flexnn.planning.types import I64
from flexnn.quick_dataclass import quick_dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

I32: TypeAlias = "NDArray[np.int32]"


@quick_dataclass(frozen=True, eq=False)
class Blocks:
    """Rectangles of bytes by time. Time is an index of whatever runs one after the other: nodes, steps, groups of
    parallel nodes (two blocks that one group uses then live together, which is Oplachko's predicate F).
    """

    sizes: I64
    """Sizes in bytes, each > 0."""
    first: I32
    """First moment of life."""
    last: I32
    """Last moment, included."""

    @classmethod
    def of(cls, sizes: list[int], first: list[int], last: list[int]) -> Blocks:
        """Return blocks from plain lists."""
        return cls(np.array(sizes, np.int64), np.array(first, np.int32), np.array(last, np.int32))

    def __len__(self) -> int:
        return len(self.sizes)

    def __add__(self, other: Blocks) -> Blocks:
        return Blocks(
            np.concatenate((self.sizes, other.sizes)),
            np.concatenate((self.first, other.first)),
            np.concatenate((self.last, other.last)),
        )

    def live(self, moments: int) -> I64:
        """Return the bytes alive at each of ``moments`` moments."""
        change = np.zeros(moments + 1, np.int64)
        np.add.at(change, self.first, self.sizes)
        np.subtract.at(change, self.last + 1, self.sizes)
        return np.cumsum(change)[:moments]

    @cached_property
    def bound(self) -> int:
        """Most bytes alive at once: no placement takes less."""
        moments = int(self.last.max()) + 1 if len(self) else 0
        return int(self.live(moments).max(initial=0))

    @cached_property
    def pairs(self) -> int:
        """Number of pairs of blocks that live together."""
        begun = np.searchsorted(np.sort(self.first), self.last, side="right")
        ended = np.searchsorted(np.sort(self.last), self.first, side="left")
        return (int((begun - ended).sum()) - len(self)) // 2

    def top(self, address: I64) -> int:
        """Return the bytes that a placement takes."""
        return int((address + self.sizes).max(initial=0))
