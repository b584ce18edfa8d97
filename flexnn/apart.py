"""Work of a thread of its own, for which the caller waits: Ctrl-C does not, though a device may not answer for long."""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread  # threading takes a twentieth of what importing flexnn may
from collections.abc import Callable
from typing import TypeVar

LOOK_SECONDS = 0.02
"""Time from one look for signals to the next. A signal ends no wait before which it came by a moment, nor one of the
first thread where the system handed it to another.
"""
_T = TypeVar("_T")


def apart(work: Callable[[], _T]) -> _T:
    """Return what ``work`` returns, or raise what it raises. It may go on when the caller is gone. Where the system has
    no thread left, the caller does it.
    """
    returned: list[_T] = []
    raised: list[BaseException] = []
    done = allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            returned.append(work())
        except BaseException as error:
            raised.append(error.with_traceback(None))
        finally:
            done.release()

    try:
        start_new_thread(run, ())
    except RuntimeError:
        run()
    while not done.acquire(timeout=LOOK_SECONDS):
        pass
    if raised:
        raise raised.pop()
    return returned.pop()
