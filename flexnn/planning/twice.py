"""Maps that are made twice: a map that is first reduced to a few numbers (a global pool), and then read again together
with what follows from these numbers (a gate), is large for as long as that takes. Made once for the reduction and once
more for the other readers, both times in bands of rows (planning/bands.py), it is never whole.

The reduction itself becomes two nodes, as its operator's record says: one for each row, which bands of rows go through,
and one that joins these. A reduction of rows, which another node joins, stays one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from flexnn.graph.ir import Attr, Graph, Node, Tensor
from flexnn.graph.operators import OPERATORS
from flexnn.graph.operators.rows import Halves

from .band_tables import work_of
from .layout import Blocks
from .types import Costs, Lives

LARGE = 0.05
"""Smallest map that is worth it, as a fraction of the most bytes alive at once."""
ROWS_MIN = 8
"""Fewest rows of such a map."""
KEPT = 0.5
"""Bytes that are kept for making a map again, as a fraction of the map's, above which it is not worth it."""
NODES_MAX = 16
"""Most nodes that make a map again."""
WORK_MAX = 0.4
"""Largest fraction of the graph's multiplications that is repeated for one map."""


class Twice(NamedTuple):
    """A graph with maps that are made twice."""

    graph: Graph
    work: int
    """Multiplications that are repeated."""


def twice(graph: Graph, costs: Costs | Lives) -> Twice:
    """Return the graph with reductions of large maps in two nodes, and with maps made twice that are read again; the
    same graph where there are none.
    """
    most = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).bound
    large = {root for root, size in zip(costs.roots, costs.root_bytes, strict=True) if size > LARGE * most}
    reductions = [node for node in graph.nodes if node.inputs and graph.root(node.inputs[0]) in large]
    writer: _Writer | None = None
    for node in reductions:
        halves = _halves(graph, node)
        if halves is not None:
            writer = writer or _Writer(graph, set(costs.roots))
            writer.reduce(node, halves)
    return Twice(writer.graph(), writer.work) if writer else Twice(graph, 0)


def _halves(graph: Graph, node: Node) -> Halves | None:
    source = graph.tensors[node.inputs[0]]
    axis = 1 if len(source.shape) > 2 else 0
    if (len(source.shape) != 4 and node.op != "byte_steps") or source.shape[axis] < ROWS_MIN:
        return None
    return OPERATORS[node.op].halves(node, source.shape, source.dtype, axis)


class _Again(NamedTuple):
    """Nodes that make a map again."""

    kept: int
    """Bytes that are kept for them."""
    work: int
    nodes: set[int]
    """Their numbers."""
    place: int
    """Number of the node before which they run again."""


