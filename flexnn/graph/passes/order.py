"""Execution order: of a few topological orders, the one with the lowest peak of live bytes."""

from __future__ import annotations

import numpy as np

from ..build import VIEWS
from ..ir import Array, Graph
from ..orders import Orders


def order(graph: Graph) -> None:
    """Order the nodes. The model's own order stays unless another needs less memory. At other sizes the order is right,
    too, but may not be the best one: where that matters, ``Template.is_least`` tells.
    """
    orders, nbytes = _grouped(graph)
    maker = _makers(graph)
    sinks = [maker[i] for i in graph.outputs if i in maker]
    candidates = [orders.own, orders.greedy(nbytes), orders.depth_first(sinks)]
    best = min(candidates, key=lambda nodes: orders.peak(nodes, nbytes))
    graph.nodes = [graph.nodes[i] for i in best]


def _makers(graph: Graph) -> dict[int, int]:
    return {i: k for k, node in enumerate(graph.nodes) for i in node.outputs}


def _grouped(graph: Graph) -> tuple[Orders, Array]:
    """Return the orders of a graph whose values have no storage yet, and the bytes of each group: values that will
    share storage because views connect them. Inputs, outputs and constants count nothing: they lie elsewhere whatever
    the order is. Sizes (graph/sizes.py) are looked at without making conditions of them.
    """
    parent = list(range(len(graph.tensors)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for node in graph.nodes:
        if node.op in VIEWS:
            for i in node.inputs:
                parent[find(i)] = find(node.outputs[0])
    own = [int(getattr(tensor.nbytes, "value", tensor.nbytes)) for tensor in graph.tensors]
    given = {*graph.inputs, *graph.outputs}
    most = [0] * len(own)
    for i, size in enumerate(own):
        most[find(i)] = max(most[find(i)], size)
    for i, tensor in enumerate(graph.tensors):
        if tensor.weight >= 0 or i in given:
            most[find(i)] = 0
    nbytes = np.array(most, np.int64)
    touched = [sorted({find(i) for i in (*node.inputs, *node.outputs)}) for node in graph.nodes]
    maker = _makers(graph)
    needs = [[maker[i] for i in node.inputs if i in maker] for node in graph.nodes]
    return Orders(touched, needs, len(own)), nbytes
