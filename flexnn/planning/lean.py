"""Smaller working parts, for drafts that pin what the neediest nodes would stream as a whole.

A node's streamed constants lie in the working part at once: of an LSTM the weights of its state, 8 of 9 MiB of one
model's smallest working part. Drafts that pin them need no room for them, and stream the rest through little memory.
"""

from __future__ import annotations

from typing import NamedTuple

from .drafts import Drafting
from .layout import arena_for
from .types import Costs, Placement

LESS = 0.9
"""Working part of a lean one as a fraction of the one before it, at which it is worth trying."""
LEANS_MAX, CONSTANTS_MAX = 3, 64
"""Most lean working parts of a graph, the leanest ones, and most constants that they pin."""


class Lean(NamedTuple):
    """A smaller working part."""

    items: tuple[int, ...]
    """Items that are pinned."""
    pinned_bytes: int
    """Bytes that they take."""
    working_bytes: int
    """Bytes of the smallest working part where they are pinned."""


def lean_parts(costs: Costs, drafting: Drafting) -> list[Lean]:
    """Return smaller working parts, from the largest to the smallest, of graphs whose constants are all in the file."""
    placement = drafting.placement
    needs: list[int] = placement.tight_bytes.tolist()
    first: dict[int, int] = {}
    columns = drafting.items["node"].tolist(), drafting.items["constant"].tolist()
    for item, (node, constant) in enumerate(zip(*columns, strict=True)):
        if constant >= 0:
            first.setdefault(costs.nodes[node].constants[constant][1], item)
    readers: dict[int, list[int]] = {}
    for index, found in enumerate(costs.nodes):
        for _, weight, _ in found.constants:
            readers.setdefault(weight, []).append(index)
    pinned: dict[int, int] = {}
    leans: list[Lean] = []
    level = max(needs, default=0)
    while len(pinned) < CONSTANTS_MAX:
        worst = needs.index(max(needs)) if needs else 0
        sizes = {weight: size for _, weight, size in costs.nodes[worst].constants if weight not in pinned}
        if not sizes:
            break
        weight = max(sizes, key=sizes.__getitem__)
        pinned[weight] = drafting.item_bytes[first[weight]]
        for node in readers[weight]:
            needs[node] = _need(costs, placement, node, pinned)
        if max(needs) <= LESS * level:
            level = max(needs)
            leans.append(Lean(tuple(first[each] for each in pinned), sum(pinned.values()), level))
    return leans[-LEANS_MAX:]


def _need(costs: Costs, placement: Placement, index: int, pinned: dict[int, int]) -> int:
    """Return the smallest working part in which a node has room for its smallest workspace, its other constants and one
    panel.
    """
    node = costs.nodes[index]
    sizes = [node.variants[-1].workspace_bytes * costs.threads]
    sizes += [size for _, weight, size in node.constants if weight not in pinned]
    if node.panels:
        sizes.append(costs.room_bytes(node.panel_bytes))
    return arena_for(placement.gaps_at(index), sorted((size for size in sizes if size), reverse=True))
