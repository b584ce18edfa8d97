"""The middle of what was measured: neighbours on the machine make single times anything."""

from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The upper one of two (numpy's would bring in half a megabyte of its library)."""
    return sorted(values)[len(values) // 2]
