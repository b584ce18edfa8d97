"""Gaps that a placement of the activations leaves at each node, for workspaces and weights."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn import _core
from flexnn.planning.types import I64

from .blocks import Blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

Gap = tuple[int, int]
GAPS_MIN, GAPS = 16, 1 << 16
"""Gaps of a moment that are kept: GAPS_MIN, and an equal part of GAPS, so that memory grows with the moments."""


def gaps_of(blocks: Blocks, address: I64, moments: int) -> tuple[NDArray[Any], I64, I64]:
    """Return the free ranges of each moment between the blocks alive (GAP_DTYPE), the index of each moment's first one
    (one number more than there are moments), and the byte above which everything is free.
    """
    first, top = np.zeros(moments + 1, np.int64), np.zeros(moments, np.int64)
    most = GAPS_MIN + GAPS // max(moments, 1)
    found = _core.place_gaps(blocks.sizes, blocks.first, blocks.last, address, first, top, most)
    return np.frombuffer(found, _core.GAP_DTYPE), first, top


def fit(gaps: list[Gap], arena: int, sizes: list[int]) -> tuple[list[int], list[Gap]] | None:
    """Return addresses of blocks of ``sizes`` in the gaps of an arena, each in the smallest gap that holds it, and the
    gaps left; None where one block does not fit. The last gap of ``gaps`` reaches to the end of the arena.
    """
    free = [*gaps[:-1], (gaps[-1][0], arena)]
    addresses = []
    for size in sizes:
        best = -1
        for i, (start, end) in enumerate(free):
            if size <= end - start and (best < 0 or end - start < free[best][1] - free[best][0]):
                best = i
        if best < 0:
            return None
        start, end = free[best]
        addresses.append(start)
        free[best] = (start + size, end)
    return addresses, free


def arena_for(gaps: list[Gap], sizes: list[int]) -> int:
    """Return the smallest arena in whose gaps ``fit`` places blocks of ``sizes``."""
    top = gaps[-1][0]
    if len(gaps) == 1 or not sizes:
        return top + sum(sizes)
    if len(sizes) == 1:
        return top if any(sizes[0] <= end - start for start, end in gaps[:-1]) else top + sizes[0]
    sums = {sum(chosen) for count in range(len(sizes) + 1) for chosen in combinations(sizes, count)}
    for above in sorted(sums):
        if fit(gaps, top + above, sizes) is not None:
            return top + above
    return top + sum(sizes)
