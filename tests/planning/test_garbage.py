"""Planning a large graph does not collect garbage, and the collector goes on afterwards, whatever happened."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from flexnn.graph.ir import Graph, Node
from flexnn.planning import garbage
from flexnn.planning.garbage import Uncollected


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def graph_of(nodes: int) -> Graph:
    graph = Graph()
    graph.nodes = [Node("unary", [], 0, {})] * nodes
    return graph


def test_large_graphs_pause_it() -> None:
    with Uncollected(graph_of(garbage.NODES - 1)):
        assert gc.isenabled()
    with pytest.raises(ValueError, match="planning"), Uncollected(graph_of(garbage.NODES)):
        assert not gc.isenabled()
        raise ValueError("planning")
    assert gc.isenabled()


def test_who_disabled_it_keeps_it_so() -> None:
    gc.disable()
    with Uncollected(graph_of(garbage.NODES)):
        pass
    assert not gc.isenabled()


def test_an_interrupt_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    again: list[str] = []
    monkeypatch.setattr(gc, "disable", interrupted)
    monkeypatch.setattr(gc, "enable", lambda: again.append("enabled"))
    with pytest.raises(KeyboardInterrupt), Uncollected(graph_of(garbage.NODES)):
        pass
    assert again == ["enabled"]
