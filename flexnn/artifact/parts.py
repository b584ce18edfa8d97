"""JSON read part by part: ``json.loads`` would hold Ctrl-C up until it has read a whole section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

DEPTH_MAX = 8
"""Objects within objects that are read part by part."""
SPACES = " \t\n\r"

Make = Callable[[int, Any], Any]
"""Function of the index and the value of a list's entry, which returns what is kept of it."""


def load_parts(raw: bytes, each: Mapping[str, Make]) -> Any:
    """Return the JSON value in ``raw``. Of lists that objects have under a name in ``each``, what that makes of their
    entries is kept. Raises ValueError or RecursionError, and what ``each`` raises.
    """
    text = raw.decode()
    reader = _Reader(text, each)
    try:
        value, end = reader.value(reader.skipped(0), 0, None)
    except StopIteration:
        raise ValueError("a value is missing or cut") from None
    if reader.skipped(end) != len(text):
        raise ValueError("text behind the end")
    return value


class _Reader:
    """Positions are those of the text; each method returns what it has read and the position behind it."""

    def __init__(self, text: str, each: Mapping[str, Make]) -> None:
        import json  # importing flexnn does without

        self._text, self._each = text, each
        self._scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

    def skipped(self, at: int) -> int:
        """Return the position of the first character from ``at`` on that is no space."""
        while self._text[at : at + 1] in SPACES and at < len(self._text):
            at += 1
        return at

    def value(self, at: int, depth: int, make: Make | None) -> tuple[Any, int]:
        """Read any value. Raises StopIteration where there is none."""
        first = self._text[at : at + 1]
        if first == "{" and depth < DEPTH_MAX:
            return self._object(self.skipped(at + 1), depth)
        if first == "[" and depth:
            return self._list(self.skipped(at + 1), make)
        return self._scan(self._text, at)

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        if self._text[at : at + 1] == "}":
            return found, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                raise ValueError("a name is missing")
            name, at = self._scan(self._text, at)
            at = self.skipped(at)
            if self._text[at : at + 1] != ":":
                raise ValueError("a colon is missing")
            found[name], at = self.value(self.skipped(at + 1), depth + 1, self._each.get(name))
            is_last, at = self._next(at, "}")
            if is_last:
                return found, at

    def _list(self, at: int, make: Make | None) -> tuple[list[Any], int]:
        text, scan = self._text, self._scan
        found: list[Any] = []
        if text[at : at + 1] == "]":
            return found, at + 1
        while True:
            entry, at = scan(text, at)
            found.append(entry if make is None else make(len(found), entry))
            is_last, at = self._next(at, "]")
            if is_last:
                return found, at

    def _next(self, at: int, end: str) -> tuple[bool, int]:
        """Return whether an object or list ends at a position, and the next one."""
        at = self.skipped(at)
        mark = self._text[at : at + 1]
        if mark == end:
            return True, at + 1
        if mark != ",":
            raise ValueError(f"a comma or {end} is missing")
        return False, self.skipped(at + 1)
