"""Ctrl-C after a while, and how long what it ends takes: without the time in which this process waited for a CPU that
others had, so that a busy or slow machine makes nothing late.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from bench.faults.moments import late_s, times_of


class Moment:
    """A moment of this process, from the first of its threads."""

    def __init__(self) -> None:
        self._times = times_of(os.getpid())
        self._at = time.monotonic()

    def since(self) -> float:
        """Return the seconds since then, without those in which threads were ready and waited for a CPU."""
        took = time.monotonic() - self._at
        return late_s(took, self._times, times_of(os.getpid()))


def interrupt_after(seconds: float) -> list[Moment]:
    """Send Ctrl-C to the first thread after some seconds; return a list that has the moment then."""
    sent: list[Moment] = []

    def send() -> None:
        time.sleep(seconds)
        sent.append(Moment())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    return sent
