"""Gaps that a placement of the activations leaves at each node, for workspaces and weights."""

from __future__ import annotations

from itertools import combinations

from flexnn.planning.types import I64

from .blocks import Blocks

Gap = tuple[int, int]


def gaps_of(blocks: Blocks, address: I64, moments: int) -> list[list[Gap]]:
    """Return free ranges of each moment below the highest block alive, then (top, top): above, everything is free."""
    alive: list[list[Gap]] = [[] for _ in range(moments)]
    ends = address + blocks.sizes
    rows = sorted(zip(address.tolist(), ends.tolist(), blocks.first.tolist(), blocks.last.tolist(), strict=True))
    for start, end, first, last in rows:
        for moment in range(first, last + 1):
            alive[moment].append((start, end))
    result = []
    for ranges in alive:
        gaps, top = [], 0
        for start, end in ranges:
            if start > top:
                gaps.append((top, start))
            top = max(top, end)
        gaps.append((top, top))
        result.append(gaps)
    return result


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
    sums = {sum(chosen) for count in range(len(sizes) + 1) for chosen in combinations(sizes, count)}
    for above in sorted(sums):
        if fit(gaps, top + above, sizes) is not None:
            return top + above
    return top + sum(sizes)
