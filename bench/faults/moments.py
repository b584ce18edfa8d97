"""Interrupts at chosen moments, by a process beside this one, and how late they are without what other programs take.

A timer of this process would not do: a signal waits while the interpreter is inside a long call, and a thread that is
ready waits for a CPU while other programs have it. So the process beside says when it sent the signal, and how long the
threads of this one had waited for a CPU until then. It also looks on until the signal has done its work: where this
process is stopped, where the process beside, which only sleeps, is not woken either, or where another machine took the
CPU that this one is on, the machine stood still.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_MOMENT = struct.Struct("ddddd")
_UNSENT_S = 0.002
"""Longest that sending may take for a moment to count."""
_LOOK_S = 0.005
"""Time between two looks at the process that was interrupted."""
_WOKEN_S = 0.002
"""Longest that the system usually takes to wake a process that sleeps, beside its wait for a CPU."""


class InterruptError(Exception):
    """Exception that the handler raises, as Ctrl-C raises KeyboardInterrupt."""


class Times(NamedTuple):
    """Seconds of a process so far."""

    computed: float
    """Time that its first thread computed."""
    waited: float
    """Time that its first thread was ready and waited for a CPU."""
    others: float
    """Longest time that another thread waited so."""


class Taken(NamedTuple):
    """Time that an interrupt took."""

    ms: float
    """Milliseconds to the exception, without those in which threads of the process waited for a CPU; infinite where
    what was interrupted went on.
    """
    stood_ms: float
    """Milliseconds meanwhile in which the machine or the process stood still."""

    def stood(self, limit_ms: float) -> bool:
        """Return whether it is late only as something stood still."""
        return self.ms > limit_ms >= self.ms - self.stood_ms


def times_of(process: int) -> Times:
    """Return what the system has counted of a process's threads."""
    found: dict[int, list[float]] = {}
    for task in os.listdir(f"/proc/{process}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{process}/task/{task}/schedstat", encoding="ascii") as file:
            found[int(task)] = [int(number) / 1e9 for number in file.read().split()[:2]]
    computed, waited = found.pop(process)
    return Times(computed, waited, max((other for _, other in found.values()), default=0.0))


def late_s(took: float, before: Times, after: Times) -> float:
    """Return some seconds less those in which the first thread waited for a CPU or, while it slept, another one did."""
    waited = after.waited - before.waited
    slept = took - waited - (after.computed - before.computed)
    return max(took - waited - max(min(after.others - before.others, slept), 0.0), 0.0)


def is_stopped(process: int) -> bool:
    """Return whether a signal has stopped a process."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")


def stolen_s() -> float:
    """Return the seconds so far that other virtual machines took CPUs which this one wanted."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class Onlooker:
    """Looks at a process from another one, and counts the time in which it or both of them stood still."""

    def __init__(self, process: int) -> None:
        self._process, self._before, self._at = process, times_of(os.getpid()), time.monotonic()
        self._stolen, self.stood_s = stolen_s(), 0.0

    def look(self, pause_s: float) -> None:
        """Count the time since the last look, of which ``pause_s`` were slept at most."""
        now, times = time.monotonic(), times_of(os.getpid())
        took, idle = now - self._at, late_s(now - self._at, self._before, times)
        unwoken = idle - (times.computed - self._before.computed) - pause_s
        stolen = stolen_s()
        if is_stopped(self._process):
            self.stood_s += took
        elif unwoken > _WOKEN_S or stolen > self._stolen:
            self.stood_s += max(unwoken, stolen - self._stolen)
        self._before, self._at, self._stolen = times, now, stolen


class Interrupter:
    """A process that interrupts the one that made it. Make it before there are threads, and close it."""

    def __init__(self) -> None:
        self._is_armed = False
        asks, self._ask = os.pipe()
        self._told, tells = os.pipe()
        parent = os.getpid()
        self.process = os.fork()
        """The process beside."""
        if not self.process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(self._ask)
            with contextlib.suppress(BaseException):
                self._serve(parent, asks, tells)
            os._exit(0)
        os.close(asks)
        os.close(tells)
        signal.signal(signal.SIGALRM, self._stop)

    def _stop(self, *_: object) -> None:
        if self._is_armed:
            self._is_armed = False
            raise InterruptError

    @staticmethod
    def _serve(parent: int, asks: int, tells: int) -> None:
        poll = select.poll()
        poll.register(asks, select.POLLIN)
        while order := os.read(asks, 8):
            time.sleep(struct.unpack("d", order)[0])
            onlooker = Onlooker(parent)
            before, sent = times_of(parent), time.monotonic()
            os.kill(parent, signal.SIGALRM)
            slow = time.monotonic() - sent > _UNSENT_S
            while not poll.poll(_LOOK_S * 1e3):
                onlooker.look(_LOOK_S)
            onlooker.look(_LOOK_S)
            os.read(asks, 8)
            os.write(tells, _MOMENT.pack(-1.0 if slow else sent, *before, onlooker.stood_s))

    def interrupted(
        self, action: Callable[[], object], after_s: float, then: Callable[[], object] = lambda: None
    ) -> Taken | None:
        """Interrupt an action after some seconds; return what it took to end, and to let go of what it had made, or
        what ``then`` took, if that is more. None: it was over, or the moment is not known.
        """
        is_over = True
        os.write(self._ask, struct.pack("d", after_s))
        try:
            self._is_armed = True
            action()
            was_armed, self._is_armed = self._is_armed, False
        except InterruptError:
            is_over, was_armed = False, True
        ended, after = time.monotonic(), times_of(os.getpid())  # the exception is gone, and what its frames held
        then()
        more_s = late_s(time.monotonic() - ended, after, times_of(os.getpid()))
        os.write(self._ask, bytes(8))
        sent, *before, stood = _MOMENT.unpack(self._read())
        if not was_armed:
            return Taken(math.inf, stood * 1e3)
        if is_over or sent < 0:
            return None
        return Taken(max(late_s(ended - sent, Times(*before), after), more_s) * 1e3, stood * 1e3)

    def _read(self) -> bytes:
        found = b""
        while len(found) < _MOMENT.size:
            part = os.read(self._told, _MOMENT.size - len(found))
            if not part:
                sys.exit("the process beside this one has ended")
            found += part
        return found

    def close(self) -> None:
        """End the process."""
        os.close(self._ask)
        os.waitpid(self.process, 0)
        os.close(self._told)

    def __enter__(self) -> Interrupter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
