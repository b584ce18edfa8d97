"""Drafts: tokens that may come next, looked up in the text so far, and how many of them are worth a pass.

A pass of several rows costs little more than one of one row where weights are read for it. What a pass verifies is what
single steps would choose, so drafts change the time and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

_LENGTHS = (4, 3, 2)
"""Tokens at the end of the text that are looked for earlier in it, the longest first."""
WIDTHS = (0, 3, 7)
"""Tokens of a draft; with the one that is known a pass has 1, 4 or 8 rows."""
_KEPT = 0.8
_TRIES = 16
"""Passes after which a width that seemed slow is tried again."""


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
    """The number of tokens of the next draft: by the times of passes and the share of tokens that were right."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._right = 0.5
        self._passes = 0

    def next(self) -> int:
        """The tokens of the next draft."""
        self._passes += 1
        for width in WIDTHS:
            if width not in self._seconds:
                return width
        best = max(WIDTHS, key=lambda width: self._gain(width) / self._seconds[width])
        return best if best or self._passes % _TRIES else WIDTHS[1]

    def _gain(self, width: int) -> float:
        return sum(self._right**i for i in range(width + 1))

    def passed(self, drafted: int, right: int, seconds: float) -> None:
        """Note a pass: how many tokens it verified, how many of these were right, and its time."""
        width = min(WIDTHS, key=lambda w: abs(w - drafted))
        before = self._seconds.get(width, seconds)
        self._seconds[width] = min(_KEPT * before + (1 - _KEPT) * seconds, 2 * before)
        if drafted:
            self._right = _KEPT * self._right + (1 - _KEPT) * min(right / drafted, 0.98)
