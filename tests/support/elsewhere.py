"""Signals that the system hands to another thread than the one that waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

LONG_SECONDS = 3
"""Time that the thread which is waited for takes unless it is told to end."""


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
        self.goes_on, self.is_over = threading.Event(), False

    def __call__(self, *_: object) -> int:
        threading.Event().wait(0.1)  # the first thread waits by now
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
        self.is_over = not self.goes_on.wait(LONG_SECONDS)
        return 0

    def preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        """Read as os.preadv does from a device that does not answer, and a page cache without the file."""
        if flags:
            raise BlockingIOError
        return self()

    def interrupts(self, call: Callable[[], Any]) -> None:
        """Check that a call which waits for this ends."""
        with pytest.raises(Stop):
            call()
        was_over = self.is_over
        self.goes_on.set()
        assert not was_over
