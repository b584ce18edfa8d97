"""Addresses of the activations (FlexNN §3.3.2, "plan activations").

An activation lives from the first node that writes any view of its storage to the last that reads one, both included,
so an operand never shares memory with the output of the node that reads it. Activations are placed first; each node's
workspace and weights then take what is free at that node, as in the paper's Algorithm 1. A placement is therefore
judged by the arena that the worst node needs for activations, smallest workspace and one panel together. These needs
are blocks, too, that live for their node alone; the orders place them after the activations, only the rest of the
search places both at once. The bound, live bytes and needs, ends the looking.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flexnn.planning.types import I64, Costs, Placement

from .blocks import Blocks
from .gaps import arena_for, gaps_of
from .strategies import ORDERS, alternate, place_in_order, search

ALTERNATIVES = "both ends", "long-lived first"
"""Orders that leave free memory of another shape: a hole in the middle, or above long-lived activations."""


def place_activations(costs: Costs) -> list[Placement]:
    """Return the placement whose tightest plan needs the smallest arena, then alternatives that need no more: which of
    them scatters the free memory least shows only when loads are placed.
    """
    nodes = len(costs.nodes)
    needs = [node_needs(costs, i, -1, 1) for i in range(nodes)]
    acts = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node)
    of_node = [i for i, sizes in enumerate(needs) for _ in sizes]
    every = acts + Blocks.of([size for sizes in needs for size in sizes], of_node, of_node)
    found = [search(every, known=(address for _, address in _with_needs(every, len(acts)))).address]
    found += [address for name, address in _with_needs(every, len(acts)) if name in ALTERNATIVES]
    placements: list[Placement] = []
    for address in {address[: len(acts)].tobytes(): address[: len(acts)] for address in found}.values():
        gaps = gaps_of(acts, address, nodes)
        tight = [arena_for(around, sizes) for around, sizes in zip(gaps, needs, strict=True)]
        if not placements or max(tight, default=0) <= placements[0].working_bytes_min:
            placements.append(Placement(address.tolist(), gaps, tight, max(tight, default=0), acts.bound))
    return placements


def _with_needs(every: Blocks, count: int) -> Iterator[tuple[str, I64]]:
    """Yield placements of the first ``count`` blocks, the activations, by each order, the other blocks after them."""
    acts = Blocks(every.sizes[:count], every.first[:count], every.last[:count])
    needs = np.argsort(-every.sizes[count:], kind="stable").astype(np.int32) + np.int32(count)

    for name, order in ORDERS.items():
        yield name, place_in_order(every, np.concatenate((order(acts), needs)))
    alternating, hangs = alternate(acts)
    hangs = np.concatenate((hangs, np.zeros(len(needs), np.uint8)))
    yield "both ends", place_in_order(every, np.concatenate((alternating, needs)), hangs=hangs)


def node_needs(costs: Costs, index: int, variant: int, panels: int) -> list[int]:
    """Return sizes of the blocks that a node needs beside the activations, the largest first: workspace of all threads,
    streamed constants and ``panels`` panels. Zero sizes are left out.
    """
    node = costs.nodes[index]
    sizes = [node.variants[variant].workspace_bytes * costs.threads, *(size for _, _, size in node.constants)]
    if panels and node.panels:
        sizes.append(costs.room_bytes(panels * node.panel_bytes))
    return sorted((size for size in sizes if size), reverse=True)
