"""Windows over spatial dimensions: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..ir import Array
from .call import Call

TAPS_MAX = 1 << 20


def last(index: Iterable[int | slice | Array]) -> tuple[Any, ...]:
    """An index of the last dimensions."""
    return (..., *index)


@quick_dataclass(frozen=True, slots=True)
class Windows:
    """Kernel, strides, dilations, pads and size of the output, for each spatial dimension."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    size: list[int]
    """Sizes of the output."""

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Each place in the kernel, row-major."""
        return product(*(range(k) for k in self.kernel))

    def _widths(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Elements before and after each dimension that make every window lie inside."""
        widths = [(0, 0)] * (len(shape) - len(self.kernel))
        for o, s, e, b in zip(self.size, self.strides, self.extents(), self.before, strict=True):
            widths.append((b, max(0, (o - 1) * s + e - b - shape[len(widths)])))
        return widths

    def padded_shape(self, shape: Sequence[int]) -> list[int]:
        """The shape of ``padded``."""
        return [d + b + a for d, (b, a) in zip(shape, self._widths(shape), strict=True)]

    def padded(self, x: Array, value: float) -> Array:
        """A copy of x with its last dimensions padded so far that every window lies inside."""
        return np.pad(x, self._widths(x.shape), constant_values=np.asarray(value, x.dtype))

    def extents(self) -> list[int]:
        """Elements from the first tap to the last."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def at(self, padded: Array, tap: Sequence[int]) -> Array:
        """A view: for each output the element that this tap reads."""
        index = (
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, self.dilations, self.size, self.strides, strict=True)
        )
        return np.asarray(padded[last(index)])


def integers_for(call: Call, name: str, count: int, default: int, least: int) -> list[int]:
    """An attribute with one integer for each dimension."""
    values = call.integers(name) or [default] * count
    if len(values) != count or min(values, default=least) < least:
        raise call.error(f"attribute {name}={values} does not fit {count} spatial dimensions")
    return values


def automatic_pads(mode: str, totals: Sequence[int]) -> tuple[list[int], list[int]]:
    """Pads before and after; of an odd total the larger half is after, with SAME_LOWER before."""
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (large, small) if mode == "SAME_LOWER" else (small, large)


def windows_of(call: Call, spatial: Sequence[int], kernel: list[int]) -> Windows:
    """The windows that a node of Conv's or MaxPool's kind walks over an input of ``spatial`` size."""
    n = len(spatial)
    strides, dilations = integers_for(call, "strides", n, 1, 1), integers_for(call, "dilations", n, 1, 1)
    if len(kernel) != n or min(kernel, default=1) < 1 or np.prod(kernel, dtype=np.float64) > TAPS_MAX:
        raise call.error(f"kernel {kernel} does not fit {n} spatial dimensions")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    mode = call.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        size = [-(-d // s) for d, s in zip(spatial, strides, strict=True)]
        totals = [max(0, (o - 1) * s + e - d) for o, s, e, d in zip(size, strides, extents, spatial, strict=True)]
        before, after = automatic_pads(mode, totals)
        return Windows(kernel, strides, dilations, before, after, size)
    if mode not in ("NOTSET", "VALID", ""):
        raise call.error(f"auto_pad {mode!r} is not supported")
    pads = integers_for(call, "pads", 2 * n, 0, 0) if mode == "NOTSET" else [0] * (2 * n)
    before, after = pads[:n], pads[n:]
    size = []
    for d, b, a, e, s in zip(spatial, before, after, extents, strides, strict=True):
        free = d + b + a - e
        if call.integer("ceil_mode", 0):
            out = -(-free // s) + 1
            out -= (out - 1) * s >= d + b  # no window starts in the pads behind
        else:
            out = free // s + 1
        size.append(out)
    if min(size, default=1) < 1:
        raise call.error(f"a window of {extents} does not fit into {list(spatial)}")
    return Windows(kernel, strides, dilations, before, after, size)
