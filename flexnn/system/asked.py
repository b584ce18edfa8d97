"""Budgets that are asked of the system: ``"auto"``, ``"auto:32MiB"`` (with a reserve), ``"50%"``."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from flexnn.units import parse_bytes

from .limits import Limits

RESERVE_LEAST = 16 << 20
RESERVE_PART = 10
"""Bytes that "auto" leaves to others: the greater of that and of one part in so many of the limit."""


class Asked(NamedTuple):
    """Meaning of such a text."""

    part: float
    """Part of the free memory; 1 where the budget follows the system."""
    follows: bool
    """Whether the budget follows the system."""
    reserve: int | None
    """Bytes left to others, of a budget that follows; None: the default."""


class Found(NamedTuple):
    """A budget that the system's limits allow."""

    memory: int
    reserve: int | None
    """Bytes left to others, of a budget that follows the system; None: it does not."""


def asked(text: str) -> Asked:
    """Return what ``text`` asks for. Raises ValueError."""
    word = text.strip()
    if word.endswith("%"):
        try:
            part = float(word[:-1]) / 100
        except ValueError:
            part = 0.0
        if not 0 < part <= 1:
            raise ValueError(f"not a part of the memory: {text!r}; write a number up to 100 before %")
        return Asked(part, False, None)
    name, colon, reserve = word.partition(":")
    if name != "auto":
        raise ValueError(f"not a budget: {text!r}; write auto, auto:RESERVE, a part like 50%, or a size like 64MiB")
    return Asked(1.0, True, parse_bytes(reserve) if colon else None)


def reserve_of(whole: int, given: int | None) -> int:
    """Return the bytes that are left to others where this process could have ``whole`` bytes if it were alone."""
    return max(RESERVE_LEAST, whole // RESERVE_PART) if given is None else given


def find(text: str, held: int = 0, root: str = "/") -> Found:
    """Return the budget that ``text`` asks for, for what holds so many bytes already. Raises ValueError."""
    wanted = asked(text)
    with closing(Limits(root)) as limits:
        room = limits.free() + held
        if not wanted.follows:
            return Found(max(int(room * wanted.part), 1), None)
        reserve = reserve_of(limits.whole, wanted.reserve)
        return Found(max(room - reserve, 1), reserve)
