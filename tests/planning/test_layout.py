"""Placement at fixed times: against the live-bytes bound, exhaustive truth, and a slow definition of validity."""

from __future__ import annotations

import csv
import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.planning import Setting
from flexnn.planning.costs import graph_costs
from flexnn.planning.layout import (
    STRATEGIES,
    Blocks,
    activations,
    arena_for,
    fit,
    node_needs,
    place_activations,
    search,
)
from flexnn.planning.layout import gaps as layout_gaps
from flexnn.planning.layout.gaps import gaps_of
from flexnn.planning.layout.strategies import ORDERS, place_by_time, place_in_order, portfolio
from flexnn.planning.types import Costs
from tests.support.plan_graphs import CLASSICS, random_graph
from tests.support.plans import FAST_DISK

INSTANCES = sorted((Path(__file__).parents[1] / "data" / "minimalloc").glob("*.csv"))
REFUSED = r"placement|blocks|integers|hangs"
CAPACITY = 1 << 20
"""Stated by the names of the instances' files."""


def _costs(graph: Graph) -> Costs:
    return graph_costs(graph, Setting(FAST_DISK, threads=2))


def _overlaps(blocks: Blocks, address: np.ndarray) -> bool:
    for i, j in itertools.combinations(range(len(blocks)), 2):
        together = blocks.first[i] <= blocks.last[j] and blocks.first[j] <= blocks.last[i]
        low, high = max(address[i], address[j]), min(address[i] + blocks.sizes[i], address[j] + blocks.sizes[j])
        if together and low < high:
            return True
    return False


def _random_blocks(rng: random.Random, count: int, times: int, size_max: int) -> Blocks:
    first = [rng.randrange(times) for _ in range(count)]
    last = [min(t + int(rng.expovariate(0.4)), times - 1) for t in first]
    return Blocks.of([rng.randint(1, size_max) for _ in range(count)], first, last)


@pytest.mark.parametrize("name", CLASSICS)
def test_classics_reach_the_bound(name: str) -> None:
    costs = _costs(CLASSICS[name]())
    placement = place_activations(costs)[0]
    needs = [sum(node_needs(costs, i, -1, 1)) for i in range(len(costs.nodes))]
    live = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).live(len(costs.nodes))
    assert placement.working_bytes_min == max(live + needs)


@pytest.mark.parametrize("seed", range(30))
def test_activations_leave_each_node_its_needs(seed: int) -> None:
    costs = _costs(random_graph(seed))
    blocks = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node)
    placements = place_activations(costs)
    assert len({tuple(placement.address) for placement in placements}) == len(placements)
    for placement in placements:
        address = np.array(placement.address, np.int64)
        assert not (address < 0).any()
        assert not _overlaps(blocks, address)
        assert blocks.top(address) <= placement.working_bytes_min <= placements[0].working_bytes_min
        for node in range(len(costs.nodes)):
            gaps = placement.gaps_at(node)
            alive = [i for i in range(len(blocks)) if blocks.first[i] <= node <= blocks.last[i]]
            for start, end in gaps:
                assert not any(address[i] < end and address[i] + blocks.sizes[i] > start for i in alive)
            assert fit(gaps, placement.tight_bytes[node], node_needs(costs, node, -1, 1)) is not None
            assert placement.tight_bytes[node] <= placement.working_bytes_min


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", STRATEGIES)
def test_no_two_live_blocks_overlap(name: str, seed: int) -> None:
    rng = random.Random(seed)
    blocks = _random_blocks(rng, rng.randint(0, 40), rng.randint(1, 30), 1000)
    address = STRATEGIES[name](blocks)
    assert not (address < 0).any()
    assert not _overlaps(blocks, address)
    assert blocks.top(address) >= blocks.bound
    assert blocks.top(address) <= blocks.top(STRATEGIES["naive"](blocks)) == blocks.sizes.sum()
    assert blocks.top(STRATEGIES["search"](blocks)) <= blocks.top(address)


def _full_blocks(rng: random.Random, times: int, capacity: int) -> Blocks:
    """Blocks that fill ``capacity`` bytes at every moment."""
    rows: list[tuple[int, int, int]] = []
    for moment in range(times):
        left = capacity - sum(size for size, first, last in rows if first <= moment <= last)
        while left:
            size = rng.randint(1, min(left, 3))
            left -= size
            rows.append((size, moment, min(moment + rng.randint(0, 3), times - 1)))
    return Blocks.of(*(list(column) for column in zip(*rows, strict=True)))


def _fits(blocks: Blocks, capacity: int) -> bool:
    """The truth, slowly: every address of every block, in the order of time."""
    order = sorted(range(len(blocks)), key=lambda i: (blocks.first[i], -blocks.sizes[i]))
    address = [0] * len(blocks)

    def place(k: int) -> bool:
        if k == len(order):
            return True
        size = int(blocks.sizes[order[k]])
        rivals = [j for j in order[:k] if blocks.last[j] >= blocks.first[order[k]]]
        for at in range(capacity - size + 1):
            if all(at >= address[j] + blocks.sizes[j] or at + size <= address[j] for j in rivals):
                address[order[k]] = at
                if place(k + 1):
                    return True
        return False

    return place(0)


