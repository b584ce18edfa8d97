"""Execution order: of a few topological orders, the one with the lowest peak of live bytes."""

from __future__ import annotations

import heapq

from ..build import VIEWS
from ..ir import Graph, Node
from ..sizes import preferring


def order(graph: Graph) -> None:
    """Order the nodes. The model's own order stays unless another needs less memory. At other sizes the order is right,
    too, but may not be the best one.
    """
    with preferring(tensor.nbytes for tensor in graph.tensors):
        groups = _Groups(graph)
        own = list(range(len(graph.nodes)))
        candidates = [own, _greedy(graph, groups), _depth_first(graph)]
        best = min(candidates, key=groups.peak)
    graph.nodes = [graph.nodes[i] for i in best]


class _Groups:
    """Values that will share storage because views connect them, with the bytes of each group.

    Inputs, outputs and constants count nothing: they lie elsewhere whatever the order is.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parent = list(range(len(graph.tensors)))
        for node in graph.nodes:
            if node.op in VIEWS:
                for i in node.inputs:
                    self.parent[self.find(i)] = self.find(node.outputs[0])
        self.bytes = [0] * len(graph.tensors)
        for i, tensor in enumerate(graph.tensors):
            root = self.find(i)
            self.bytes[root] = max(self.bytes[root], tensor.nbytes)
        for i, tensor in enumerate(graph.tensors):
            if tensor.weight >= 0 or i in graph.inputs or i in graph.outputs:
                self.bytes[self.find(i)] = 0
        self.touched: list[list[int]] = []
        self.users: dict[int, int] = {}
        """Nodes that touch each group."""
        for node in graph.nodes:
            own = sorted({self.find(i) for i in (*node.inputs, *node.outputs)})
            self.touched.append([g for g in own if self.bytes[g]])
            for group in self.touched[-1]:
                self.users[group] = self.users.get(group, 0) + 1

    def find(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = self.parent[i]
        return i

    def peak(self, nodes: list[int]) -> int:
        """Most bytes live at once when nodes run in this order."""
        left, live, most = dict(self.users), 0, 0
        for i in nodes:
            for group in self.touched[i]:
                if left[group] == self.users[group]:
                    live += self.bytes[group]
            most = max(most, live)
            for group in self.touched[i]:
                left[group] -= 1
                if not left[group]:
                    live -= self.bytes[group]
        return most


def _waiting(graph: Graph) -> tuple[list[int], dict[int, list[int]]]:
    """For each node how many nodes it waits for, and who waits for it."""
    maker = {i: k for k, node in enumerate(graph.nodes) for i in node.outputs}
    count = [0] * len(graph.nodes)
    followers: dict[int, list[int]] = {}
    for k, node in enumerate(graph.nodes):
        for m in {maker[i] for i in node.inputs if i in maker}:
            count[k] += 1
            followers.setdefault(m, []).append(k)
    return count, followers


def _greedy(graph: Graph, groups: _Groups) -> list[int]:
    """Always the ready node that adds least to the live bytes, the earlier one of equals."""
    count, followers = _waiting(graph)
    left = dict(groups.users)

    def cost(k: int) -> int:
        change = 0
        for group in groups.touched[k]:
            if left[group] == groups.users[group]:
                change += groups.bytes[group]
            if left[group] == 1:
                change -= groups.bytes[group]
        return change

    ready = [(cost(k), k) for k, waiting in enumerate(count) if not waiting]
    heapq.heapify(ready)
    result: list[int] = []
    while ready:
        stated, k = heapq.heappop(ready)
        now = cost(k)
        if now != stated and ready and (now, k) > ready[0]:
            heapq.heappush(ready, (now, k))
            continue
        result.append(k)
        for group in groups.touched[k]:
            left[group] -= 1
        for follower in followers.get(k, []):
            count[follower] -= 1
            if not count[follower]:
                heapq.heappush(ready, (cost(follower), follower))
    return result


def _depth_first(graph: Graph) -> list[int]:
    """Each node as late as its first reader allows: operands right before use, the deeper branch first."""
    maker = {i: k for k, node in enumerate(graph.nodes) for i in node.outputs}
    depth = [0] * len(graph.nodes)
    for k, node in enumerate(graph.nodes):
        depth[k] = 1 + max((depth[maker[i]] for i in node.inputs if i in maker), default=0)
    done: set[int] = set()
    result: list[int] = []

    def operands(node: Node) -> list[int]:
        return sorted({maker[i] for i in node.inputs if i in maker}, key=lambda k: depth[k])

    sinks = [maker[i] for i in graph.outputs if i in maker]
    stack = [(k, False) for k in reversed(sinks)]
    while stack:
        k, ready = stack.pop()
        if ready:
            if k not in done:
                done.add(k)
                result.append(k)
        elif k not in done:
            stack.append((k, True))
            stack += [(m, False) for m in operands(graph.nodes[k]) if m not in done]
    return result
