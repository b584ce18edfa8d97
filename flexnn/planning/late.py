"""Maps that wait for late readers, made again just before these: a U-Net's first map, which is as large as any, lives
while all other levels are computed. What it is made of is the picture, so it takes little work to make it once more;
and in bands of rows (planning/bands.py), together with its reader, it is never whole.

Bands lower what nodes need that follow each other, but not what waits around them. So the bytes that wait at each node
are brought down, the most first, as long as that takes little work.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from flexnn.graph.ir import Graph, Node

from .band_tables import work_of
from .costs import lives_of
from .twice import Twice

WAITS = 4
"""Nodes that do not touch a map between two that do, from which on it waits."""
LARGE = 0.05
"""Smallest map that is made again, as a fraction of the most bytes that wait."""
LEVELS = 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7
"""Most bytes that wait, as fractions of what they were, of which the least that takes little work is reached."""
STEPS_MAX = 12
"""Most maps that are made again."""
NODES_MAX = 48
"""Most nodes that make a map again."""
WORK_MAX = 0.4
"""Largest fraction of the graph's work that is repeated."""
NEAR = 16
"""Nodes behind a map that was made again, among which a sum that is written over what that reads lies apart from it."""
_NONE = -1


class _Wait(NamedTuple):
    """A map that waits."""

    root: int
    after: int
    """Last node before that touches it."""
    before: int
    """Next node that does."""


class _Again(NamedTuple):
    """Nodes that make a map again."""

    root: int
    place: int
    """Number of the node before which they run."""
    nodes: frozenset[int]
    freed: int
    """Bytes that do not wait any more."""
    work: int


def late(graph: Graph, waiting: float) -> Twice:
    """Return the graph with maps made again that wait, so that as few bytes wait as that can bring about with little
    work; the same graph where it can not spare some, or where fewer than ``waiting`` bytes wait at each node.
    """
    work_max = int(WORK_MAX * sum(work_of(graph, node) for node in graph.nodes))
    first = _State(graph, work_max, {})
    most = max(first.waiting, default=0)
    found = (_brought(first, int(level * most)) for level in LEVELS) if most >= waiting else iter(())
    best = next((state for state in found if state is not None), first)
    return Twice(best.graph, work_max - best.work_max)


def _brought(state: _State, level: int) -> _State | None:
    """Return what follows when at most so many bytes wait; None where that takes more work."""
    for _ in range(STEPS_MAX):
        if max(state.waiting, default=0) <= level:
            return state
        again = state.cheapest(level)
        if again is None:
            return None
        state = state.after(again)
    return None


