"""Runs that are broken off because others take the reserve meanwhile: callers see nothing of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.planning import BudgetError
from flexnn.session import open_for_tests
from flexnn.system.limits import Limits
from flexnn.system.watcher import BrokenOff, Watcher
from tests.support.sessions import BRANCHED_FEED as FEED
from tests.support.sessions import branched_artifact
from tests.system.trees import MIB, Machine

MS = 1_000_000
RESERVE = 64 * MIB
READ_RATE = 4 * MIB
"""Bytes a second that weights are read at, so that runs take some 100 ms in small budgets."""


class System:
    """Memory that the system leaves, by the number of times that a run has looked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: Callable[[int], int] = lambda _: 1 << 30
        self.looks = 0
        monkeypatch.setattr(Limits, "free", lambda _: self.left(self.looks))
        monkeypatch.setattr(Limits, "at_once", lambda _: self.left(self.looks))
        monkeypatch.setattr(Limits, "pressed", lambda *_: False)
        monkeypatch.setattr(Limits, "whole", 1 << 30)
        look = Watcher.look_inside

        def counted(watcher: Watcher) -> None:
            self.looks += 1
            look(watcher)

        monkeypatch.setattr(Watcher, "look_inside", counted)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def at_every_step(session: flexnn.Session) -> None:
    """Have the session look in each run, before its first step is over, however short that is."""
    run = session._run.inner  # type: ignore[attr-defined]
    look, once = run.watch, run.run

    def looking(inputs: object, into: object = None) -> object:
        watcher = session._run.watcher  # type: ignore[attr-defined]
        if watcher is not None and run_watched[0]:
            watcher.look_inside()
        return once(inputs, into)

    run_watched = [True]

    def watched(function: Callable[[], None] | None) -> None:
        run_watched[0] = function is not None
        look(function)

    run.run, run.watch = looking, watched
    run.repeat = lambda _: None


@pytest.mark.parametrize("batch", [None, "n"], ids=["fixed", "open"])
def test_callers_see_nothing(
    batch: str | None, tmp_path: Path, system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flexnn")
    path = branched_artifact(tmp_path, **({"batch": batch} if batch else {}))
    with flexnn.Session(path, "auto:64MiB", 1, deterministic=True) as session:
        wanted = session.run(None, FEED)[0]
        before = session.memory
        at_every_step(session)
        at = system.looks
        system.left = lambda looks: RESERVE // 8 if looks == at + 1 else 1 << 30
        np.testing.assert_array_equal(session.run(None, FEED)[0], wanted)
        assert system.looks >= at + 2, "broken off once, and run again"
        assert before is not None
        assert session.memory is not None
        assert session.memory < before or batch, "one of open shapes asks for more at once, and there is"
        assert any("broken off" in line for line in caplog.messages)
        out = np.empty_like(wanted)
        at = system.looks
        system.left = lambda looks: RESERVE // 8 if looks == at + 1 else 1 << 30
        assert session.run(None, FEED, out=[out])[0] is out
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("batch", [None, "n"], ids=["fixed", "open"])
def test_the_smallest_budget_ends_it(batch: str | None, tmp_path: Path, system: System) -> None:
    """Nothing is left for long: the run takes the least and is not broken off any more."""
    path = branched_artifact(tmp_path, **({"batch": batch} if batch else {}))
    with flexnn.Session(path, "auto:64MiB", 1, deterministic=True) as session:
        wanted = session.run(None, FEED)[0]
        at_every_step(session)
        at = system.looks
        system.left = lambda looks: 0 if looks > at else 1 << 30
        np.testing.assert_array_equal(session.run(None, FEED)[0], wanted)
        assert session.memory is not None
        assert session.memory <= RESERVE


def test_a_run_is_broken_off_in_the_middle(tmp_path: Path, system: System) -> None:
    """The engine itself looks, every 20 ms of a run that reads slowly."""
    path = branched_artifact(tmp_path)
    least = flexnn.plan(path, threads=1).minimum_memory
    session = open_for_tests(path, least, 1, read_bytes_per_second=READ_RATE)
    try:
        wanted = session.run(None, FEED)[0]
        looks = []

        def look() -> None:
            looks.append(1)
            raise BrokenOff

        session._run.watch(look)
        with pytest.raises(BrokenOff):
            session.run(None, FEED)
        assert looks == [1]
        session._run.watch(None)
        np.testing.assert_array_equal(session.run(None, FEED)[0], wanted)
        session._run.watch(lambda: looks.append(1))
        session._run.give_back()
        engine_bytes = session.statistics()["engine_bytes"]
        np.testing.assert_array_equal(session.run(None, FEED)[0], wanted)
        assert len(looks) > 1
        assert session.statistics()["engine_bytes"] > engine_bytes
    finally:
        session.close()


class Held:
    """A session that holds all that it may, in a group with others."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder, "0::/box", 2 << 30)
        self.memory, self.now, self.others = 80 * MIB, 1000 * MS, 0
        self.write()
        self.watcher = Watcher(self, Limits(str(folder)), 16 * MIB, grows=False, clock=lambda: self.now)
        self.watcher.opened(self.memory)

    def write(self) -> None:
        self.machine.set_v2("/box", 128 * MIB, self.memory + self.others)

    @property
    def session_bytes(self) -> int:
        return self.memory

    def rebudget(self, memory: int | None) -> None:
        assert memory is not None
        if memory < 8 * MIB:
            raise BudgetError(8 * MIB, memory)
        self.memory = memory


def test_when_a_run_is_broken_off(tmp_path: Path) -> None:
    """128 MiB, reserve 16: others that take 4 MiB each 20 ms leave more than 8 when the run ends."""
    held = Held(tmp_path)
    with pytest.raises(BrokenOff):
        for _ in range(16):
            held.watcher.look_inside()
            held.now += 20 * MS
            held.others += 4 * MIB
            held.write()
    assert 8 * MIB <= 128 * MIB - held.memory - held.others < 16 * MIB
    before = held.memory
    held.machine.set_v2("/box", 128 * MIB, held.others)
    held.watcher.broken_off(is_last=False)
    assert 8 * MIB < held.memory <= before - 8 * MIB
    held.watcher.broken_off(is_last=True)
    assert held.memory == 8 * MIB
    held.others = 128 * MIB
    held.write()
    held.now += 20 * MS
    held.watcher.look_inside()  # there is nothing more to give back


def test_a_slow_taker_breaks_nothing_off(tmp_path: Path) -> None:
    held = Held(tmp_path)
    held.others = 32 * MIB
    for _ in range(100):  # 10 MiB in 2 s
        held.write()
        held.watcher.look_inside()
        held.now += 20 * MS
        held.others += MIB // 10
