"""Orders of nodes for memory: nodes that leave less than they are the last to read go ahead as far as they can, and
nodes that leave more wait as long as they can, with those that nothing else needs. So what a map is made of comes just
before its readers, and bands of rows (planning/bands.py) go through all of them.

The search for bands judges the order by sizes, beside that of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from flexnn.graph.ir import Graph

from .band_tables import part_of

Part = tuple[int, int]
"""Columns of a root: the first one, and the one behind the last."""


UNIT_MAX = 16
"""Most nodes that are moved together."""
LEAVES = 0.125
"""Bytes that nodes leave, as a fraction of the largest map that they touch, for which they wait, or for which more
nodes wait with them.
"""
SMALL = 0.02
"""The same as a fraction of the largest map of all: gates stay where they are, so that bands go past them."""


class _Touch(NamedTuple):
    """A node's use of a part of a root."""

    value: int
    """Number of the part, among the parts of all roots."""
    is_written: bool


def ordered(graph: Graph) -> Graph:
    """Return the graph in an order that keeps little alive; the same graph where that is its order."""
    orders = _Orders(graph)
    order = orders.waiting(orders.ahead(range(len(graph.nodes))))
    if order == list(range(len(order))):
        return graph
    return replace(graph, nodes=[graph.nodes[index] for index in order])


def kept_bytes(graph: Graph) -> int:
    """Return for how many nodes activations are alive, times their bytes. Parts of a concatenation count by themselves,
    as they may wait apart (planning/apart.py).
    """
    orders = _Orders(graph)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, touches in enumerate(orders.touches):
        for value, _ in touches:
            first.setdefault(value, place)
            last[value] = place
    return sum(orders.nbytes[value] * (last[value] - first[value] + 1) for value in first)


