"""Signals that the system hands to another thread than the one that waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.late import Moment

LONG_SECONDS = 3
"""Time in which a call that waits for the other thread must end, without that in which threads waited for a CPU."""


class Stop(Exception):  # noqa: N818 (no error)
    """Raised by a signal handler, as KeyboardInterrupt is by Ctrl-C."""


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Have SIGALRM raise Stop."""

    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


class Elsewhere:
    """Work of another thread, to which the system hands SIGALRM while the first one waits."""

    def __init__(self) -> None:
        self.waits, self.goes_on = threading.Event(), threading.Event()
        self.sent: Moment | None = None

    def __call__(self, *_: object) -> int:
        self.waits.wait()
        threading.Event().wait(0.1)  # the first thread waits by now
        self.sent = Moment()
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
        self.goes_on.wait(20 * LONG_SECONDS)  # unless the call ends
        return 0

    def preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        """Read as os.preadv does from a device that does not answer, and a page cache without the file."""
        if flags:
            raise BlockingIOError
        return self()

    def interrupts(self, call: Callable[[], Any]) -> None:
        """Check that a call which waits for this ends."""
        try:
            with pytest.raises(Stop):
                self.waits.set()
                call()
            assert self.sent is not None
            assert self.sent.since() < LONG_SECONDS
        finally:
            self.goes_on.set()
