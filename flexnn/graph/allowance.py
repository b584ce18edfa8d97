"""The budget of compiling: what the process may grow by from when it begins. What would not fit is refused before it is
made. ``Ledger`` (graph/ledger.py) bounds what a model may ask for; this bounds what its user grants.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flexnn.errors import CompileError

MARGIN = 4 << 20
"""Bytes that are left to small objects, which nobody counts before they are made."""


class Allowance:
    """Bytes that this process may grow by."""

    def __init__(self, memory: int) -> None:
        self._memory, self._before = memory, resident()
        self.refusal = ""
        """Text of the first refusal; "": nothing was refused."""

    @property
    def left(self) -> int:
        """Bytes that may yet be taken."""
        return self._memory - self._taken

    @property
    def _taken(self) -> int:
        return max(resident() - self._before, 0) + MARGIN

    def reserve(self, nbytes: int, what: str) -> None:
        """Refuse ``what`` if it does not fit. Raises CompileError."""
        if nbytes > self.left:
            self.refuse(nbytes, what)
            raise CompileError(self.refusal)

    def check(self, what: str) -> None:
        """Refuse to go on if something was refused, or what is taken is too much. Raises CompileError."""
        if self.refusal:
            raise CompileError(self.refusal)
        self.reserve(0, what)

    def refuse(self, nbytes: int, what: str) -> None:
        """Note a refusal; the first one counts."""
        if not self.refusal:
            needed = -(-(self._taken + nbytes) >> 20)
            self.refusal = (
                f"{what} takes {-(-nbytes >> 20)} MiB, and {-(-self._taken >> 20)} of the {self._memory >> 20} MiB are"
                f" taken: compiling with --memory {needed}MiB goes on from here"
            )


_CURRENT: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def allowance() -> Allowance | None:
    """Return the budget of compiling that holds now, if any."""
    return _CURRENT.get()


@contextmanager
def allowed(memory: int | None) -> Iterator[Allowance | None]:
    """Keep compiling inside a budget until the context ends; None: without one. Raises CompileError for what was
    refused, also where something else was tried instead.
    """
    found = Allowance(memory) if memory is not None else None
    token = _CURRENT.set(found)
    try:
        yield found
    except Exception:
        if found is not None and found.refusal:
            raise CompileError(found.refusal) from None
        raise
    finally:
        _CURRENT.reset(token)


def resident() -> int:
    """Return the bytes of this process that are in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0
