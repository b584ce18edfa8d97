"""Graphs that are the same but for sizes: what is planned for one serves the other (planning/refit.py).

The templates of a batch of one and of larger batches mostly make such graphs: the same operators in the same order,
with the same weights, over tensors that correspond, though one may have a view where the other has none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from .ir import Array, Graph, Weight

Stored = Callable[[Weight], Hashable]
"""Function that says which weight of the artifact one of a graph is."""


class Skeleton(NamedTuple):
    """A graph without its sizes."""

    ops: list[str]
    """Operator of each node."""
    panels: list[Hashable]
    """Which weight of the artifact each node has as panels; None: it has none."""
    counts: list[int]
    """Number of inputs and of outputs, of the graph and then of each node."""
    operands: Array
    """These inputs and outputs, as numbers of tensors."""
    roots: Array
    """The tensor that owns the storage of each, which may be itself."""
    kinds: list[Hashable]
    """Type of each tensor, and which weight its root is."""

    @staticmethod
    def of(
        nodes: Sequence[tuple[str, Hashable, Sequence[int], Sequence[int]]],
        inputs: Sequence[int],
        outputs: Sequence[int],
        roots: Sequence[int],
        kinds: list[Hashable],
    ) -> Skeleton:
        """Return a skeleton; ``nodes``: operator, panels, inputs and outputs of each."""
        lists = [inputs, outputs, *chain.from_iterable([(reads, makes) for _, _, reads, makes in nodes])]
        operands = np.array(list(chain.from_iterable(lists)), np.int64)
        ops, panels = [node[0] for node in nodes], [node[1] for node in nodes]
        return Skeleton(ops, panels, list(map(len, lists)), operands, np.array(roots, np.int64), kinds)


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


def skeleton(graph: Graph, stored: Stored = placed) -> Skeleton:
    """Return the skeleton of a graph."""
    known = [None if tensor.weight < 0 else stored(graph.weights[tensor.weight]) for tensor in graph.tensors]
    roots = [graph.root(i) for i in range(len(graph.tensors))]
    nodes = [
        (node.op, None if node.weight < 0 else stored(graph.weights[node.weight]), node.inputs, node.outputs)
        for node in graph.nodes
    ]
    kinds: list[Hashable] = [(tensor.dtype, known[root]) for tensor, root in zip(graph.tensors, roots, strict=True)]
    return Skeleton.of(nodes, graph.inputs, graph.outputs, roots, kinds)


def likeness(own: Skeleton, base: Skeleton) -> Likeness | None:
    """Return which tensors of a graph are those of a base; None where they differ in more than sizes."""
    if own.ops != base.ops or own.panels != base.panels or own.counts != base.counts:
        return None
    mine, its = own.operands, base.operands
    roots, base_roots = own.roots[mine], base.roots[its]
    if not (_is_function(base_roots, roots) and _is_function(roots, base_roots)):
        return None
    if [own.kinds[i] for i in mine.tolist()] != [base.kinds[i] for i in its.tolist()]:
        return None
    order = np.zeros(len(base.roots), np.int64)  # no node has the others
    order[its[::-1]] = mine[::-1]
    order[base_roots] = roots
    others = order[its]
    differ = mine != others
    also = sorted({*zip(mine[differ].tolist(), others[differ].tolist(), strict=True)})
    return Likeness(order, np.array(also, np.int64).reshape(-1, 2).T.copy())


def _is_function(given: Array, found: Array) -> bool:
    """Return whether what was ``found`` is the same wherever the number ``given`` is the same."""
    first = np.empty(int(given.max(initial=-1)) + 1, np.int64)
    first[given] = found
    return bool((first[given] == found).all())
