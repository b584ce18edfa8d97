"""Strategies of placement behind one interface: blocks → addresses.

"naive" gives every block memory of its own. "sequential", "large first" (Oplachko's algorithm 2, from Pisarchyk & Lee)
and "short-lived first" are those of Wang et al. (§1.1); "both ends" is what FlexNN does with activations (§3.3.2,
figure 7: they alternate between the ends of memory and leave one hole in the middle); "area" is size times lifetime;
"breadth" takes the moments with the most bytes first. All of them use best fit but "both ends" on its far side.
"search" takes the best of all orders with best and first fit and, where they miss the live-bytes bound, searches below
them exhaustively (planner/place_search.c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from flexnn import _core
from flexnn.planning.types import I64

from .blocks import I32, Blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

Strategy = Callable[[Blocks], I64]
Hangs: TypeAlias = "NDArray[np.uint8]"

SEARCH_NODES = 2000
"""Nodes that a search may visit while planning, in about 20 ms."""
SEARCH_BYTES, SEARCH_PAIR_BYTES = 400 << 10, 9
"""Bytes of a search, and those for each pair of blocks: it may take no more memory than what it places."""
TRIES = 6
"""Capacities that a search tries between the bound and the best known placement."""


def _order(number: int) -> Callable[[Blocks], I32]:
    """Return the function that puts blocks in an order of C's (fx_order)."""

    def ordered(blocks: Blocks) -> I32:
        numbers = np.empty(len(blocks), np.int32)
        _core.place_order(blocks.sizes, blocks.first, blocks.last, number, numbers)
        return numbers

    return ordered


ORDERS: dict[str, Callable[[Blocks], I32]] = {
    name: _order(number)
    for number, name in enumerate(
        ("large first", "area", "sequential", "short-lived first", "long-lived first", "breadth")
    )
}


def place_in_order(blocks: Blocks, order: I32, *, first_fit: bool = False, hangs: Hangs | None = None) -> I64:
    """Return addresses: each block in the smallest (or, first fit, the lowest) hole between those before it in
    ``order``. Blocks that ``hangs`` marks hang from the end of the highest hole below the bound instead.
    """
    address = np.empty(len(blocks), np.int64)
    _core.place_in_order(
        blocks.sizes,
        blocks.first,
        blocks.last,
        order,
        address,
        first_fit=first_fit,
        hangs=hangs,
        ceiling=blocks.bound if hangs is not None else 0,
    )
    return address


def place_by_time(blocks: Blocks) -> I64:
    """Return the addresses of "sequential", in a time that does not grow with the blocks that live together."""
    address = np.empty(len(blocks), np.int64)
    _core.place_by_time(blocks.sizes, blocks.first, blocks.last, address)
    return address


def alternate(blocks: Blocks) -> tuple[I32, Hangs]:
    """Return the order of "both ends", and which blocks hang: every second one in the order of use."""
    order = ORDERS["sequential"](blocks)
    hangs = bytearray(len(blocks))
    for block in order.tolist()[1::2]:
        hangs[block] = 1
    return order, np.frombuffer(hangs, np.uint8)


def both_ends(blocks: Blocks) -> I64:
    """Place blocks in the order of their use, alternately from below and hanging from the bound."""
    order, hangs = alternate(blocks)
    return place_in_order(blocks, order, hangs=hangs)


def naive(blocks: Blocks) -> I64:
    """Place one block after the other, in the sum of all sizes."""
    sizes = blocks.sizes.tolist()
    return np.array([0, *accumulate(sizes)][: len(sizes)], np.int64)


class Found(NamedTuple):
    """Result of a search."""

    address: I64
    top: int
    """Bytes that the placement takes."""
    lower: int
    """Proven bound in bytes: no placement takes less."""
    nodes: int
    """Number of nodes visited."""


def portfolio(blocks: Blocks) -> Iterator[I64]:
    """Yield placements by all orders with best fit, then with first fit."""
    for first_fit in (False, True):
        for order in ORDERS.values():
            yield place_in_order(blocks, order(blocks), first_fit=first_fit)


def search(blocks: Blocks, nodes_max: int = SEARCH_NODES, known: Iterable[I64] = (), beside: int = 0) -> Found:
    """Return the lowest placement of the portfolio, of ``known`` and of an exhaustive search of ``nodes_max`` nodes.
    ``beside``: bytes that a run takes beside the blocks, which the search may take, too.
    """
    best, top = naive(blocks), sum(blocks.sizes.tolist())
    lower, nodes = blocks.bound, 0
    for address in chain(known, portfolio(blocks)):
        if blocks.top(address) < top:
            best, top = address, blocks.top(address)
        if top == lower:
            break
    nbytes = SEARCH_BYTES + SEARCH_PAIR_BYTES * len(blocks) ** 2
    if top > lower and len(blocks) <= _core.SEARCH_BLOCKS_MAX and nbytes <= lower + beside:
        grain = gcd(*blocks.sizes.tolist())
        capacity = low = lower
        for attempt in range(TRIES):
            if low >= top or nodes >= nodes_max:
                break
            allowed = (nodes_max - nodes) // 2 if attempt + 1 < TRIES else nodes_max - nodes
            address = np.empty(len(blocks), np.int64)
            args = blocks.sizes, blocks.first, blocks.last, capacity, allowed, address
            outcome, visited = _core.place_search(*args)
            nodes += visited
            if outcome == "some":
                best, top = address, blocks.top(address)
            else:
                low = capacity + grain
                lower = low if outcome == "none" else lower
            capacity = low + (top - grain - low) // 2 // grain * grain
    return Found(best, top, lower, nodes)


def _in_order(order: Callable[[Blocks], I32]) -> Strategy:
    return lambda blocks: place_in_order(blocks, order(blocks))


STRATEGIES: dict[str, Strategy] = {
    "naive": naive,
    **{name: _in_order(order) for name, order in ORDERS.items()},
    "both ends": both_ends,
    "search": lambda blocks: search(blocks).address,
}
