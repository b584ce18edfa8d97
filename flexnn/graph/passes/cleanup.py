"""Clean-up: dead nodes, reshapes that do nothing or follow each other, unused tensors and weights."""

from __future__ import annotations

from ..ir import Graph
from ..strided import same_shape
from .rewrite import Rewriter


def cleanup(graph: Graph) -> None:
    """Merge chains of reshapes, drop those that change nothing, and nodes that nothing reads."""
    uses = Rewriter(graph)
    for node in reversed(list(graph.nodes)):
        out = node.outputs[0]
        if not uses.consumers.get(out) and out not in graph.outputs and out in uses.producer:
            uses.remove(node)
    for node in graph.nodes:
        if node.op != "reshape" or node.outputs[0] not in uses.producer:
            continue
        while (before := uses.producer.get(node.inputs[0])) is not None and before.op == "reshape":
            uses.feed(node, list(before.inputs))
        source, target = node.inputs[0], node.outputs[0]
        if same_shape(graph.tensors[source].shape, graph.tensors[target].shape):
            settled = graph.tensors[source].weight >= 0 or source in graph.inputs or source in graph.outputs
            if target not in graph.outputs or not settled:
                uses.replace(target, source)
                uses.remove(node)
    uses.flush()


def compact(graph: Graph) -> Graph:
    """A graph without the tensors and weights that nothing uses; indices are new."""
    used = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        used.update(node.inputs, node.outputs)
    used |= {graph.root(i) for i in used}
    tensors = sorted(used)
    place = {old: new for new, old in enumerate(tensors)}
    weights = sorted(({graph.tensors[i].weight for i in tensors} | {node.weight for node in graph.nodes}) - {-1})
    slot = {old: new for new, old in enumerate(weights)} | {-1: -1}
    result = Graph(weights=[graph.weights[w] for w in weights])
    for i in tensors:
        tensor = graph.tensors[i]
        tensor.root = place[tensor.root] if tensor.root >= 0 else -1
        tensor.weight = slot[tensor.weight]
        result.tensors.append(tensor)
    for node in graph.nodes:
        node.inputs, node.outputs = [place[i] for i in node.inputs], [place[i] for i in node.outputs]
        node.weight = slot[node.weight]
        result.nodes.append(node)
    result.inputs, result.outputs = [place[i] for i in graph.inputs], [place[i] for i in graph.outputs]
    return result
