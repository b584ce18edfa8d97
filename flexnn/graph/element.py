"""Element: what binding knows of one number of a small value that only a run has (graph/elements.py)."""

from __future__ import annotations

from typing import Any

from flexnn.quick_dataclass import quick_dataclass

Bounds = tuple[tuple[Any, Any], ...]
"""The least and the most of each element of a value."""


def singles(bounds: Bounds) -> tuple[bool, ...]:
    """Return which elements are the same always, as their bounds leave one number."""
    return tuple([bool(least == most) for least, most in bounds])


@quick_dataclass(frozen=True, slots=True, eq=False)
class Element:
    """A whole number: ``offset`` more than what the run finds out."""

    base: int
    """Which number that is; 0: none, so that the element is ``offset`` itself."""
    offset: Any
    least: Any
    most: Any

    def plus(self, number: Any) -> Element:
        """Return the element that is larger by a known number."""
        return Element(self.base, self.offset + number, self.least + number, self.most + number)


@quick_dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A boolean: where it is true, ``bounds`` hold (base, least and most, None for none)."""

    bounds: tuple[tuple[int, Any, Any], ...]
