"""Numbers that stand for many: medians, quantiles, geometric means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The middle of the sorted values, or the mean of the two in the middle."""
    return float(statistics.median(values))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie, between neighbours by linear interpolation, as numpy has it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def geometric_mean(values: Sequence[float]) -> float:
    """The exponential of the mean logarithm; values are above 0."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))
