"""When a budget that follows the system changes, on a made-up machine and a made-up clock."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flexnn.planning import BudgetError
from flexnn.system.limits import Limits
from flexnn.system.watcher import CALM_MOST_NS, CALM_NS, Watcher
from tests.system.trees import MIB, PRESSURE, Machine

MS = 1_000_000
LIMIT, RESERVE = 128 * MIB, 16 * MIB
BESIDE = 30 * MIB
"""Bytes that the process has beside the session."""
BACK = 73 * MIB
"""Bytes that are held when it is back: less than a sixteenth is free beside the reserve and a quarter of it."""
SMALLEST, LARGEST = 8 * MIB, 90 * MIB


class World:
    """A session in a control group with another process, and a clock."""

    def __init__(self, folder: Path, *, grows: bool = False) -> None:
        self.machine = Machine(folder, "0::/box", 2 << 30)
        self.now, self.others, self.memory, self.changes = 1000 * MS, 0, 80 * MIB, 0
        self.held = 80 * MIB
        self._set()
        self.watcher = Watcher(self, Limits(str(folder)), RESERVE, grows=grows, clock=lambda: self.now)
        self.watcher.opened(self.held)

    def _set(self) -> None:
        self.machine.write("sys/fs/cgroup/box/memory.current", BESIDE + self.held + self.others)

    @property
    def session_bytes(self) -> int:
        return self.held

    @property
    def free(self) -> int:
        return LIMIT - BESIDE - self.held - self.others

    def rebudget(self, memory: int | None) -> None:
        assert memory is not None
        if memory < SMALLEST:
            raise BudgetError(SMALLEST, memory)
        self.memory, self.held = memory, min(memory, LARGEST)
        self.changes += 1

    def runs(self, count: int = 1, run_ms: int = 10) -> None:
        for _ in range(count):
            self._set()
            self.watcher.check()
            self.now += run_ms * MS
            self.watcher.ran(run_ms * MS)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.machine.set_v2("/box", LIMIT, BESIDE + made.held)
    made.watcher = Watcher(made, Limits(str(tmp_path)), RESERVE, grows=False, clock=lambda: made.now)
    made.watcher.opened(made.held)
    return made


def test_it_gives_back_before_the_next_run(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flexnn")
    world.runs(5)
    assert world.changes == 0
    world.others = 4 * MIB
    world.runs()
    assert world.changes == 1
    assert world.free >= RESERVE
    assert len(caplog.messages) == 1
    assert "budget 80.00MiB -> " in caplog.messages[0]
    assert "14.00MiB left up to the control group's limit of 128 MiB" in caplog.messages[0]
    world.runs(5)
    assert len(caplog.messages) == 1


def test_others_take_in_steps(world: World) -> None:
    """4 MiB each 20 ms: whenever a run begins, the reserve is free, or the session is at its smallest."""
    for _ in range(16):
        world.others += 4 * MIB
        world.runs(2)
        assert world.free >= RESERVE or world.held == SMALLEST
    assert world.changes <= 8, "each change makes room for several steps"


def test_it_never_goes_below_what_the_model_needs(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flexnn")
    world.others = 100 * MIB
    world.runs(50)
    assert world.held == world.memory == SMALLEST
    assert world.changes == 1
    assert "needs 8.00MiB at least" in caplog.messages[-1]


def test_it_comes_back_after_a_calm_time(world: World) -> None:
    world.others = 40 * MIB
    world.runs(100)
    low = world.held
    assert low <= 42 * MIB
    world.others = 0
    freed = world.now
    while world.held < BACK:
        assert world.held == low or world.now - freed >= CALM_NS
        world.runs()
        assert world.now - freed < 10 * CALM_NS
    assert world.free >= RESERVE
    count = world.changes
    world.runs(300)
    assert world.changes == count, "no change is left to make"


def test_growth_taken_back_soon_waits_longer(world: World) -> None:
    for _ in range(12):
        world.others = 60 * MIB
        world.runs(30)
        world.others = 0
        world.runs(40)
    assert world.changes <= 20
    world.runs(2 * CALM_MOST_NS // (10 * MS))
    assert world.held >= BACK


def test_what_grows_by_itself_has_its_budget_lowered(tmp_path: Path) -> None:
    """A session of open shapes may take all of its budget at the next shape."""
    world = World(tmp_path, grows=True)
    world.machine.set_v2("/box", LIMIT, BESIDE + 20 * MIB)
    world.held = 20 * MIB
    world.watcher = Watcher(world, Limits(str(tmp_path)), RESERVE, grows=True, clock=lambda: world.now)
    world.watcher.opened(world.held)
    world.memory = 62 * MIB
    world.others = 20 * MIB
    world.runs()
    assert world.memory <= 20 * MIB + 58 * MIB - RESERVE
    world.held = 12 * MIB
    assert not world.watcher.gives(80 * MIB)
    world.others = 0
    world._set()
    assert world.watcher.gives(60 * MIB)
    assert world.memory >= 60 * MIB


def test_pressure_shrinks_a_few_times(world: World) -> None:
    world.runs(20)
    total, held = 0, [world.held]
    for _ in range(10):
        for _ in range(20):
            total += 20_000
            world.machine.write("sys/fs/cgroup/box/memory.pressure", PRESSURE.format(total))
            world.runs(10)
        held.append(world.held)
    assert world.changes == 3, "pressure that stays is not of this process"
    assert world.held == held[0] - 3 * RESERVE
    world.runs(1500)
    assert world.held >= BACK


def test_a_look_reads_little(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at once for each ms, a whole one for some."""
    world.machine.set_v2("/box", 8 * LIMIT, BESIDE + world.held)
    looks = {"free": 0, "at_once": 0}
    for name in looks:
        real = getattr(Limits, name)

        def counted(self: Limits, name: str = name, real: object = real) -> int:
            looks[name] += 1
            return real(self)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(Limits, name, counted)
    for _ in range(10_000):
        world.watcher.check()
        world.now += MS // 100
    assert looks["free"] <= 6
    assert looks["at_once"] <= 100
