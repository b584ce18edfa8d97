"""Addresses of the activations (FlexNN §3.3.2, "plan activations").

An activation lives from the first node that writes any view of its storage to the last that reads one, both included,
so an operand never shares memory with the output of the node that reads it. Activations are placed first; each node's
workspace and weights then take what is free at that node, as in the paper's Algorithm 1. A placement is therefore
judged by the arena that the worst node needs for activations, smallest workspace and one panel together. These needs
are blocks, too, that live for their node alone; the orders place them after the activations, only the rest of the
search places both at once. The bound, live bytes and needs, ends the looking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from flexnn.planning.types import I64, Costs, Placement

from .blocks import I32, Blocks
from .gaps import Gap, arena_for, gaps_of
from .strategies import ORDERS, Hangs, alternate, place_by_time, place_in_order, search

ALTERNATIVES = "both ends", "long-lived first"
"""Orders that leave free memory of another shape: a hole in the middle, or above long-lived activations."""
ALL = *ORDERS, "both ends"
"""All orders that are tried."""

DENSE = 1 << 18
"""Pairs of blocks that live together, above which activations are placed in the order of time alone: each other order
and the search take a time that grows with the pairs.
"""


def place_activations(costs: Costs) -> list[Placement]:
    """Return the placement whose tightest plan needs the smallest arena, then the alternatives."""
    best = best_placement(costs)
    return [best, *alternative_placements(costs, best)]


def best_placement(costs: Costs) -> Placement:
    """Return the placement whose tightest plan needs the smallest arena."""
    acts, needs, every = _blocks(costs)
    if every.pairs > DENSE:
        return _placement(acts, needs, place_by_time(acts))
    known = _with_needs(acts, every, ALL)
    address = search(every, known=known, beside=sum(costs.io_bytes)).address
    return _placement(acts, needs, _first(address, len(acts)))


def alternative_placements(costs: Costs, best: Placement) -> list[Placement]:
    """Return placements that need no more than the best one: which of them scatters the free memory least shows only
    when loads are placed.
    """
    acts, needs, every = _blocks(costs)
    if every.pairs > DENSE:
        return []
    found = {np.array(best.address, np.int64).tobytes(): best}
    for address in _with_needs(acts, every, ALTERNATIVES):
        own = _first(address, len(acts))
        if own.tobytes() not in found:
            found[own.tobytes()] = _placement(acts, needs, own)
    return [
        place for place in found.values() if place is not best and place.working_bytes_min <= best.working_bytes_min
    ]


def _first(address: I64, count: int) -> I64:
    return np.array(address.tolist()[:count], np.int64)


def _blocks(costs: Costs) -> tuple[Blocks, list[list[int]], Blocks]:
    """Return the activations, what each node needs beside them, and both together as blocks."""
    acts, threads = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node), costs.threads
    needs: list[list[int]] = []
    of_costs: dict[int, list[int]] = {}
    for index, node in enumerate(costs.nodes):
        if id(node) not in of_costs:  # bands of a node have their costs in common
            workspace = node.variants[-1].workspace_bytes
            plain = [workspace * threads] if workspace else []
            of_costs[id(node)] = node_needs(costs, index, -1, 1) if node.panels or node.constants else plain
        needs.append(of_costs[id(node)])
    of_node = [index for index, sizes in enumerate(needs) for _ in sizes]
    return acts, needs, acts + Blocks.of([size for sizes in needs for size in sizes], of_node, of_node)


def _placement(acts: Blocks, needs: list[list[int]], address: I64) -> Placement:
    gaps, first, top = gaps_of(acts, address, len(needs))
    tight = [above + sum(sizes) for above, sizes in zip(top.tolist(), needs, strict=True)]
    found = Placement(address.tolist(), gaps, first, top, acts.live(len(needs)), needs, top)
    known: dict[tuple[int, tuple[Gap, ...]], int] = {}
    begins = first.tolist()
    for node, sizes in enumerate(needs):
        if sizes and begins[node + 1] > begins[node]:
            free = found.gaps_at(node)
            if sizes[-1] <= max([end - start for start, end in free[:-1]]):
                same = id(sizes), tuple(free)  # as at other bands' nodes
                if same not in known:
                    known[same] = arena_for(free, sizes)
                tight[node] = known[same]
    found.tight_bytes = np.array(tight, np.int64)
    return found


def _with_needs(acts: Blocks, every: Blocks, names: Collection[str]) -> Iterator[I64]:
    """Yield placements of all blocks with the activations, which come first, by each of these orders, the others after
    them.
    """
    sizes = every.sizes.tolist()
    needs = sorted(range(len(acts), len(sizes)), key=lambda block: -sizes[block])

    def placed(order: I32, hangs: Hangs | None = None) -> I64:
        return place_in_order(every, np.array(order.tolist() + needs, np.int32), hangs=hangs)

    for name, order in ORDERS.items():
        if name in names:
            yield placed(order(acts))
    if "both ends" in names:
        alternating, hangs = alternate(acts)
        yield placed(alternating, np.array(hangs.tolist() + [0] * len(needs), np.uint8))


def node_needs(costs: Costs, index: int, variant: int, panels: int) -> list[int]:
    """Return sizes of the blocks that a node needs beside the activations, the largest first: workspace of all threads,
    streamed constants and ``panels`` panels. Zero sizes are left out.
    """
    node = costs.nodes[index]
    sizes = [node.variants[variant].workspace_bytes * costs.threads, *(size for _, _, size in node.constants)]
    if panels and node.panels:
        sizes.append(costs.room_bytes(panels * node.panel_bytes))
    return sorted((size for size in sizes if size), reverse=True)
