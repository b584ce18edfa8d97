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

from flexnn.plan.types import I64, Placement, Profile

from .blocks import Blocks
from .gaps import arena_for, gaps_of
from .strategies import ORDERS, alternate, place_in_order, search


def place_activations(profile: Profile) -> Placement:
    """The placement whose tightest plan needs the smallest arena: at the bound, mostly with the first order."""
    nodes = len(profile.nodes)
    needs = [node_needs(profile, i, -1, 1) for i in range(nodes)]
    acts = Blocks.of(profile.root_bytes, profile.first, profile.last)
    of_node = [i for i, sizes in enumerate(needs) for _ in sizes]
    every = acts + Blocks.of([size for sizes in needs for size in sizes], of_node, of_node)
    address = search(every, known=_with_needs(every, len(acts))).address[: len(acts)]
    gaps = gaps_of(acts, address, nodes)
    least = max((arena_for(g, n) for g, n in zip(gaps, needs, strict=True)), default=0)
    return Placement(address.tolist(), gaps, least, acts.bound)


def _with_needs(every: Blocks, count: int) -> Iterator[I64]:
    """Placements of the first ``count`` blocks, the activations, by each order, the other blocks after them."""
    acts = Blocks(every.sizes[:count], every.first[:count], every.last[:count])
    needs = np.argsort(-every.sizes[count:], kind="stable").astype(np.int32) + np.int32(count)

    yield from (place_in_order(every, np.concatenate((order(acts), needs))) for order in ORDERS.values())
    order, hangs = alternate(acts)
    hangs = np.concatenate((hangs, np.zeros(len(needs), np.uint8)))
    yield place_in_order(every, np.concatenate((order, needs)), hangs=hangs)


def node_needs(profile: Profile, index: int, variant: int, panels: int) -> list[int]:
    """Blocks that a node needs beside the activations: workspace of all threads, streamed constants, ``panels``
    panels; zero sizes left out, largest first.
    """
    node = profile.nodes[index]
    sizes = [node.variants[variant].scratch_bytes * profile.threads, *(size for _, _, size in node.constants)]
    if panels and node.panels:
        sizes.append(profile.room(panels * node.panel_bytes))
    return sorted((size for size in sizes if size), reverse=True)
