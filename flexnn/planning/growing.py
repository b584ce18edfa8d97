"""Maps that grow over others: what a walk in bands leaves takes the place of what the walk is the last to read.

The map that grows begins at the lower address, and the other one as many bytes behind it as no band writes over a row
that is still to be read (planner/band_pairs.c). Both are then views of one root, which lives as long as both. A map
that has grown over another one may end below a third one, so these roots form chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from flexnn.graph.ir import DTYPES, Graph, Tensor

from .types import Costs


class Pair(NamedTuple):
    """A root that grows over one that ends; roots have their numbers in the table of roots."""

    ends: int
    grows: int
    shift: int
    """Bytes from the begin of the one that grows to that of the other one."""
    nbytes: int
    """Bytes of both together."""


class _Chain(NamedTuple):
    """Roots that share their place."""

    places: list[tuple[int, int]]
    """Each root, and the bytes before it."""
    nbytes: int


def _chains(pairs: Iterable[Pair], sizes: Sequence[int]) -> Iterator[_Chain]:
    """Yield the chains that pairs form; ``sizes``: bytes of each root."""
    ending = {pair.grows: pair for pair in pairs}
    ended = {pair.ends for pair in ending.values()}
    for root in ending.keys() - ended:
        places, at, most = [(root, 0)], 0, sizes[root]
        while root in ending:
            at, root = at + ending[root].shift, ending[root].ends
            places.append((root, at))
            most = max(most, at + sizes[root])
        yield _Chain(places, most)


def more_bytes(
    walks: Iterable[tuple[int, int, Sequence[Pair]]], rows: Sequence[Sequence[int]], nodes: int
) -> list[int]:
    """Return the bytes that each node needs beyond those that count the roots one by one, and pairs within their walks.
    ``walks``: first and last node, and pairs; ``rows``: those of the table of roots.
    """
    of_pair = {pair.grows: (first, last, pair) for first, last, pairs in walks for pair in pairs}
    more = [0] * nodes
    for chain in _chains((pair for _, _, pair in of_pair.values()), [row[1] for row in rows]):
        counted: dict[int, int] = {}
        for root, _ in chain.places:
            counted |= dict.fromkeys(range(rows[root][2], rows[root][3] + 1), rows[root][1])
        for root, _ in chain.places[:-1]:
            first, last, pair = of_pair[root]
            counted |= dict.fromkeys(range(first, last + 1), pair.nbytes)
        for node, nbytes in counted.items():
            more[node] += chain.nbytes - nbytes
    return more


def grown(graph: Graph, costs: Costs, pairs: Sequence[Pair]) -> Graph:
    """Return the graph with roots over others: views of one root for each chain."""
    tensors = list(graph.tensors)
    placed: dict[int, tuple[int, int]] = {}
    """Root that a root is in now, and the bytes before it."""
    for chain in _chains(pairs, costs.root_bytes):
        names = [graph.tensors[costs.roots[root]].name for root, _ in chain.places]
        dtype = graph.tensors[costs.roots[chain.places[0][0]]].dtype
        placed |= {costs.roots[root]: (len(tensors), at) for root, at in chain.places}
        tensors.append(Tensor(" over ".join(names), (chain.nbytes // DTYPES[dtype].itemsize,), dtype))
    for index, tensor in enumerate(graph.tensors):
        root = index if tensor.root < 0 else tensor.root
        if root in placed:
            own, at = placed[root]
            offset = tensor.offset + at // DTYPES[tensor.dtype].itemsize
            tensors[index] = replace(tensor, root=own, offset=offset)
    return replace(graph, tensors=tensors) if placed else graph
