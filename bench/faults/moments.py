"""Interrupts at chosen moments, by a process beside this one, and how late they are without what other programs take.

A timer of this process would not do: a signal waits while the interpreter is inside a long call, and a thread that is
ready waits for a CPU while other programs have it. So the process beside says when it sent the signal, and how long the
threads of this one had waited for a CPU until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_MOMENT = struct.Struct("dddd")
_UNSENT_S = 0.002
"""Longest that sending may take for a moment to count."""


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


class Interrupter:
    """A process that interrupts the one that made it. Make it before there are threads, and close it."""

    def __init__(self) -> None:
        self._is_armed = False
        asks, self._ask = os.pipe()
        self._told, tells = os.pipe()
        parent = os.getpid()
        self._process = os.fork()
        if not self._process:
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
        while order := os.read(asks, 8):
            time.sleep(struct.unpack("d", order)[0])
            before, sent = times_of(parent), time.monotonic()
            os.kill(parent, signal.SIGALRM)
            slow = time.monotonic() - sent > _UNSENT_S
            os.write(tells, _MOMENT.pack(-1.0 if slow else sent, *before))

    def interrupted(self, action: Callable[[], object], after_s: float) -> float | None:
        """Interrupt an action after some seconds; return the milliseconds that it took to end, without those in which
        its threads waited for a CPU, and to let go of what it had made. None: it was over, or the moment is not known.
        """
        is_over = True
        os.write(self._ask, struct.pack("d", after_s))
        try:
            self._is_armed = True
            action()
            self._is_armed = False
        except InterruptError:
            is_over = False
        ended, after = time.monotonic(), times_of(os.getpid())  # the exception is gone, and what its frames held
        sent, *before = _MOMENT.unpack(self._read())
        if is_over or sent < 0:
            return None
        return late_s(ended - sent, Times(*before), after) * 1e3

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
        os.waitpid(self._process, 0)
        os.close(self._told)

    def __enter__(self) -> Interrupter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