# 24 blocks that fill 8 bytes at every moment and do not fit into 8.
NOT_AT_THE_BOUND = Blocks.of(
    [1, 2, 1, 1, 3, 2, 1, 3, 2, 1, 3, 2, 2, 1, 1, 1, 2, 2, 2, 2, 3, 1, 1, 3],
    [0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11],
    [1, 2, 1, 1, 0, 4, 2, 5, 4, 4, 7, 6, 8, 8, 8, 7, 10, 9, 9, 10, 11, 11, 11, 11],
)


@pytest.mark.parametrize("seed", range(-1, 60))
def test_search_finds_the_optimum_and_proves_it(seed: int) -> None:
    blocks = NOT_AT_THE_BOUND if seed < 0 else _full_blocks(random.Random(seed), 3 + seed % 6, 4 + seed % 5)
    found = search(blocks, 10**6, beside=1 << 20)
    assert found.lower == found.top == blocks.bound + (seed < 0)
    assert not _overlaps(blocks, found.address)
    for capacity in (found.top, found.top - 1):
        address = np.empty(len(blocks), np.int64)
        args = blocks.sizes, blocks.first, blocks.last, capacity, 10**6, address
        outcome, _ = _core.place_search(*args)
        assert (outcome == "some") == (capacity == found.top) == _fits(blocks, capacity)
        assert outcome != "unknown"
        assert outcome == "none" or (blocks.top(address) <= capacity and not _overlaps(blocks, address))


