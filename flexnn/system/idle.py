"""One thread that looks at the memory of sessions that run seldom, as long as there are such sessions."""

from __future__ import annotations

import atexit
import os
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from types import MethodType
from typing import cast
from weakref import ref

from flexnn.errors import FlexNNError

from .watcher import log

SECONDS = 0.02
"""Time from one look to the next."""


class _Wanted:
    """A bound method that is not kept alive. Unlike a WeakMethod it calls nothing when its object goes: what a signal
    handler raised there would be lost.
    """

    def __init__(self, call: Callable[[], bool]) -> None:
        method = cast(MethodType, call)
        self._object, self._function = ref(method.__self__), method.__func__

    def is_for(self, call: Callable[[], bool]) -> bool:
        """Return whether this is the method ``call``."""
        method = cast(MethodType, call)
        return self._object() is method.__self__ and self._function is method.__func__

    def is_still(self) -> bool:
        """Call the method; return whether it is to be called again."""
        owner = self._object()
        try:
            return owner is not None and bool(self._function(owner))
        except FlexNNError as error:
            log.warning("between runs: %s", error)
            return True


class _Thread:
    """The thread of this process, and what it calls."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = allocate_lock()
        """Held while something is called, so that none is called when the interpreter ends."""
        self._calls: list[_Wanted] = []
        self._is_over = False

    @property
    def is_own(self) -> bool:
        """Whether the thread is of this process, not of the one that it was forked from."""
        return self._pid == os.getpid()

    def add(self, call: Callable[[], bool]) -> None:
        """Call this until it returns False."""
        with self._lock:
            if any(wanted.is_for(call) for wanted in self._calls):
                return
            self._calls.append(_Wanted(call))
            if len(self._calls) > 1:
                return
            try:
                start_new_thread(self._loop, ())
            except RuntimeError as error:
                self._calls.clear()
                log.warning("memory is looked at before runs only: %s", error)

    def end(self) -> None:
        """Call nothing any more."""
        if self.is_own:
            with self._lock:
                self._is_over = True

    def _loop(self) -> None:
        while True:
            time.sleep(SECONDS)
            with self._lock:
                if not self._is_over:
                    self._calls = [wanted for wanted in self._calls if wanted.is_still()]
                if self._is_over or not self._calls:
                    return


class _Process:
    """The thread of this process: a forked one starts its own."""

    def __init__(self) -> None:
        self._thread: _Thread | None = None

    def add(self, call: Callable[[], bool]) -> None:
        """Have a bound method, which is not kept alive, called again and again until it returns False."""
        if self._thread is None or not self._thread.is_own:
            self._thread = _Thread()
            atexit.register(self._thread.end)
        self._thread.add(call)


watch = _Process().add