class _Orders:
    """Orders of a graph's nodes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parts: dict[int, Part] = {}
        self.nbytes: list[int] = []
        self.touches = self._find_touches()
        self.needs = self._find_needs()
        self.needed_by: list[list[int]] = [[] for _ in self.needs]
        for index, needed in enumerate(self.needs):
            for other in needed:
                self.needed_by[other].append(index)

    def _columns(self, tensor: int) -> Part:
        """Return the columns of its root that a tensor touches; a scalar has one."""
        if tensor not in self._parts:
            low, high = part_of(self._graph.tensors[tensor], self._graph.tensors[self._graph.root(tensor)])
            self._parts[tensor] = low, max(high, low + 1)
        return self._parts[tensor]

    def _find_touches(self) -> list[list[_Touch]]:
        """Return what each node touches. A root that is written in parts counts as many values, as these may wait
        apart (planning/apart.py).
        """
        graph = self._graph
        written: dict[int, set[Part]] = {}
        for node in graph.nodes:
            for tensor in node.outputs:
                root = graph.root(tensor)
                written.setdefault(root, set()).add(self._columns(tensor))
        values: dict[int, list[tuple[Part, int]]] = {}
        given = {*graph.inputs, *graph.outputs}
        for root, parts in written.items():
            some = sorted(parts)
            if any(a[1] > b[0] for a, b in pairwise(some)):
                some = [(some[0][0], max(part[1] for part in some))]
            whole = graph.tensors[root]
            width = max(whole.shape[-1] if whole.shape else 1, 1)
            values[root] = []
            for part in some:
                values[root].append((part, len(self.nbytes)))
                share = whole.nbytes * (part[1] - part[0]) // width
                self.nbytes.append(0 if root in given else share)
        touches = []
        for node in graph.nodes:
            found = []
            for tensors, is_written in ((node.outputs, True), (node.inputs, False)):
                for tensor in tensors:
                    low, high = self._columns(tensor)
                    some_values = values.get(graph.root(tensor), ())
                    found += [
                        _Touch(value, is_written) for part, value in some_values if part[0] < high and low < part[1]
                    ]
            touches.append(found)
        return touches

    def _find_needs(self) -> list[list[int]]:
        """Return the nodes that must run before each node: those before it that write what it touches, or touch what
        it writes.
        """
        needs: list[list[int]] = []
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        for index, touches in enumerate(self.touches):
            found: set[int] = set()
            for value, is_written in touches:
                found.update([writer[value]] if value in writer else [])
                found.update(readers.get(value, []) if is_written else [])
            for value, is_written in touches:
                if is_written:
                    writer[value], readers[value] = index, []
                else:
                    readers.setdefault(value, []).append(index)
            needs.append(sorted(found - {index}))
        return needs

    def ahead(self, order: Sequence[int]) -> list[int]:
        """Return the order with nodes as early as they can be that leave less than they are the last to touch."""
        moved = _Moved(self, order)
        for index in order:
            place = moved.place[index]
            after = max((moved.place[other] for other in self.needs[index]), default=place - 1) + 1
            if after < place and moved.spared([index], place) < 0:
                moved.move([index], after)
        return moved.order

    def waiting(self, order: Sequence[int]) -> list[int]:
        """Return the order with nodes as late as they can be that leave more than they are the last to touch, each
        with those before it that nothing else needs. What comes just before its reader stays there.
        """
        moved = _Moved(self, order)
        for index in reversed(order):
            before = min((moved.starts[other] for other in self.needed_by[index]), default=0)
            unit = [index] if moved.spared([index], before) > 0 else []
            if before > moved.place[index] + 1:
                unit, before = self._unit(index, moved)
                if unit:
                    moved.move(unit, before)
            if unit and before > 0:
                moved.join(unit, moved.order[moved.place[index] + 1])
        return moved.order

    def _unit(self, index: int, moved: _Moved) -> tuple[list[int], int]:
        """Return the nodes up to node ``index`` that wait together, those that leave the most, and the place before
        which they come; none where all leave hardly more than they end.
        """
        unit, best, place, most = [index], list[int](), 0, 0
        while True:
            behind = {other for one in unit for other in self.needed_by[one]}.difference(unit)
            before = min((moved.starts[other] for other in behind), default=0)
            spared = moved.spared(unit, before)
            if spared > most + max(LEAVES * moved.largest(unit), SMALL * moved.largest_of_all):
                best, place, most = list(unit), before, spared
            needed = {other for one in unit for other in self.needs[one]}.difference(unit)
            alone = [other for other in needed if not set(self.needed_by[other]).difference(unit)]
            if not alone or len(unit) == UNIT_MAX or before <= moved.place[index] + 1:
                return best, place
            unit.append(max(alone, key=lambda other: moved.place[other]))


class _Moved:
    """An order in which nodes move, and when values live in it."""

    def __init__(self, orders: _Orders, order: Sequence[int]) -> None:
        self.order = list(order)
        self._touches, self._bytes = orders.touches, orders.nbytes
        self._together: list[set[int]] = [{index} for index in range(len(order))]
        self.largest_of_all = max(self._bytes, default=0)
        """Bytes of the largest value."""
        self._uses: dict[int, list[int]] = {}
        for index in order:
            for value, _ in self._touches[index]:
                self._uses.setdefault(value, []).append(index)
        self.place = [0] * len(self.order)
        self.starts = [0] * len(self.order)
        """First place of the nodes that are kept together with each."""
        self._count(0, len(self.order))

    def _count(self, first: int, end: int) -> None:
        """Find where nodes are, of which those in some places have come to others."""
        moved = self.order[first:end]
        for place, index in enumerate(moved, first):
            self.place[index] = place
        for index in moved:
            together = self._together[index]
            start = self.place[index] if len(together) == 1 else min(self.place[other] for other in together)
            for other in together:
                self.starts[other] = start

    def spared(self, unit: Sequence[int], before: int) -> int:
        """Return the bytes that would live later where nodes came just before a place, less those that would live
        longer.
        """
        spared = 0
        for value in {value for index in unit for value, _ in self._touches[index]}:
            others = [self.place[index] for index in self._uses[value] if index not in unit]
            if others:
                spared += self._bytes[value] * ((min(others) >= before) - (max(others) < before))
        return spared

    def largest(self, unit: Sequence[int]) -> int:
        """Return the bytes of the largest value that nodes touch."""
        return max(self._bytes[value] for index in unit for value, _ in self._touches[index])

    def move(self, unit: Sequence[int], before: int) -> None:
        """Move nodes, in their order, to just before a place, or from behind it to it."""
        places = [self.place[index] for index in unit]
        first, end = min(*places, before), max(*places, before - 1) + 1
        kept = [index for index in self.order[first:end] if index not in unit]
        at = before - first - sum(place < before for place in places)
        kept[at:at] = sorted(unit, key=lambda index: self.place[index])
        self.order[first:end] = kept
        self._count(first, end)

    def join(self, unit: Sequence[int], reader: int) -> None:
        """Keep nodes together with the one that they came before."""
        together = self._together[reader].union(*(self._together[index] for index in unit))
        start = min(self.starts[index] for index in together)
        for index in together:
            self._together[index], self.starts[index] = together, start