def test_search_takes_no_more_than_it_places() -> None:
    """Hundreds of blocks of a megabyte and a half are searched, which was refused; of a few kilobytes they are not."""
    rng = random.Random(5)
    first = [block // 3 for block in range(300)]
    last = [begin + rng.randrange(4) for begin in first]
    sizes = [rng.randrange(1, 60) for _ in first]
    small, large = (Blocks.of([size << shift for size in sizes], first, last) for shift in (6, 12))
    assert min(large.top(address) for address in portfolio(large)) > large.bound
    found = search(large)
    assert found.top == large.bound
    assert found.nodes > 0
    assert not _overlaps(large, found.address)
    assert search(small).nodes == 0


def test_search_gives_up_where_it_is_told() -> None:
    blocks = _instance(INSTANCES[0])
    address = np.empty(len(blocks), np.int64)
    args = blocks.sizes, blocks.first, blocks.last, CAPACITY
    assert _core.place_search(*args, 100, address) == ("unknown", 100)
    assert search(blocks, 500).nodes <= 500
    first, nodes = _core.place_search(*args, 10**6, address)
    again = np.empty_like(address)
    assert (first, nodes) == _core.place_search(*args, 10**6, again) == ("some", nodes)
    assert (address == again).all()


def _instance(path: Path) -> Blocks:
    with path.open() as file:
        rows = [(int(r["size"]), int(r["lower"]), int(r["upper"]) - 1) for r in csv.DictReader(file)]
    return Blocks.of(*(list(column) for column in zip(*rows, strict=True)))


@pytest.mark.parametrize("path", INSTANCES, ids=lambda p: p.name[0])
def test_the_hard_instances_fit(path: Path) -> None:
    blocks = _instance(path)
    address = np.empty(len(blocks), np.int64)
    # Nodes, not seconds, so that a busy machine fails nothing: 300,000 are about 3 s, the slowest needs 100,000.
    outcome, _ = _core.place_search(blocks.sizes, blocks.first, blocks.last, CAPACITY, 300_000, address)
    assert outcome == "some"
    assert blocks.top(address) <= CAPACITY
    assert not _overlaps(blocks, address)


def test_there_are_eleven_instances() -> None:
    assert [path.name[0] for path in INSTANCES] == list("ABCDEFGHIJK")


def test_hostile_arguments_are_refused() -> None:
    def blocks(sizes: list[int], first: list[int], last: list[int]) -> tuple[np.ndarray, ...]:
        b = Blocks.of(sizes, first, last)
        return b.sizes, b.first, b.last

    address, order = np.zeros(2, np.int64), np.array([0, 1], np.int32)
    good = blocks([1, 1], [0, 0], [1, 1])
    for bad in (
        blocks([1, 0], [0, 0], [1, 1]),
        blocks([1, -1], [0, 0], [1, 1]),
        blocks([1 << 60, 1 << 60], [0, 0], [1, 1]),
        blocks([1, 1], [0, 2], [1, 1]),
        blocks([1, 1], [-1, 0], [1, 1]),
        (*good[:2], good[2][:1]),
        (good[0], good[1].astype(np.int64), good[2]),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            _core.place_in_order(*bad, order, address)
        with pytest.raises(ValueError, match=REFUSED):
            _core.place_search(*bad, 10, 10, address)
    for wrong in ([0, 0], [0, 2], [-1, 0], [0]):
        with pytest.raises(ValueError, match=REFUSED):
            _core.place_in_order(*good, np.array(wrong, np.int32), address)
    with pytest.raises(ValueError, match=REFUSED):
        _core.place_in_order(*good, order, address[:1])
    with pytest.raises(ValueError, match=REFUSED):
        _core.place_in_order(*good, order, address, hangs=np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match=REFUSED):
        _core.place_search(*good, -1, 10, address)


def test_fit_takes_the_smallest_gap() -> None:
    gaps = [(0, 100), (200, 260), (300, 300)]
    assert fit(gaps, 300, [50]) == ([200], [(0, 100), (250, 260), (300, 300)])
    assert fit(gaps, 300, [100, 60]) == ([0, 200], [(100, 100), (260, 260), (300, 300)])
    assert fit(gaps, 300, [101]) is None
    assert fit(gaps, 401, [101]) == ([300], [(0, 100), (200, 260), (401, 401)])


def test_arena_for_is_the_least() -> None:
    gaps = [(0, 100), (300, 300)]
    assert arena_for(gaps, []) == 300
    assert arena_for(gaps, [80]) == 300
    assert arena_for(gaps, [101]) == 401
    assert arena_for(gaps, [120, 90]) == 420
    for sizes in ([120, 90], [101], [70, 70, 30]):
        least = arena_for(gaps, sizes)
        assert fit(gaps, least, sizes) is not None
        assert fit(gaps, least - 1, sizes) is None


def _slow_hole(blocks: Blocks, address: np.ndarray, placed: list[int], i: int, *, first_fit: bool) -> int:
    """Address of block ``i`` between those that are placed, by definition."""
    together = [j for j in placed if blocks.first[j] <= blocks.last[i] and blocks.first[i] <= blocks.last[j]]
    top, best, slack = 0, -1, 1 << 62
    for j in sorted(together, key=lambda j: address[j]):
        left = int(address[j]) - top - int(blocks.sizes[i])
        if left >= 0 and (best < 0 if first_fit else left < slack):
            best, slack = top, left
        top = max(top, int(address[j] + blocks.sizes[j]))
    return best if best >= 0 else top


@pytest.mark.parametrize("seed", range(40))
def test_orders_place_as_they_are_defined(seed: int) -> None:
    rng = random.Random(seed)
    blocks = _random_blocks(rng, rng.randint(0, 60), rng.choice((5, 40, 200)), 50)
    first_fit = bool(seed % 2)
    for order in ORDERS.values():
        sequence, placed = order(blocks), list[int]()
        address = place_in_order(blocks, sequence, first_fit=first_fit)
        for i in sequence.tolist():
            assert address[i] == _slow_hole(blocks, address, placed, i, first_fit=first_fit)
            placed.append(i)
    assert (place_by_time(blocks) == place_in_order(blocks, ORDERS["sequential"](blocks))).all()
    pairs = itertools.combinations(range(len(blocks)), 2)
    assert blocks.pairs == sum(
        bool(blocks.first[i] <= blocks.last[j] and blocks.first[j] <= blocks.last[i]) for i, j in pairs
    )


@pytest.mark.parametrize("seed", range(40))
def test_gaps_are_what_no_block_takes(seed: int) -> None:
    rng = random.Random(seed)
    times = rng.choice((1, 5, 40))
    blocks = _random_blocks(rng, rng.randint(0, 60), times, 50)
    address = place_in_order(blocks, ORDERS["large first"](blocks))
    found, first, top = gaps_of(blocks, address, times)
    for moment in range(times):
        alive = [i for i in range(len(blocks)) if blocks.first[i] <= moment <= blocks.last[i]]
        taken = {int(at) for i in alive for at in range(address[i], address[i] + blocks.sizes[i])}
        assert top[moment] == max(taken, default=-1) + 1
        gaps = found[first[moment] : first[moment + 1]].tolist()
        assert {at for start, end in gaps for at in range(start, end)} == set(range(top[moment])) - taken
        assert all(a[1] < b[0] for a, b in itertools.pairwise(gaps))


def test_many_gaps_are_the_largest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_gaps, "GAPS_MIN", 2)
    monkeypatch.setattr(layout_gaps, "GAPS", 0)
    blocks = Blocks.of([10] * 5, [0] * 5, [0] * 5)
    found, first, top = gaps_of(blocks, np.array([5, 30, 41, 60, 100], np.int64), 1)
    assert found.tolist() == [(15, 30), (70, 100)]
    assert (first.tolist(), top.tolist()) == ([0, 2], [110])


def test_blocks_that_meet_have_no_gaps() -> None:
    with pytest.raises(ValueError, match="placement"):
        gaps_of(Blocks.of([10, 10], [0, 0], [1, 1]), np.array([0, 5], np.int64), 2)


def test_dense_graphs_are_placed_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = _costs(random_graph(3))
    monkeypatch.setattr(activations, "DENSE", 0)
    (placement,) = place_activations(costs)
    blocks = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node)
    assert placement.address == place_by_time(blocks).tolist()
    assert not _overlaps(blocks, np.array(placement.address))
