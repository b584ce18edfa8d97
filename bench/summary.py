"""Medians, quantiles and geometric means of measured values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """Return the middle of the sorted values, or the mean of the two in the middle."""
    return float(statistics.median(values))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile ``share`` (0 to 1), interpolated between neighbours as numpy does it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of values above 0."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))
