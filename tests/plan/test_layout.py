"""Placement of activations: against the live-bytes bound and a slow definition of validity."""

from __future__ import annotations

import pytest
from plan_graphs import CLASSICS, random_graph
from plan_support import FAST_DISK

from flexnn.graph.ir import Graph
from flexnn.plan.layout import PORTFOLIO, arena_for, fit, live_bytes, node_needs, place_activations
from flexnn.plan.profile import profile_graph
from flexnn.plan.types import Profile


def _profile(graph: Graph) -> Profile:
    return profile_graph(graph, threads=2, io_align=64, machine=FAST_DISK)


@pytest.mark.parametrize("name", CLASSICS)
def test_classics_reach_the_bound(name: str) -> None:
    profile = _profile(CLASSICS[name]())
    placement = place_activations(profile)
    needs = [sum(node_needs(profile, i, -1, 1)) for i in range(len(profile.nodes))]
    assert placement.arena_bytes_min == max(a + n for a, n in zip(live_bytes(profile), needs, strict=True))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("order", PORTFOLIO)
def test_no_two_live_activations_overlap(seed: int, order: str) -> None:
    profile = _profile(random_graph(seed))
    address = PORTFOLIO[order](profile, max(live_bytes(profile)))
    count = len(address)
    for i in range(count):
        assert address[i] >= 0
        for j in range(i):
            together = profile.first[i] <= profile.last[j] and profile.first[j] <= profile.last[i]
            low, high = (
                max(address[i], address[j]),
                min(address[i] + profile.root_bytes[i], address[j] + profile.root_bytes[j]),
            )
            assert not (together and low < high)


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
