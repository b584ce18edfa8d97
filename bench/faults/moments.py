"""Interrupts at chosen moments, by a process beside this one, and how late they are without what other programs take.

A timer of this process would not do: a signal waits while the interpreter is inside a long call, and a thread that is
ready waits for a CPU while other programs have it. So the process beside says when it sent the signal, and how long the
threads of this one had waited for a CPU until then. It also looks on until the signal has done its work: where this
process is stopped, where the process beside, which only sleeps, is not woken either, or where another machine took the
CPU that this one is on, the machine stood still. Threads that end meanwhile take what the system counted of them along,
and a close waits for just these; so it looks which of them are ready, and do not compute.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_UNSENT_S = 0.002
"""Longest that sending may take for a moment to count."""
_LOOK_S = 0.005
"""Time between two looks at the process that was interrupted."""
_WOKEN_S = 0.002
"""Longest that the system usually takes to wake a process that sleeps, beside its wait for a CPU."""
_UNCOUNTED_S = 0.012
"""Longest that a thread may compute before the system counts it."""


class InterruptError(Exception):
    """Exception that the handler raises, as Ctrl-C raises KeyboardInterrupt."""


class Times(NamedTuple):
    """Seconds of a process so far."""

    computed: float
    """Time that its first thread computed."""
    waited: float
    """Time that its first thread was ready and waited for a CPU."""
    others: dict[int, float]
    """Time that each other thread waited so, by its number."""


class Taken(NamedTuple):
    """Time that an interrupt took."""

    ms: float
    """Milliseconds to the exception, without those in which threads of the process waited for a CPU; infinite where
    what was interrupted went on.
    """
    stood_ms: float
    """Milliseconds meanwhile in which the machine or the process stood still."""
    computed_ms: float = 0.0
    """Milliseconds of them in which the first thread computed."""

    def stood(self, limit_ms: float) -> bool:
        """Return whether it is late only as something stood still."""
        return self.ms > limit_ms >= self.ms - self.stood_ms


def threads_of(process: int) -> list[int]:
    """Return the numbers of a process's threads."""
    return list(map(int, os.listdir(f"/proc/{process}/task")))


def counted(process: int, thread: int) -> tuple[float, float] | None:
    """Return the seconds that a thread computed, and that it was ready and waited for a CPU; None: it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/schedstat", encoding="ascii") as file:
        computed, waited = file.read().split()[:2]
        return int(computed) / 1e9, int(waited) / 1e9
    return None


def times_of(process: int) -> Times:
    """Return what the system has counted of a process's threads."""
    found = {thread: times for thread in threads_of(process) if (times := counted(process, thread))}
    computed, waited = found.pop(process)
    return Times(computed, waited, {thread: times[1] for thread, times in found.items()})


def late_s(took: float, before: Times, after: Times, gone_s: float = 0.0) -> float:
    """Return some seconds less those in which the first thread waited for a CPU or, while it slept, another one did;
    ``gone_s``: the longest such wait of threads that ended meanwhile.
    """
    waited = after.waited - before.waited
    slept = took - waited - (after.computed - before.computed)
    others = [after.others[thread] - before.others.get(thread, 0.0) for thread in after.others]
    return max(took - waited - max(min(max([*others, gone_s]), slept), 0.0), 0.0)


def state_of(process: int, thread: int) -> bytes:
    """Return the letter of a thread's state; none where it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0]
    return b""


def stolen_s() -> float:
    """Return the seconds so far that other virtual machines took CPUs which this one wanted."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class Waits:
    """Times in which the threads of a process were ready, and did not compute."""

    def __init__(self, process: int) -> None:
        self._process, self._since = process, dict[int, tuple[float, float]]()
        """Process, and of each thread that is ready what it had computed, and since when it has not since."""
        self._spans: dict[int, list[list[float]]] = {}

    def look(self, now: float) -> None:
        """Look at the threads; a thread waits as long as it is ready at each look and computes nothing in between."""
        for thread in threads_of(self._process):
            is_ready, times = state_of(self._process, thread) == b"R", counted(self._process, thread)
            if not is_ready or times is None:
                self._since.pop(thread, None)
                continue
            computed, since = self._since.get(thread, (-1.0, now))
            if computed != times[0]:
                self._since[thread] = times[0], now
            elif now - since > _UNCOUNTED_S:
                spans = self._spans.setdefault(thread, [])
                if spans and spans[-1][0] == since:
                    spans[-1][1] = now
                else:
                    spans.append([since, now])

    def of_gone(self) -> list[list[list[float]]]:
        """Return the waits (from, until) of each thread that has ended."""
        alive = set(threads_of(self._process))
        return [spans for thread, spans in self._spans.items() if thread not in alive]


def longest_s(waits: list[list[list[float]]], begun: float, ended: float) -> float:
    """Return the most seconds that one of the threads waited between two times."""
    return max((sum(max(min(b, ended) - max(a, begun), 0.0) for a, b in spans) for spans in waits), default=0.0)


class Onlooker:
    """Looks at a process from another one, and counts the time in which it or both of them stood still."""

    def __init__(self, process: int) -> None:
        self._process, self._before, self._at = process, times_of(os.getpid()), time.monotonic()
        self._stolen, self.stood_s, self.waits = stolen_s(), 0.0, Waits(process)

    def look(self, pause_s: float) -> None:
        """Count the time since the last look, of which ``pause_s`` were slept at most."""
        now, times = time.monotonic(), times_of(os.getpid())
        took, idle = now - self._at, late_s(now - self._at, self._before, times)
        unwoken = idle - (times.computed - self._before.computed) - pause_s
        stolen = stolen_s()
        self.waits.look(now)
        if state_of(self._process, self._process) in (b"T", b"t"):
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
            told = [-1.0 if slow else sent, before.computed, before.waited, list(before.others.items())]
            os.write(tells, json.dumps([*told, onlooker.stood_s, onlooker.waits.of_gone()]).encode() + b"\n")

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
        done, last = time.monotonic(), times_of(os.getpid())
        os.write(self._ask, bytes(8))
        sent, computed, waited, others, stood, waits = self._read()
        if not was_armed:
            return Taken(math.inf, stood * 1e3)
        if is_over or sent < 0:
            return None
        before = Times(computed, waited, dict(others))
        took = late_s(ended - sent, before, after, longest_s(waits, sent, ended))
        more = late_s(done - ended, after, last, longest_s(waits, ended, done))
        computed = after.computed - before.computed if took > more else last.computed - after.computed
        return Taken(max(took, more) * 1e3, stood * 1e3, computed * 1e3)

    def _read(self) -> Any:
        found = b""
        while not found.endswith(b"\n"):
            part = os.read(self._told, 1 << 16)
            if not part:
                sys.exit("the process beside this one has ended")
            found += part
        return json.loads(found)

    def close(self) -> None:
        """End the process."""
        os.close(self._ask)
        os.waitpid(self.process, 0)
        os.close(self._told)

    def __enter__(self) -> Interrupter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
