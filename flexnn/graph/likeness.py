"""Graphs that are the same but for sizes: what is planned for one serves the other (planning/refit.py).

The templates of a batch of one and of larger batches mostly make such graphs: the same operators in the same order,
with the same weights, over tensors that correspond, though one may have a view where the other has none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from .ir import Array, Graph, Weight

Stored = Callable[[Weight], Hashable]
"""Function that says which weight of the artifact one of a graph is."""


class Likeness(NamedTuple):
    """Which tensors of a graph are those of another one, its base."""

    order: Array
    """The tensor of the graph for each of the base's."""
    also: Array
    """Further tensors of the graph that the base has in one with others, and what these others are: rows of two. A plan
    serves both graphs where they are the same: as large, and in the same place.
    """


def placed(weight: Weight) -> Hashable:
    """Return what says which weight of the artifact one is that was found there."""
    return weight.offset, weight.nbytes, weight.chunk_bytes


def likeness(graph: Graph, base: Graph, stored: Stored = placed) -> Likeness | None:
    """Return which tensors of ``graph`` are those of ``base``; None where they differ in more than sizes."""
    pairs = _pairs(graph, base, stored)
    if pairs is None:
        return None
    roots: dict[int, int] = {}
    for at, own in pairs:
        root, own_root = base.root(at), graph.root(own)
        if roots.setdefault(root, own_root) != own_root or not _is_alike(graph, own, base, at, stored):
            return None
    if len(set(roots.values())) != len(roots):
        return None
    order = dict(reversed(pairs)) | roots
    also = sorted({(own, order[at]) for at, own in pairs if own != order[at]})
    found = np.zeros(len(base.tensors), np.int64)  # no node has the others
    found[list(order)] = list(order.values())
    return Likeness(found, np.array(also, np.int64).reshape(-1, 2).T)


def _pairs(graph: Graph, base: Graph, stored: Stored) -> list[tuple[int, int]] | None:
    """Return the tensors of the base, and those of the graph at the same places; None where the nodes differ."""
    pairs: list[tuple[int, int]] = []
    lists = [(base.inputs, graph.inputs), (base.outputs, graph.outputs)]
    if len(graph.nodes) != len(base.nodes):
        return None
    for own, at in zip(graph.nodes, base.nodes, strict=True):
        if own.op != at.op or _which(graph, own.weight, stored) != _which(base, at.weight, stored):
            return None
        lists += [(at.inputs, own.inputs), (at.outputs, own.outputs)]
    for old, new in lists:
        if len(old) != len(new):
            return None
        pairs += zip(old, new, strict=True)
    return pairs


def _which(graph: Graph, weight: int, stored: Stored) -> Hashable:
    return None if weight < 0 else stored(graph.weights[weight])


def _is_alike(graph: Graph, own: int, base: Graph, at: int, stored: Stored) -> bool:
    """Return whether two tensors have the same type, and are of the same weight or of none."""
    weight, other = graph.tensors[graph.root(own)].weight, base.tensors[base.root(at)].weight
    same = _which(graph, weight, stored) == _which(base, other, stored)
    return same and graph.tensors[own].dtype == base.tensors[at].dtype
