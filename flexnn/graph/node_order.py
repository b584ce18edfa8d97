"""Order of an ONNX graph's nodes: a file may state them in any, though the standard asks for one that is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .stated import GraphError

if TYPE_CHECKING:
    import onnx


def sort_nodes(graph: onnx.GraphProto) -> set[str]:
    """Sort the nodes of ``graph`` and of all graphs inside it, so that each follows those whose outputs it reads.

    Return the values of the graphs around it that it reads. Nodes move only as far as they must: one that comes too
    late goes before its first reader. The time is linear. Raises GraphError for a cycle.
    """
    reads = [_reads(node) for node in graph.node]
    makers: dict[str, int] = {}
    for i, node in enumerate(graph.node):
        for name in node.output:
            makers.setdefault(name, i)
    makers.pop("", None)
    needs = [[makers[name] for name in names if name in makers] for names in reads]
    if any(need >= i for i, needed in enumerate(needs) for need in needed):
        nodes = list(graph.node)
        graph.node.extend([nodes[i] for i in _order(needs, nodes)])
        del graph.node[: len(nodes)]
    own = {port.name for port in (*graph.input, *graph.initializer)} | makers.keys()
    return {port.name for port in graph.output}.union(*reads) - own - {""}


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node reads, in the order in which it names them; those of its graphs come last."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += sorted(sort_nodes(attribute.g))
        for graph in attribute.graphs:
            names += sorted(sort_nodes(graph))
    return names


def _order(needs: Sequence[Sequence[int]], nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Return the order: each node as stated, those that it needs first. Without recursion: a chain may be long."""
    order: list[int] = []
    done = [False] * len(needs)
    is_open = [False] * len(needs)
    """Nodes that wait for another that they need: one of those needed again closes a cycle."""
    for first in range(len(needs)):
        waiting = [(first, iter(needs[first]))] if not done[first] else []
        is_open[first] = True
        while waiting:
            i, needed = waiting[-1]
            for need in needed:
                if is_open[need] and not done[need]:
                    node = nodes[need]
                    where = f"{node.op_type} node {node.name or ''.join(node.output[:1])!r}"
                    raise GraphError(f"{where}: needs its own output: the graph has a cycle")
                if not done[need]:
                    is_open[need] = True
                    waiting.append((need, iter(needs[need])))
                    break
            else:
                done[i] = True
                order.append(i)
                waiting.pop()
    return order
