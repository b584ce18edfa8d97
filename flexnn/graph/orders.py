"""Orders of a graph's nodes, and the bytes that are alive in them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from .ir import Array

Lists = list[list[int]]


class Orders:
    """Nodes by their numbers: which groups of values each touches, and which nodes it needs to have run. A group shares
    storage, and is alive from the first node that touches it to the last one.
    """

    def __init__(self, touched: Lists, needs: Sequence[Iterable[int]], groups: int) -> None:
        self.touched, self.groups = touched, groups
        self.waits = [0] * len(touched)
        """Nodes that each waits for."""
        self.followers: Lists = [[] for _ in touched]
        """Nodes that wait for each."""
        self._needs = [sorted(set(needed)) for needed in needs]
        self.users = [0] * groups
        """Nodes that touch each group."""
        for k, (found, needed) in enumerate(zip(touched, self._needs, strict=True)):
            self.waits[k] = len(needed)
            for other in needed:
                self.followers[other].append(k)
            for group in found:
                self.users[group] += 1
        self._flat = np.array([group for found in touched for group in found], np.int64)
        self._counts = np.array([len(found) for found in touched], np.int64)
        self._deep: list[int] | None = None

    @property
    def own(self) -> list[int]:
        """The nodes as they stand."""
        return list(range(len(self.touched)))

    def widest(self, nbytes: Array) -> int:
        """Return the most bytes that one node touches: no order keeps less alive."""
        sums = np.concatenate([[0], np.cumsum(nbytes[self._flat])])
        ends = np.cumsum(self._counts)
        return int((sums[ends] - sums[ends - self._counts]).max(initial=0))

    def peak(self, nodes: Sequence[int], nbytes: Array) -> int:
        """Return the most bytes alive at once when nodes run in this order; ``nbytes``: those of each group."""
        places = np.empty(len(nodes), np.int64)
        places[np.asarray(nodes, np.int64)] = np.arange(len(nodes))
        at = np.repeat(places, self._counts)
        first, last = np.full(self.groups, len(nodes)), np.full(self.groups, -1)
        np.minimum.at(first, self._flat, at)
        np.maximum.at(last, self._flat, at)
        changes = np.zeros(len(nodes) + 1, np.int64)
        used = last >= 0
        np.add.at(changes, first[used], nbytes[used])
        np.subtract.at(changes, last[used] + 1, nbytes[used])
        return int(np.cumsum(changes).max(initial=0))

    def greedy(self, nbytes: Array) -> list[int]:
        """Return the order that takes the ready node that adds least to the live bytes, the earlier one of equals."""
        count, left, users, own = list(self.waits), list(self.users), self.users, nbytes.tolist()

        def cost(k: int) -> int:
            change = 0
            for group in self.touched[k]:
                if left[group] == users[group]:
                    change += own[group]
                if left[group] == 1:
                    change -= own[group]
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
            for group in self.touched[k]:
                left[group] -= 1
            for follower in self.followers[k]:
                count[follower] -= 1
                if not count[follower]:
                    heapq.heappush(ready, (cost(follower), follower))
        return result

    def depth_first(self, sinks: Sequence[int]) -> list[int]:
        """Return the order in which each node stands as late as its first reader allows: operands right before use, the
        deeper branch first. ``sinks``: the nodes for which the others run.
        """
        depth = [0] * len(self.touched)
        for k, needed in enumerate(self._needs):
            depth[k] = 1 + max((depth[other] for other in needed), default=0)
        done: set[int] = set()
        result: list[int] = []
        stack = [(k, False) for k in reversed(sinks)]
        while stack:
            k, ready = stack.pop()
            if ready:
                if k not in done:
                    done.add(k)
                    result.append(k)
            elif k not in done:
                stack.append((k, True))
                needed = sorted(self._needs[k], key=lambda other: depth[other])
                stack += [(other, False) for other in needed if other not in done]
        return result


def excess(nodes: Sequence[tuple[Sequence[int], Sequence[int]]], roots: Sequence[int], nbytes: Array) -> float:
    """Return how many times as much nodes, inputs and outputs of each, keep alive as they stand as in the best order
    that is looked at here; at least 1. Their values have storage: ``roots``, of ``nbytes`` each. A node needs those
    before it that write what it touches, or touch what it writes.
    """
    found = [({roots[i] for i in inputs}, {roots[i] for i in outputs}) for inputs, outputs in nodes]
    touched = [sorted(read | written) for read, written in found]
    orders = Orders(touched, [()] * len(touched), len(nbytes))
    peak = orders.peak(orders.own, nbytes)
    if peak <= orders.widest(nbytes):
        return 1.0
    writers: Lists = [[] for _ in nbytes]
    readers: Lists = [[] for _ in nbytes]
    needs: list[set[int]] = []
    for k, (read, written) in enumerate(found):
        needs.append({other for root in read | written for other in writers[root]})
        needs[-1].update(other for root in written for other in readers[root])
        for root in read - written:
            readers[root].append(k)
        for root in written:
            writers[root].append(k)
    orders = Orders(touched, needs, len(nbytes))
    sinks = [k for k, followers in enumerate(orders.followers) if not followers]
    others = orders.greedy(nbytes), orders.depth_first(sinks)
    return max(peak / min(orders.peak(other, nbytes) for other in others), 1.0)
