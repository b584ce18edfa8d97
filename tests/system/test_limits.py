"""Memory that a process may still take, read from made-up machines: control groups of both versions, nested,
MemAvailable, RLIMIT_AS, pressure.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from flexnn import _core
from flexnn.system.asked import RESERVE_LEAST, asked, find, take
from flexnn.system.groups import NO_LIMIT
from flexnn.system.limits import Limits
from tests.support.descriptors import descriptors
from tests.system.trees import MIB, PRESSURE, Machine

GIB = 1 << 30
MS = 1_000_000


def limits_of(machine: Machine) -> Limits:
    return Limits(str(machine.root))


def test_version_1_and_its_cache(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "4:memory:/box\n9:cpu:/x\n0::/", 2 * GIB)
    machine.set_v1("/box", 128 * MIB, 100 * MIB, cached=20 * MIB)
    limits = limits_of(machine)
    assert limits.at_once() == 28 * MIB
    assert limits.free() == 48 * MIB
    assert "limit of 128 MiB" in limits.tightest
    assert limits.whole == 128 * MIB


def test_version_2_and_its_cache(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/box", 2 * GIB)
    machine.set_v2("/box", 128 * MIB, 100 * MIB, cached=10 * MIB)
    assert limits_of(machine).free() == 48 * MIB, "pages read once, and half of those read again"
    machine.set_v2("/box", "max", 100 * MIB, high=110 * MIB)
    assert limits_of(machine).free() == 10 * MIB, "above memory.high the kernel slows the group down"


@pytest.mark.parametrize("inner", [96, 64])
def test_the_least_of_nested_groups(tmp_path: Path, inner: int) -> None:
    """The outer group has less left than the inner one's limit says, because others are in it."""
    machine = Machine(tmp_path, "0::/pod/box", 2 * GIB)
    machine.set_v2("", "max", 3 * GIB)
    machine.set_v2("/pod", 256 * MIB, 226 * MIB)
    machine.set_v2("/pod/box", inner * MIB, 50 * MIB)
    limits = limits_of(machine)
    assert limits.free() == min(30, inner - 50) * MIB
    assert limits.whole == inner * MIB
    other = Machine(tmp_path / "v1", "4:memory:/pod/box", 2 * GIB)
    other.set_v1("/pod", 256 * MIB, 226 * MIB)
    other.set_v1("/pod/box", inner * MIB, 50 * MIB)
    assert limits_of(other).free() == min(30, inner - 50) * MIB


def test_a_container_sees_its_group_as_the_top(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "4:memory:/docker/0123", 2 * GIB)
    machine.set_v1("", 100 * MIB, 40 * MIB)
    assert limits_of(machine).free() == 60 * MIB


def test_the_system_and_a_limit_that_moves(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/box", 50 * MIB)
    machine.set_v2("/box", 128 * MIB, 28 * MIB)
    limits = limits_of(machine)
    assert limits.free() == 50 * MIB
    assert "system" in limits.tightest
    machine.set_available(GIB)
    assert limits.free() == 100 * MIB
    machine.set_v2("/box", 64 * MIB, 28 * MIB)
    assert limits.free() == 36 * MIB
    assert limits.whole == 64 * MIB


def test_the_address_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "", GIB, resident=10 * MIB)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64 * MIB, 64 * MIB))
    limits = limits_of(machine)
    assert limits.free() == 64 * MIB - 10 * MIB - 100 * 4096
    assert limits.tightest == "up to RLIMIT_AS"
    assert limits.resident() == 10 * MIB


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    limits = Limits(str(tmp_path / "nothing"))
    assert limits.free() >= NO_LIMIT
    assert limits.resident() == 0
    assert not limits.pressed(MS, 0)
    limits.close()
    assert limits.at_once() == NO_LIMIT


