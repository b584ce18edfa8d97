"""The total of what compiling computes: arrays that nodes of constants make, and values that are made up to try shapes.

Each node has a limit of its own (graph/evaluate); many nodes of a small model would take any memory all the same. What
is alive is counted while ``counting`` lasts, and what would exceed the total is refused before it is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .allowance import allowance
from .ir import Array, GraphError

TOTAL_BYTES = 1 << 30
"""Bytes that may be alive, beside twice the bytes of the constants that the model states."""


class Ledger:
    """Bytes of arrays that are alive. ``most``: how many may be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.alive = 0
        self.refusal = ""
        """Text of the last refusal; "": nothing was refused."""
        self._owners: set[int] = set()

    @property
    def left(self) -> int:
        """Bytes that may yet be made."""
        return self.most - self.alive

    def reserve(self, nbytes: int, what: str) -> None:
        """Refuse ``what`` if it does not fit. Raises GraphError, or CompileError for the budget of compiling."""
        found = allowance()
        if found is not None:
            found.reserve(nbytes, what)
        if nbytes > self.left:
            self.refuse(f"{what} takes {nbytes >> 20} MiB")
            raise GraphError(self.refusal)

    def refuse(self, what: str) -> None:
        """Note a refusal."""
        most, alive = self.most >> 20, self.alive >> 20
        self.refusal = f"{what}: compiling may compute with {most} MiB in all, of which {alive} are taken"

    def add(self, arrays: Iterable[Array | None], given: Iterable[Array | None] = ()) -> None:
        """Count arrays for as long as they live, but for those in the memory of ``given``."""
        known = {id(_owner(array)) for array in given if array is not None}
        for array in arrays:
            owner = _owner(array) if array is not None else None
            if owner is None or id(owner) in known or id(owner) in self._owners:
                continue
            self._owners.add(id(owner))
            self.alive += owner.nbytes
            weakref.finalize(owner, self._drop, id(owner), owner.nbytes)

    def _drop(self, owner: int, nbytes: int) -> None:
        self._owners.discard(owner)
        self.alive -= nbytes


_CURRENT: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


def current() -> Ledger | None:
    """Return the ledger that counts now, if any."""
    return _CURRENT.get()


@contextmanager
def counting(stated_bytes: int) -> Iterator[Ledger]:
    """Count what is made until the context ends. ``stated_bytes``: of the constants of the model."""
    ledger = Ledger(TOTAL_BYTES + 2 * stated_bytes)
    token = _CURRENT.set(ledger)
    try:
        yield ledger
    finally:
        _CURRENT.reset(token)


def _owner(array: Array) -> Array:
    """Return the array whose memory this one shows."""
    while isinstance(array.base, Array):
        array = array.base
    return array
