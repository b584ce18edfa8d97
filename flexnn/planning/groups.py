"""Groups of independent nodes (Oplachko §3.2, §4): nodes of a group run at the same time, followed by one barrier.

A node's layer is the length of the longest path to it, so the nodes of a layer are independent (statement 3.1); each
layer is split into ``k`` groups of equal size. Predicate F, that tensors which one group uses share no memory, needs no
extra case: lifetimes reach to the bounds of their groups, and so do workspaces, of which a group has one for all its
nodes, thread by thread. Paths run through memory, not only through values: a node also depends on the readers of
what it overwrites.

The units of all nodes of a group are handed to the threads together, so a group has as much intra-operator parallelism
as its nodes leave threads idle. What that takes is in grouping.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flexnn.graph.ir import Graph, Node, Tensor
from flexnn.graph.operators import OPERATORS

from .types import Costs


def layers(graph: Graph) -> list[list[int]]:
    """Return nodes by the length of the longest path to them, each layer in the graph's order."""
    depth: list[int] = []
    accesses: dict[int, list[tuple[int, Tensor, bool, bool]]] = {}  # of each root: node, view, writes, interleaves
    for index, node in enumerate(graph.nodes):
        own = 0
        for root, view, writes in _accesses(graph, node):
            interleaves = writes and OPERATORS[node.op].interleaves
            for other, before, wrote, interleaved in accesses.setdefault(root, []):
                if other != index and (writes or wrote) and _meet(view, before, interleaves and interleaved):
                    own = max(own, depth[other] + 1)
            accesses[root].append((index, view, writes, interleaves))
        depth.append(own)
    result: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for index, own in enumerate(depth):
        result[own].append(index)
    return result


def group_sizes(counts: list[int], k: int) -> list[int]:
    """Return the number of nodes of each group. Each layer, of ``counts`` nodes, is split into at most ``k`` groups of
    the same size, of which the last may be smaller.
    """
    sizes: list[int] = []
    for count in counts:
        size = -(-count // k)
        sizes += [min(size, count - at) for at in range(0, count, size)]
    return sizes


def in_order(graph: Graph, order: list[int]) -> Graph:
    """Return the graph with its nodes in another order."""
    return replace(graph, nodes=[graph.nodes[i] for i in order])


def at_once(costs: Costs, sizes: list[int], *, smallest: bool = False) -> Costs:
    """Return the costs of nodes that run in groups. Lifetimes reach to the ends of the groups, and all nodes of a group
    use one workspace: the largest of their fastest kernels, or of their kernels with the ``smallest`` workspaces.
    """
    variants = [node.variants[-1 if smallest else 0] for node in costs.nodes]
    begin: list[int] = []
    end: list[int] = []
    for size in sizes:
        begin += [len(begin)] * size
        end += [len(begin) - 1] * size
    nodes = []
    for index, (node, variant) in enumerate(zip(costs.nodes, variants, strict=True)):
        members = range(begin[index], end[index] + 1)
        workspace = max(variants[i].workspace_bytes for i in members) if variant.workspace_bytes else 0
        nodes.append(replace(node, variants=[variant._replace(workspace_bytes=workspace)]))
    first, last = [begin[i] for i in costs.first_node], [end[i] for i in costs.last_node]
    return replace(costs, nodes=nodes, first_node=first, last_node=last)


def _accesses(graph: Graph, node: Node) -> Iterator[tuple[int, Tensor, bool]]:
    """Yield (root, view, whether it is written) of each operand that is not a constant."""
    for tensors, writes in ((node.inputs, False), (node.outputs, True)):
        for tensor in tensors:
            root = graph.root(tensor)
            if graph.tensors[root].weight < 0:
                yield root, graph.tensors[tensor], writes


def _meet(a: Tensor, b: Tensor, interleave: bool) -> bool:
    """Return whether two views of one root may share an element. ``interleave``: rows of channels are told apart."""
    (low_a, high_a), (low_b, high_b) = _extent(a), _extent(b)
    if low_a >= high_b or low_b >= high_a:
        return False
    pitch = _pitch(a)
    if not interleave or not pitch or pitch != _pitch(b):
        return True
    shift = (a.offset - b.offset) % pitch
    return shift < b.shape[-1] or shift + a.shape[-1] > pitch


def _extent(view: Tensor) -> tuple[int, int]:
    """Return the elements [low, high) of the root in which a view lies."""
    reach = [(size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)]
    if 0 in view.shape:
        return 0, 0
    return view.offset + sum(min(r, 0) for r in reach), view.offset + sum(max(r, 0) for r in reach) + 1


def _pitch(view: Tensor) -> int:
    """Return the elements from one row of channels to the next; 0 if the view is not rows of channels."""
    if len(view.shape) < 2 or view.strides[-1] != 1 or view.strides[-2] < view.shape[-1]:
        return 0
    pitch = view.strides[-2]
    return 0 if any(stride % pitch for stride in view.strides[:-1]) else pitch