def test_pressure_stalls_of_the_group(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/box", GIB)
    machine.set_v2("/box", 128 * MIB, 28 * MIB)
    limits = limits_of(machine)
    assert not limits.pressed(1000 * MS, 16 * MIB)
    machine.write("sys/fs/cgroup/box/memory.pressure", PRESSURE.format(5_000))
    assert not limits.pressed(1200 * MS, 16 * MIB), "5 of 200 ms"
    machine.write("sys/fs/cgroup/box/memory.pressure", PRESSURE.format(45_000))
    assert not limits.pressed(1250 * MS, 16 * MIB), "too soon to tell"
    assert limits.pressed(1400 * MS, 16 * MIB), "40 of 200 ms"
    assert not limits.pressed(1600 * MS, 16 * MIB)


def test_pressure_of_the_system_counts_where_its_memory_is_short(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "", 3 * GIB)
    limits = limits_of(machine)
    assert not limits.pressed(1000 * MS, 16 * MIB)
    machine.write("proc/pressure/memory", PRESSURE.format(150_000))
    assert not limits.pressed(1200 * MS, 16 * MIB), "some group may have met a limit of its own"
    machine.set_available(100 * MIB)
    machine.write("proc/pressure/memory", PRESSURE.format(300_000))
    assert limits.pressed(1400 * MS, 16 * MIB)


@pytest.mark.parametrize("cached", [4, 64])
def test_meeting_the_limit(tmp_path: Path, cached: int) -> None:
    """With page cache to take back it is no sign of anything: files that are read fill any group."""
    machine = Machine(tmp_path, "0::/box", GIB)
    machine.set_v2("/box", 128 * MIB, 120 * MIB, cached=cached * MIB // 2)
    limits = limits_of(machine)
    assert not limits.pressed(1000 * MS, 16 * MIB)
    machine.write("sys/fs/cgroup/box/memory.events", "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\n")
    assert limits.pressed(1200 * MS, 16 * MIB) == (cached == 4)
    other = Machine(tmp_path / "v1", "4:memory:/box", GIB)
    other.set_v1("/box", 128 * MIB, 120 * MIB, cached=cached * MIB)
    limits = limits_of(other)
    assert not limits.pressed(1000 * MS, 16 * MIB)
    other.write("sys/fs/cgroup/memory/box/memory.failcnt", 9)
    assert limits.pressed(1200 * MS, 16 * MIB) == (cached == 4)


def test_what_a_budget_asks_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/box", 2 * GIB)
    machine.set_v2("/box", 128 * MIB, 28 * MIB)
    limits = limits_of(machine)
    assert find("50%", limits) == (50 * MIB, None)
    assert find("50%", limits, held=20 * MIB) == (60 * MIB, None)
    assert find("auto", limits) == (84 * MIB, RESERVE_LEAST)
    assert find("auto:8MiB", limits) == (92 * MIB, 8 * MIB)
    machine.set_v2("/box", 1000 * MIB, 28 * MIB)
    assert find("auto", limits_of(machine)) == (872 * MIB, 100 * MIB)
    machine.set_v2("/box", 30 * MIB, 28 * MIB)
    refused = find("auto", limits_of(machine))
    assert refused == (1, RESERVE_LEAST), "refused when the session opens, with what it needs"


@pytest.mark.parametrize("text", ["0%", "101%", "x%", "-1%", "nan%", "automatic", "auto:", "auto:x", "auto:0"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|out of range"):
        asked(text)


@pytest.mark.parametrize("number", range(8))
def test_what_cannot_be_opened_is_no_limit_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Without descriptors left, nothing was limited."""
    machine = Machine(tmp_path, "0::/box", 2 * GIB)
    machine.set_v2("/box", 128 * MIB, 100 * MIB)
    opened, before, real = [], descriptors(), _core.OpenFile

    def fails(path: str, flags: int) -> _core.OpenFile:
        opened.append(path)
        if len(opened) > number:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags)

    monkeypatch.setattr(_core, "OpenFile", fails)
    with pytest.raises(OSError, match="Too many"):
        limits_of(machine)
    with pytest.raises(OSError, match="Too many"):
        take("auto", lambda _: pytest.fail("given before all is open"))
    assert opened
    assert descriptors() == before


def test_a_read_that_fails_says_what_the_last_one_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "0::/box", 2 * GIB)
    machine.set_v2("/box", 128 * MIB, 100 * MIB)
    limits = limits_of(machine)
    free, whole = limits.free(), limits.whole

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fails)
    assert (limits.free(), limits.whole, limits.at_once()) == (free, whole, 28 * MIB)