class _State:
    """A graph, and what waits at its nodes. ``work_max``: work that may still be repeated.

    Some twenty states are there at a time, in sessions with budgets of a few MiB: what a state holds for each node or
    tensor are numbers in arrays, and ``sets`` that all states share.
    """

    def __init__(self, graph: Graph, work_max: int, sets: dict[frozenset[int], frozenset[int]]) -> None:
        self.graph, self.work_max, self._sets = graph, work_max, sets
        self._known: dict[_Wait, list[_Again]] = {}
        """Ways to make again what waits."""
        self._after: dict[_Again, _State] = {}
        """States that follow."""
        self._owners = array("q", (i if tensor.root < 0 else tensor.root for i, tensor in enumerate(graph.tensors)))
        self._sizes = array("q", [_NONE]) * len(graph.tensors)
        """Bytes of each tensor that is a root, else _NONE."""
        lives = lives_of(graph)
        for root, nbytes in zip(lives.roots, lives.root_bytes, strict=True):
            self._sizes[root] = nbytes
        self._reads = [self._roots(node.inputs) for node in graph.nodes]
        self._writes = [self._roots(node.outputs) for node in graph.nodes]
        self._writer = array("q", [_NONE]) * len(graph.tensors)
        """First node that writes each root."""
        self._further: dict[int, list[int]] = {}
        """Further nodes that write a root: few have some."""
        self._last = array("q", [_NONE]) * len(graph.tensors)
        """Last node that touches each root."""
        self._waits: list[_Wait] = []
        grows = array("q", [0]) * (len(graph.nodes) + 1)
        for index, (read, made) in enumerate(zip(self._reads, self._writes, strict=True)):
            for root in read | made:
                before, nbytes = self._last[root], self._sizes[root]
                if before != _NONE and nbytes != _NONE and index - before > WAITS:
                    self._waits.append(_Wait(root, before, index))
                    grows[before + 1] += nbytes
                    grows[index] -= nbytes
                self._last[root] = index
            for root in made:
                if self._writer[root] == _NONE:
                    self._writer[root] = index
                else:
                    self._further.setdefault(root, []).append(index)
        self._waits.sort()
        self.waiting = array("q", [*accumulate(grows)][:-1])
        """Bytes that wait at each node."""

    def _roots(self, tensors: Iterable[int]) -> frozenset[int]:
        found = frozenset(i for i in map(self._owners.__getitem__, tensors) if self.graph.tensors[i].weight < 0)
        return self._sets.setdefault(found, found)

    def cheapest(self, level: int) -> _Again | None:
        """Return what brings the bytes that wait where the most do below a level with the least work, or else what
        spares the most of them for its work; None where nothing spares much.
        """
        most = max(self.waiting)
        node = self.waiting.index(most)
        least = max(LARGE * most, (most - level) / 2)
        found = [
            again
            for wait in self._waits
            if wait.after < node < wait.before and self._sizes[wait.root] >= least
            for again in self._made_again(wait)
            if again.freed >= least
        ]
        enough = [again for again in found if most - again.freed <= level]
        if enough:
            return min(enough, key=lambda again: again.work)
        return max(found, key=lambda again: again.freed / (again.work + 1), default=None)

    def _made_again(self, wait: _Wait) -> list[_Again]:
        """Return ways to make again what waits."""
        if wait not in self._known:
            self._known[wait] = [*self._ways_to_make(wait.root, self._place(wait))]
        return self._known[wait]

    def _place(self, wait: _Wait) -> int:
        """Return the node before which a root is made again: the first of those that write another one together."""
        place, made = wait.before, self._writes[wait.before]
        while place - 1 > wait.after and not made.isdisjoint(self._writes[place - 1]):
            place -= 1
        return place

    def _ways_to_make(self, root: int, place: int) -> Iterator[_Again]:
        """Yield ways to make a root again before a node, from more and more of what it is made of."""
        made, fixed = {root}, {*self.graph.inputs}
        nodes, work, outside = frozenset[int](), 0, {*self.graph.inputs, *self.graph.outputs}
        while True:
            more = frozenset(i for one in made for i in self._writers(one) if i < place) - nodes
            nodes, work = nodes | more, work + sum(work_of(self.graph, self.graph.nodes[i]) for i in more)
            made = made.union(*(self._writes[i] for i in more))
            if len(nodes) > NODES_MAX or work > self.work_max or not made.isdisjoint(outside):
                return
            if more:
                continue  # what these write may have further writers
            others: dict[int, int] = {}
            for i in sorted(nodes, reverse=True):
                others |= dict.fromkeys(self._reads[i] - made - fixed, i)
            changed = {o for o, first in others.items() if self._is_written(o, first, place)}
            ends = {other for other in others if self._sizes[other] != _NONE and self._last[other] < place}
            if not changed:
                freed = self._sizes[root] - sum(self._sizes[other] for other in ends)
                yield _Again(root, place, nodes, freed, work)
            grows = {o for o in changed or ends if self._is_written(o, 0, place)}
            if not grows or (changed and grows != changed):
                return
            made.add(max(grows, key=lambda other: self._sizes[other]))

    def _is_written(self, root: int, first: int, end: int) -> bool:
        """Return whether one of some nodes that follow each other writes a root."""
        return any(first <= index < end for index in self._writers(root))

    def _writers(self, root: int) -> list[int]:
        """Return the nodes that write a root."""
        first = self._writer[root]
        return [] if first == _NONE else [first, *self._further.get(root, ())]

    def after(self, again: _Again) -> _State:
        """Return what follows when a map is made again."""
        if again not in self._after:
            self._after[again] = _State(self._with(again), self.work_max - again.work, self._sets)
        return self._after[again]

    def _with(self, again: _Again) -> Graph:
        """Return the graph in which a map is made again."""
        graph, made = self.graph, frozenset[int]().union(*(self._writes[i] for i in again.nodes))
        names = _Names(graph, self._owners)
        copied = {root: names.apart(root, "again") for root in sorted(made)}
        last = {again.root: copied[again.root]}
        copies = [names.moved(graph.nodes[i], copied, copied, "again") for i in sorted(again.nodes)]
        behind = []
        read = frozenset[int]().union(*(self._reads[i] for i in again.nodes)) - made
        for index in range(again.place, len(graph.nodes)):
            sums = {} if index >= again.place + NEAR else self._summed(index, read - last.keys())
            inputs = dict(last)
            last |= {root: names.apart(root, "sum") for root in sums}
            behind.append(names.moved(graph.nodes[index], inputs, last))
        nodes = [*graph.nodes[: again.place], *copies, *behind]
        added = graph.added + len(copies)
        return replace(graph, tensors=names.tensors, nodes=nodes, added=added)

    def _summed(self, index: int, roots: frozenset[int]) -> frozenset[int]:
        """Return those of the roots that a node writes over as a whole, as it reads them."""
        node, tensors = self.graph.nodes[index], self.graph.tensors
        root = self._owners[node.outputs[0]] if node.outputs else -1
        is_summed = root in roots and self._sizes[root] != _NONE and root in self._reads[index]
        return frozenset([root] if is_summed and tensors[node.outputs[0]].size == tensors[root].size else [])


class _Names:
    """Tensors of a graph and of what is added to it."""

    def __init__(self, graph: Graph, owners: array[int]) -> None:
        self.tensors, self._owners = list(graph.tensors), owners
        self._known: dict[tuple[int, int], int] = {}

    def apart(self, root: int, name: str) -> int:
        """Return a root like another one."""
        self.tensors.append(replace(self.tensors[root], name=f"{self.tensors[root].name}.{name}"))
        return len(self.tensors) - 1

    def moved(self, node: Node, inputs: dict[int, int], outputs: dict[int, int], name: str = "") -> Node:
        """Return a node with other roots in the place of some."""
        read = [self._view(tensor, inputs) for tensor in node.inputs]
        made = [self._view(tensor, outputs) for tensor in node.outputs]
        if not name and read == node.inputs and made == node.outputs:
            return node
        return replace(node, name=f"{node.name}.{name}" if name else node.name, inputs=read, outputs=made)

    def _view(self, tensor: int, roots: dict[int, int]) -> int:
        root = roots.get(self._owners[tensor], -1)
        if root < 0 or tensor == self._owners[tensor]:
            return tensor if root < 0 else root
        if (tensor, root) not in self._known:
            self._known[tensor, root] = len(self.tensors)
            self.tensors.append(replace(self.tensors[tensor], root=root))
        return self._known[tensor, root]