class _Writer:
    """Writes a graph with maps that are made twice."""

    def __init__(self, graph: Graph, in_arena: set[int]) -> None:
        self.work = 0
        self._graph, self._in_arena = graph, in_arena
        self._tensors, self._nodes = list(graph.tensors), list(graph.nodes)
        self._outputs: list[set[int]] = []
        """Roots that each node writes, weights left out."""
        self._inputs: list[set[int]] = []
        """Roots that each node reads."""
        self._look()
        self._work_max = WORK_MAX * sum(work_of(graph, node) for node in graph.nodes)

    def graph(self) -> Graph:
        """Return the graph as it is now."""
        added = self._graph.added + len(self._nodes) - len(self._graph.nodes)
        return replace(self._graph, tensors=self._tensors, nodes=self._nodes, added=added)

    def reduce(self, node: Node, halves: Halves) -> None:
        """Write a reduction as two nodes, and make what it reduces again for its other readers."""
        index = next(i for i, other in enumerate(self._nodes) if other is node)
        again = self._again(index, self._root(node.inputs[0]))
        written = [node] if halves.then is None else self._both(node, halves.first, halves.then)
        self._nodes[index : index + 1] = written
        if again is not None:
            self._make_again(index, again, again.place - 1 + len(written))
            self._look()
        else:
            self._outputs[index : index + 1] = [self._roots(half.outputs) for half in written]
            self._inputs[index : index + 1] = [self._roots(half.inputs) for half in written]

    def _both(self, node: Node, first: dict[str, Attr], then: dict[str, Attr]) -> list[Node]:
        """Return the two nodes of a reduction."""
        source, rows = self._tensors[node.inputs[0]], len(self._tensors)
        of_rows = Node(f"{node.name}.rows", node.op, list(node.inputs), [rows], first)
        shape, dtype = OPERATORS[node.op].infer(of_rows, [source.shape], [source.dtype])
        self._tensors.append(Tensor(f"{node.name}.rows", shape, dtype))
        return [of_rows, replace(node, inputs=[rows], attrs=then, params=None)]

    def _look(self) -> None:
        """Find what nodes write and read."""
        self._outputs = [self._roots(node.outputs) for node in self._nodes]
        self._inputs = [self._roots(node.inputs) for node in self._nodes]

    def _root(self, tensor: int) -> int:
        owner = self._tensors[tensor].root
        return tensor if owner < 0 else owner

    def _roots(self, tensors: Iterable[int]) -> set[int]:
        return {root for root in map(self._root, tensors) if self._tensors[root].weight < 0}

    def _writers(self, roots: set[int], before: int) -> set[int]:
        return {i for i in range(before) if not roots.isdisjoint(self._outputs[i])}

    def _again(self, index: int, source: int) -> _Again | None:
        """Return the nodes that make a root again that node ``index`` reduces; None where that spares nothing."""
        graph = self.graph()
        best: _Again | None = None
        nodes = self._writers({source}, index)
        while nodes and len(nodes) <= NODES_MAX:
            made = set[int]().union(*(self._outputs[i] for i in nodes))
            nodes = self._writers(made, index)
            read = set[int]().union(*(self._inputs[i] for i in nodes)) - made
            place = self._first_use(made, index)
            work = sum(work_of(graph, self._nodes[i]) for i in nodes)
            if place is None or work > self._work_max or self._changes(read, min(nodes), place):
                break
            ends = [root for root in read & self._in_arena if not self._is_used(root, place)]
            kept = sum(self._tensors[root].nbytes for root in ends)
            if best is None or kept < best.kept:
                best = _Again(kept, work, nodes, place)
            if not ends:
                break
            nodes = nodes | self._writers({max(ends, key=lambda root: self._tensors[root].nbytes)}, min(nodes))
        return best if best is not None and best.kept <= KEPT * self._tensors[source].nbytes else None

    def _first_use(self, roots: set[int], index: int) -> int | None:
        """Return the first node behind ``index`` that touches some of the roots."""
        behind = range(index + 1, len(self._nodes))
        return next((i for i in behind if self._touches(i, roots)), None)

    def _touches(self, index: int, roots: set[int]) -> bool:
        return not (roots.isdisjoint(self._inputs[index]) and roots.isdisjoint(self._outputs[index]))

    def _is_used(self, root: int, place: int) -> bool:
        """Whether a root is alive at a node and behind it anyway."""
        return any(self._touches(i, {root}) for i in range(place, len(self._nodes)))

    def _changes(self, roots: set[int], first: int, place: int) -> bool:
        """Return whether some node between writes over some of the roots, which were complete before."""
        return any(not roots.isdisjoint(self._outputs[i]) for i in range(first, place))

    def _make_again(self, index: int, again: _Again, place: int) -> None:
        """Make roots by nodes ``again`` in storage of their own up to node ``index``, and once more before what is node
        ``place`` now.
        """
        made = set[int]().union(*(self._outputs[i] for i in again.nodes))
        moved: dict[int, int] = {}
        for root in sorted(made):
            moved[root] = len(self._tensors)
            self._tensors.append(replace(self._tensors[root], name=f"{self._tensors[root].name}.first"))
        copies = [replace(self._nodes[i], name=f"{self._nodes[i].name}.again") for i in sorted(again.nodes)]
        for i in range(index + 1):
            node = self._nodes[i]
            touched = {t for t in (*node.inputs, *node.outputs) if self._root(t) in made}
            for tensor in touched - moved.keys():
                moved[tensor] = len(self._tensors)
                view = self._tensors[tensor]
                self._tensors.append(replace(view, root=moved[view.root]))
            if touched:
                inputs, outputs = ([moved.get(t, t) for t in tensors] for tensors in (node.inputs, node.outputs))
                self._nodes[i] = replace(node, inputs=inputs, outputs=outputs)
        self._nodes[place:place] = copies
        self.work += again.work
        self._in_arena |= {moved[root] for root in made & self._in_arena}
