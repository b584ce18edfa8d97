"""The total of what compiling computes: arrays that nodes of constants make, and values that are made up to try shapes.

Each node has a limit of its own (graph/evaluate); many nodes of a small model would take any memory all the same. What
is alive is counted while ``counting`` lasts, and what would exceed the total is refused before it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self
from weakref import ref

from .allowance import allowance
from .ir import Array, GraphError

TOTAL_BYTES = 1 << 30
"""Bytes that may be alive, beside twice the bytes of the constants that the model states."""


class _Counted(ref[Array]):
    """Entry for an array that counts. It adds itself to a list when the array is gone: nothing of Python's runs then,
    as a Ctrl-C that came meanwhile would be lost.
    """

    __slots__ = ("identity", "nbytes")

    def __new__(cls, owner: Array, gone: list[ref[Array]]) -> Self:
        return super().__new__(cls, owner, gone.append)

    def __init__(self, owner: Array, gone: list[ref[Array]]) -> None:
        self.identity, self.nbytes = id(owner), owner.nbytes


class Ledger:
    """Bytes of arrays that are alive. ``most``: how many may be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.refusal = ""
        """Text of the last refusal; "": nothing was refused."""
        self._counted: dict[int, _Counted] = {}
        """Entries, by the identities of their arrays."""
        self._gone: list[ref[Array]] = []
        """Entries of arrays that are gone, until somebody asks."""
        self._alive_bytes = 0

    @property
    def alive(self) -> int:
        """Bytes that are alive."""
        while self._gone:
            gone = self._gone.pop()
            assert isinstance(gone, _Counted)
            del self._counted[gone.identity]
            self._alive_bytes -= gone.nbytes
        return self._alive_bytes

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
        alive = self.alive  # identities of arrays that are gone may be those of others now
        for array in arrays:
            owner = _owner(array) if array is not None else None
            if owner is None or id(owner) in known or id(owner) in self._counted:
                continue
            self._counted[id(owner)] = counted = _Counted(owner, self._gone)
            alive += counted.nbytes
        self._alive_bytes = alive


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
