"""Calls in threads that others may break off: what ``Session.arun`` awaits, and what onnxruntime's ``run_async`` and
``RunOptions.terminate`` need.

An exception that one thread sets is raised in another at its next bytecode; while the engine runs, the caller executes
some every 20 ms. So a call ends wherever Ctrl-C would end it, and as soon.
"""

from __future__ import annotations

import contextlib
from _thread import allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from flexnn import _core

if TYPE_CHECKING:
    import asyncio

POLL_SECONDS = 0.02
"""Longest time after which a run, or a thread that waits for its turn, looks whether it is to end."""
_T = TypeVar("_T")


class Cancelled(BaseException):
    """Another thread broke this call off."""


class Call:
    """A call of one thread that others may break off, before it or during it."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._thread = 0
        """Identity of the thread that makes the call; 0: none does."""
        self._has_begun = self._is_cancelled = False

    def cancel(self) -> bool:
        """Break the call off. Nothing happens after it; where cleaning up has swallowed the exception, again helps.
        Return whether the call had begun: else it never does.
        """
        with self._lock:
            self._is_cancelled = True
            if self._thread:
                _core.raise_in(self._thread, Cancelled)
            return self._has_begun

    def make(self, function: Callable[[], _T]) -> _T:
        """Return what ``function`` does. Raises Cancelled, and what it raises."""
        try:
            self._begin()
            return function()
        finally:
            self._end()

    def _begin(self) -> None:
        with self._lock:
            if self._is_cancelled:
                raise Cancelled
            self._thread, self._has_begun = get_ident(), True

    def _end(self) -> None:
        """End the call. What was set and not raised is raised here. Up to Python 3.12 an exception that is taken back
        leaves a mark, so that the interpreter looks for it for ever, and 3.11 hangs under a profiler (sys.setprofile).
        """
        is_last = False
        while not is_last:
            try:
                with self._lock:
                    self._thread = 0
                is_last = True
                while self._is_cancelled:  # raised where it jumps back, in place of what others set
                    _core.raise_in(get_ident(), Cancelled)
            except Cancelled:
                pass


class Calls:
    """Calls that a thread of their own makes one after the other; it lives while there are any."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_thread = False

    def put(self, work: Callable[[], None]) -> None:
        """Have the thread do ``work``, which raises nothing. Raises RuntimeError where no thread starts."""
        with self._lock:
            self._waiting.append(work)
            if self._has_thread:
                return
            self._has_thread = True
            try:
                start_new_thread(self._work, ())
            except RuntimeError:
                self._has_thread = False
                self._waiting.pop()
                raise

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._has_thread = False
                    return
                work = self._waiting.popleft()
            work()
            del work  # its arrays are the caller's


def in_turn(lock: _core.TurnLock, function: Callable[[], _T]) -> _T:
    """Return what ``function`` does under ``lock``; a thread that waits for it can be broken off."""
    with lock:
        return function()


async def awaited(calls: Calls, lock: _core.TurnLock, function: Callable[[], _T]) -> _T:
    """Return what ``function`` does under ``lock`` in the thread of ``calls``. A task that is cancelled breaks it off,
    and goes on when it has ended, or at once where it waits behind others in that thread.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_T] = loop.create_future()
    call = Call()

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = call.make(lambda: in_turn(lock, function))
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, ended, value, error)

    calls.put(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        while call.cancel() and not ended.done():
            await asyncio.wait([ended], timeout=2 * POLL_SECONDS)
        raise


def _settle(ended: asyncio.Future[_T], value: _T, error: BaseException | None) -> None:
    if isinstance(error, Cancelled):
        ended.cancel()
    elif error is not None:
        ended.set_exception(error)
    else:
        ended.set_result(value)
