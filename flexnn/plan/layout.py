"""Addresses of the activations (FlexNN §3.3.2, "plan activations"): a portfolio of orders, the lowest result wins.

An activation lives from the first node that writes any view of its storage to the last that reads one, both included,
so an operand never shares memory with the output of the node that reads it. Activations are placed first; each node's
workspace and weights then take what is free at that node, as in the paper's Algorithm 1. A placement is therefore
judged by the arena that the worst node needs for activations, smallest workspace and one panel together.

Orders: "both ends" is the paper's (alternating sides leave one hole in the middle); "sequential", "large first" and
"short-lived first" are the strategies of Wang et al. (NUDT 2025, §1.1); "area" is size times lifetime. All but the
first use best fit. The live-bytes bound ends the search early.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from .types import Placement, Profile

Gap = tuple[int, int]


def place_activations(profile: Profile) -> Placement:
    """The placement of the portfolio whose tightest plan needs the smallest arena."""
    needs = [node_needs(profile, i, -1, 1) for i in range(len(profile.nodes))]
    live = live_bytes(profile)
    bound = max((a + sum(n) for a, n in zip(live, needs, strict=True)), default=0)
    best: Placement | None = None
    for place in PORTFOLIO.values():
        address = place(profile, bound)
        gaps = _gaps(profile, address)
        least = max((arena_for(g, n) for g, n in zip(gaps, needs, strict=True)), default=0)
        if best is None or least < best.arena_bytes_min:
            best = Placement(address, gaps, least, max(live, default=0))
        if least == bound:
            break
    assert best is not None
    return best


def live_bytes(profile: Profile) -> list[int]:
    """Bytes of the activations alive at each node."""
    change = [0] * (len(profile.nodes) + 1)
    for size, first, last in zip(profile.root_bytes, profile.first, profile.last, strict=True):
        change[first] += size
        change[last + 1] -= size
    live, total = [], 0
    for step in change[:-1]:
        total += step
        live.append(total)
    return live


def node_needs(profile: Profile, index: int, variant: int, panels: int) -> list[int]:
    """Blocks that a node needs beside the activations: workspace of all threads, streamed constants, ``panels``
    panels; zero sizes left out, largest first.
    """
    node = profile.nodes[index]
    sizes = [node.variants[variant].scratch_bytes * profile.threads, *(size for _, _, size in node.constants)]
    if panels and node.panels:
        sizes.append(profile.room(panels * node.panel_bytes))
    return sorted((size for size in sizes if size), reverse=True)


# ---- gaps ----


def fit(gaps: list[Gap], arena: int, sizes: list[int]) -> tuple[list[int], list[Gap]] | None:
    """Addresses of blocks of ``sizes`` in the gaps of an arena, each in the smallest gap that holds it, and the gaps
    left; None where one does not fit. The last gap of ``gaps`` reaches to the end of the arena.
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
    """The smallest arena in whose gaps ``fit`` places blocks of ``sizes``: some of them lie above everything alive."""
    top = gaps[-1][0]
    sums = {sum(chosen) for count in range(len(sizes) + 1) for chosen in combinations(sizes, count)}
    for above in sorted(sums):
        if fit(gaps, top + above, sizes) is not None:
            return top + above
    return top + sum(sizes)


def _gaps(profile: Profile, address: list[int]) -> list[list[Gap]]:
    alive: list[list[Gap]] = [[] for _ in profile.nodes]
    for at, size, first, last in zip(address, profile.root_bytes, profile.first, profile.last, strict=True):
        for node in range(first, last + 1):
            alive[node].append((at, at + size))
    result = []
    for ranges in alive:
        ranges.sort()
        gaps, top = [], 0
        for start, end in ranges:
            if start > top:
                gaps.append((top, start))
            top = max(top, end)
        gaps.append((top, top))
        result.append(gaps)
    return result


# ---- orders ----


def _best_fit(profile: Profile, order: list[int], bound: int, from_top: Callable[[int], bool]) -> list[int]:
    """Activations in ``order``, each in the smallest hole between those placed before that live with it. With
    ``from_top`` it hangs from the end of the highest hole below ``bound`` instead.
    """
    size, first, last = profile.root_bytes, profile.first, profile.last
    address = [0] * len(order)
    placed: list[tuple[int, int, int, int]] = []  # address, end, first, last
    for i in order:
        low, high = first[i], last[i]
        top, at, slack = 0, -1, -1
        hang = -1
        for start, end, begins, ends in placed:
            if begins > high or ends < low:
                continue
            hole = start - top - size[i]
            if hole >= 0:
                hang = start - size[i]
                if slack < 0 or hole < slack:
                    at, slack = top, hole
            top = max(top, end)
        if bound - top >= size[i]:
            hang = bound - size[i]
        if at < 0:
            at = top
        if hang >= 0 and from_top(i):
            at = hang
        address[i] = at
        entry = (at, at + size[i], low, high)
        where = len(placed)
        while where and placed[where - 1][0] > at:
            where -= 1
        placed.insert(where, entry)
    return address


def _sorted_fit(key: Callable[[Profile, int], tuple[int, ...]]) -> Callable[[Profile, int], list[int]]:
    def place(profile: Profile, bound: int) -> list[int]:
        order = sorted(range(len(profile.roots)), key=lambda i: key(profile, i))
        return _best_fit(profile, order, bound, lambda i: False)

    return place


def _both_ends(profile: Profile, bound: int) -> list[int]:
    order = sorted(range(len(profile.roots)), key=lambda i: (profile.first[i], -profile.last[i]))
    side = {i: n % 2 == 1 for n, i in enumerate(order)}
    return _best_fit(profile, order, bound, side.__getitem__)


def _span(p: Profile, i: int) -> int:
    return p.last[i] - p.first[i] + 1


PORTFOLIO: dict[str, Callable[[Profile, int], list[int]]] = {
    "large first": _sorted_fit(lambda p, i: (-p.root_bytes[i], p.first[i])),
    "area": _sorted_fit(lambda p, i: (-p.root_bytes[i] * _span(p, i), p.first[i])),
    "both ends": _both_ends,
    "sequential": _sorted_fit(lambda p, i: (p.first[i], -p.last[i])),
    "short-lived first": _sorted_fit(lambda p, i: (_span(p, i), -p.root_bytes[i])),
    "long-lived first": _sorted_fit(lambda p, i: (-_span(p, i), -p.root_bytes[i])),
}
