"""Drafts: tokens that may come next, looked up in the text so far, and whether they are worth a pass.

A pass of several rows costs little more than one of one row where weights are read for it. What a pass verifies is what
single steps would choose, so drafts change the time and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

_LENGTHS = (4, 3, 2)
"""Tokens at the end of the text that are looked for earlier in it, the longest first."""
_KEPT = 0.8
_TRIES = 16
"""Drafts after which one is tried although it seemed to be slow."""


class Lookup:
    """The tokens so far, found by what follows them."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}

    def add(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            for length in _LENGTHS:
                if len(self._tokens) >= length:
                    self._ends[tuple(self._tokens[-length:])] = len(self._tokens)
            self._tokens.append(token)

    def draft(self, count: int) -> list[int]:
        """At most ``count`` tokens that followed the last ones where these stood before."""
        for length in _LENGTHS:
            at = self._ends.get(tuple(self._tokens[-length:])) if len(self._tokens) > length else None
            if at is not None:
                return self._tokens[at : at + count]
        return []


class Width:
    """The choice between passes of one row and of several: by their times, and by the tokens that a draft brought."""

    def __init__(self) -> None:
        self._seconds: dict[bool, float] = {}
        self._right = 1.0
        """Tokens of a draft that were right, lately."""
        self._left_out = 0

    def is_worth(self) -> bool:
        """Whether the next draft is worth a pass of several rows."""
        few, several = self._seconds.get(False), self._seconds.get(True)
        if few is None or several is None or (1 + self._right) * few > several:
            return several is None or few is not None
        self._left_out += 1
        return self._left_out % _TRIES == 0

    def passed(self, drafted: int, right: int, seconds: float) -> None:
        """Note a pass: how many tokens were drafted, how many of these were right, and its time."""
        before = self._seconds.get(drafted > 0, seconds)
        self._seconds[drafted > 0] = min(_KEPT * before + (1 - _KEPT) * seconds, 2 * before)
        if drafted:
            self._right = _KEPT * self._right + (1 - _KEPT) * right
