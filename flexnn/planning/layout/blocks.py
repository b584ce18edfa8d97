"""Blocks of memory with fixed lifetimes, which every strategy places."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flexnn import _core
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
        return Blocks.of(
            self.sizes.tolist() + other.sizes.tolist(),
            self.first.tolist() + other.first.tolist(),
            self.last.tolist() + other.last.tolist(),
        )

    def live(self, moments: int) -> I64:
        """Return the bytes alive at each of ``moments`` moments."""
        live = np.empty(moments, np.int64)
        _core.blocks_live(self.sizes, self.first, self.last, live)
        return live

    @cached_property
    def bound(self) -> int:
        """Most bytes alive at once: no placement takes less."""
        moments = max(self.last.tolist(), default=-1) + 1
        return int(max(self.live(moments).tolist(), default=0))

    @cached_property
    def pairs(self) -> int:
        """Number of pairs of blocks that live together."""
        return _core.blocks_pairs(self.sizes, self.first, self.last)

    def top(self, address: I64) -> int:
        """Return the bytes that a placement takes."""
        return _core.blocks_top(self.sizes, self.first, self.last, address)
