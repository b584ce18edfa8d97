"""Nodes that apply the same weights to several values apply them to all of these at once.

Both halves of a siamese network become one for twice the images, and the steps of an unrolled recurrent layer multiply
all their inputs in one product. So weights are read once in a run, and panels serve more rows.

Only nodes of one depth are joined, so none needs another. They are joined where their weights are larger than their
maps: before, a run would keep more for little.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

from ..attributes import ints_attr
from ..build import add_node
from ..ir import Attr, Graph, Node
from ..pack import PanelSource
from ..sizes import is_same, preferring

LEAST_BYTES = 64 << 10
"""Bytes of weights from which on nodes are joined."""
WORTH = 2
"""Least size of weights, in sizes of the maps that they are applied to."""
_WEIGHTED = "conv", "dwconv"
_PLAIN = "pool", "unary", "binary"
"""Operators that compute each image, and each row of one that is joined, by itself; pools each image."""
Part = tuple[int, int, int]
"""A joined value, the number of one of its parts, and how many it has."""


def join_twins(graph: Graph) -> None:
    """Join nodes with the same weights, and what follows each of them alike."""
    keys = [_weight_key(graph, node) for node in graph.nodes]
    if len({*keys} - {""}) == sum(map(bool, keys)):
        return
    twins = _Twins(graph)
    depths: dict[int, list[int]] = defaultdict(list)
    for index, depth in enumerate(_depths(graph)):
        depths[depth].append(index)
    for depth in sorted(depths):
        twins.join(depths[depth], keys)
    twins.finish()


def _weight_key(graph: Graph, node: Node) -> str:
    """The key of weights that are worth joining nodes for; empty: the node has none."""
    if node.op not in _WEIGHTED or len(node.inputs) != 1:
        return ""
    panels = graph.weights[node.weight].panels
    return panels.key if isinstance(panels, PanelSource) and panels.nbytes >= LEAST_BYTES else ""


def _depths(graph: Graph) -> list[int]:
    """The number of nodes on the longest path to each node."""
    of: dict[int, int] = {}
    depths = []
    for node in graph.nodes:
        depths.append(max((of.get(i, 0) for i in node.inputs), default=0))
        of |= dict.fromkeys(node.outputs, depths[-1] + 1)
    return depths


class _Twins:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parts: dict[int, Part] = {}
        self._axis: dict[int, int] = {}
        """Axis along which joined values lie behind each other."""
        self._ranked: list[tuple[int, Node]] = list(enumerate(graph.nodes))
        """Nodes with their ranks: they come as early as ranks and their inputs let them."""
        self._gone: set[int] = set()
        """Indices of nodes that were joined."""

    def join(self, indices: Sequence[int], keys: Sequence[str]) -> None:
        """Join nodes of one depth."""
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for index in indices:
            node = self._graph.nodes[index]
            if keys[index]:
                alike[node.op, keys[index]].append(index)
            elif node.op in _PLAIN and (parts := [self._parts.get(i) for i in node.inputs]) and all(parts):
                alike[node.op, *[part[0] for part in parts if part]].append(index)
        for some in alike.values():
            while len(some) > 1:
                first = self._graph.nodes[some[0]]
                same = [some[0], *(index for index in some[1:] if self._is_like(first, self._graph.nodes[index]))]
                if len(same) > 1:
                    self._join([self._graph.nodes[index] for index in same], same)
                some = [index for index in some if index not in same]

    def _is_like(self, a: Node, b: Node) -> bool:
        """Whether two nodes differ in their inputs alone, which differ in their numbers of images or rows alone."""
        if a.attrs != b.attrs:
            return False
        axis = self._axis_of(a)
        for i, j in zip(a.inputs, b.inputs, strict=True):
            x, y = self._graph.tensors[i], self._graph.tensors[j]
            if (x.dtype, len(x.shape)) != (y.dtype, len(y.shape)) or len(x.shape) <= axis:
                return False
            beside = zip((*x.shape[:axis], *x.shape[axis + 1 :]), (*y.shape[:axis], *y.shape[axis + 1 :]), strict=True)
            if not all(is_same(m, n) for m, n in beside):
                return False
        return True

    def _axis_of(self, node: Node) -> int:
        """Axis along which a node's values may lie behind each other: rows where it multiplies rows, else images."""
        if node.op in _PLAIN:
            return self._axis[self._parts[node.inputs[0]][0]]
        shape = self._graph.tensors[node.inputs[0]].shape
        is_rows = ints_attr(node, "kernel") == [1, 1] == ints_attr(node, "strides") and not any(ints_attr(node, "pads"))
        with preferring(shape):  # products of rows are right along any axis
            return int(is_rows and shape[0] == 1 == shape[2])

    def _join(self, nodes: list[Node], indices: list[int]) -> None:
        """Put one node in the place of several, if that is worth it."""
        first, axis = nodes[0], self._axis_of(nodes[0])
        tensors = [self._graph.tensors[i] for i in (*first.inputs, *first.outputs)]
        with preferring(tensor.nbytes for tensor in tensors):
            most = max(tensor.nbytes for tensor in tensors)
            if first.weight >= 0 and self._graph.weights[first.weight].nbytes < WORTH * most:
                return
        if first.op == "pool" and axis != 0:
            return
        inputs = []
        for operands in zip(*(node.inputs for node in nodes), strict=True):
            whole = self._whole(operands)
            if whole < 0 and first.op in _PLAIN:
                return
            if whole < 0:
                whole = self._new(Node(first.name, "concat", list(operands), [], {"axis": axis}), indices[0])
            inputs.append(whole)
        joined = self._new(Node(first.name, first.op, inputs, [], first.attrs, first.weight), indices[0])
        self._gone.update(indices)
        self._axis[joined] = axis
        for number, node in enumerate(nodes):
            self._parts[node.outputs[0]] = joined, number, len(nodes)

    def _whole(self, operands: Sequence[int]) -> int:
        """The joined value whose parts these are, all of them in order; -1: there is none."""
        parts = [self._parts.get(i) for i in operands]
        first = parts[0]
        if first is None or parts != [(first[0], number, len(operands)) for number in range(len(operands))]:
            return -1
        return first[0]

    def _new(self, node: Node, rank: int) -> int:
        """Add a node of some rank; return its output."""
        made = add_node(self._graph, node.name, node.op, node.inputs, node.attrs, node.weight)
        self._ranked.append((rank, self._graph.nodes.pop()))
        return made

    def finish(self) -> None:
        """Take parts out of joined values where something reads them, and put the nodes in order."""
        kept = [(rank, node) for at, (rank, node) in enumerate(self._ranked) if at not in self._gone]
        read = {i for _, node in kept for i in node.inputs} | {*self._graph.outputs}
        starts: dict[int, int] = defaultdict(int)
        for tensor, (joined, _, _) in self._parts.items():
            shape, axis = self._graph.tensors[tensor].shape, self._axis[joined]
            begin = [starts[joined] if i == axis else 0 for i in range(len(shape))]
            starts[joined] += shape[axis]
            if tensor in read:
                attrs: dict[str, Attr] = {"starts": begin, "sizes": list(shape), "steps": [1] * len(shape)}
                name = self._graph.tensors[joined].name
                kept.append((len(kept), Node(name, "slice", [joined], [tensor], attrs)))
        self._graph.nodes = _in_order(kept)


def _in_order(ranked: Sequence[tuple[int, Node]]) -> list[Node]:
    """The nodes, each behind those that make its inputs, else by rank."""
    maker = {i: at for at, (_, node) in enumerate(ranked) for i in node.outputs}
    needs = [{maker[i] for i in node.inputs if i in maker} for _, node in ranked]
    readers: dict[int, list[int]] = defaultdict(list)
    for at, needed in enumerate(needs):
        for other in needed:
            readers[other].append(at)
    waits = list(map(len, needs))
    ready = [(rank, at) for at, (rank, _) in enumerate(ranked) if not waits[at]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, at = heapq.heappop(ready)
        order.append(ranked[at][1])
        for reader in readers[at]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, (ranked[reader][0], reader))
    return order
