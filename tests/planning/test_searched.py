"""Searches for bands that take what others have found."""

from __future__ import annotations

import pytest

from flexnn.planning import Setting, band_search, bands
from flexnn.planning.band_search import COSTS_MAX, Search, Searched, found_in
from flexnn.planning.costs import graph_costs
from flexnn.planning.planner import Planner
from tests.support.plan_graphs import CLASSICS
from tests.support.plans import FAST_DISK

SETTING = Setting(FAST_DISK, threads=2)


@pytest.mark.parametrize("name", ["mobilenet_v2", "squeezenet1_1", "vgg19"])
def test_a_search_that_may_repeat_more_finds_the_same_as_one_alone(name: str) -> None:
    graph = CLASSICS[name]()
    costs = graph_costs(graph, SETTING)
    tables = bands.Ways(graph, costs, lambda g: graph_costs(g, SETTING)).at(0).tables
    alone = [found for cost in COSTS_MAX for found in Search(tables, cost).all()]
    together = list(found_in(tables))
    told = {(found.nbytes, found.work): found for found in reversed(alone)}
    assert len(together) == len(told)
    assert all(told[found.nbytes, found.work].regions == found.regions for found in together)


def test_two_planners_search_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, searched = CLASSICS["mobilenet_v2"](), Searched()
    first = Planner(graph, SETTING, searched=searched)
    least, plan = first.minimum, first.plan(first.minimum * 5 // 4)
    monkeypatch.setattr(band_search, "found_in", None)
    again = Planner(graph, SETTING, searched=searched)
    assert again.minimum == least
    assert again.plan(least * 5 // 4).predicted_ms == plan.predicted_ms
    with pytest.raises(TypeError):
        Planner(graph, SETTING).plan(least)
