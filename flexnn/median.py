"""Medians and quantiles of measured times: one time says little on a machine that does other work, too."""

from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """Return the median, the upper one of two (numpy's would load half a megabyte of its library)."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the value above ``fraction`` of the others (0 to 1), without interpolation."""
    return sorted(values)[min(int(len(values) * fraction), len(values) - 1)]
