"""Orders of nodes: live bytes are those of a walk, and an order that keeps more alive than another is told."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flexnn.graph.orders import Orders, excess


def walked(touched: list[list[int]], nodes: list[int], nbytes: list[int]) -> int:
    """Most bytes alive, node by node."""
    most = 0
    for at in range(len(nodes)):
        before = {g for k in nodes[: at + 1] for g in touched[k]}
        after = {g for k in nodes[at:] for g in touched[k]}
        most = max(most, sum(nbytes[g] for g in before & after))
    return most


@pytest.mark.parametrize("seed", range(20))
def test_peaks_are_those_of_a_walk(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 12)
    needs = [sorted(rng.sample(range(k), rng.randint(0, min(k, 2)))) for k in range(count)]
    touched = [[*needs[k], k] for k in range(count)]
    nbytes = [rng.choice([0, 1, 5, 40]) for _ in range(count)]
    orders, sizes = Orders(touched, needs, count), np.array(nbytes)
    sinks = [k for k in range(count) if not orders.followers[k]]
    for nodes in (orders.own, orders.greedy(sizes), orders.depth_first(sinks)):
        assert sorted(nodes) == orders.own
        assert all(nodes.index(other) < nodes.index(k) for k in range(count) for other in needs[k])
        assert orders.peak(nodes, sizes) == walked(touched, nodes, nbytes)
        assert orders.widest(sizes) <= orders.peak(nodes, sizes)


def test_an_order_that_keeps_more_alive_is_told() -> None:
    """Two large maps that are each made small: both are made first, or one after the other."""
    both = [([0], [1]), ([0], [2]), ([1], [3]), ([2], [4]), ([3, 4], [5])]
    each = [both[i] for i in (0, 2, 1, 3, 4)]
    roots, sizes = list(range(6)), np.array([0, 100, 100, 1, 1, 0])
    assert excess(each, roots, sizes) == 1
    assert excess(both, roots, sizes) == 201 / 102
    assert excess(both, roots, np.array([0, 1, 1, 1, 1, 0])) == 1


def test_what_is_written_in_place_waits_for_its_readers() -> None:
    """A node that touches the same storage does not overtake another one that writes it."""
    nodes = [([0], [1]), ([1], [2]), ([1], [3]), ([2, 3], [4])]
    roots = [0, 1, 2, 1, 4]  # the third writes what the second reads
    assert excess(nodes, roots, np.array([0, 100, 1, 0, 0])) == 1
