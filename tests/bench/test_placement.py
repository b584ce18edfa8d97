"""The table of placements: what it counts, and that the search is at the bound."""

from __future__ import annotations

import pytest

from bench.models.zoo import ZOO, make
from bench.planner.placement import blocks_of, shaped
from flexnn.planning.layout import STRATEGIES


@pytest.mark.parametrize("name", ZOO)
def test_the_search_reaches_the_bound_on_every_network(name: str) -> None:
    net = make(name, small=True)
    blocks = blocks_of(shaped(net))
    assert len(blocks) >= len(net.nodes) - len(net.outputs)
    assert blocks.top(STRATEGIES["search"](blocks)) <= 1.01 * blocks.bound
