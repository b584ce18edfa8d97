"""Nothing is collected while a large graph is read, compiled or planned; the collector goes on, whatever happened."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from flexnn import garbage
from flexnn.garbage import Uncollected


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_large_graphs_pause_it() -> None:
    with Uncollected(garbage.NODES - 1):
        assert gc.isenabled()
    with pytest.raises(ValueError, match="planning"), Uncollected(garbage.NODES):
        assert not gc.isenabled()
        raise ValueError("planning")
    assert gc.isenabled()


def test_who_disabled_it_keeps_it_so() -> None:
    gc.disable()
    with Uncollected(garbage.NODES):
        pass
    assert not gc.isenabled()


def test_an_interrupt_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    again: list[str] = []
    monkeypatch.setattr(gc, "disable", interrupted)
    monkeypatch.setattr(gc, "enable", lambda: again.append("enabled"))
    with pytest.raises(KeyboardInterrupt), Uncollected(garbage.NODES):
        pass
    assert again == ["enabled"]
