"""Budgets that are asked of the system: ``"auto"``, ``"auto:32MiB"`` (with a reserve), ``"50%"``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
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


class Followed(NamedTuple):
    """The limits of the system that a budget follows from now on."""

    limits: Limits
    """Open; its owner closes it."""
    reserve: int
    """Bytes left to others."""
    taken: int
    """Bytes of this process that came into memory as the budget was given."""


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


def find(text: str, limits: Limits, held: int = 0) -> Found:
    """Return the budget that ``text`` asks for, for what holds so many bytes already. Raises ValueError."""
    wanted = asked(text)
    room = limits.free() + held
    if not wanted.follows:
        return Found(max(int(room * wanted.part), 1), None)
    reserve = reserve_of(limits.whole, wanted.reserve)
    return Found(max(room - reserve, 1), reserve)


def take(text: str, give: Callable[[int], object], held: int = 0) -> Followed | None:
    """Give an owner that holds so many bytes the budget that ``text`` asks for; return what it follows from now on, or
    None where it does not follow the system. What fails leaves the owner's old budget: all files are open before it
    gets the new one. Raises ValueError, OSError, and what ``give`` raises.
    """
    with ExitStack() as opened:
        limits = opened.enter_context(closing(Limits()))
        before = limits.resident()
        found = find(text, limits, held)
        give(found.memory)
        if found.reserve is None:
            return None
        opened.pop_all()
        return Followed(limits, found.reserve, max(limits.resident() - before, 0))
