"""Pools: the largest, mean or norm of windows, and their inverse."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array
from .call import Call, evaluates
from .windows import windows_of


def _checked(call: Call) -> Array:
    x = call.x(0)
    if x.ndim < 3:
        raise call.error(f"input of shape {x.shape} has no spatial dimensions")
    return x


@evaluates("MaxPool")
def max_pool(call: Call) -> list[Array]:
    """The largest element of each window, and where it was in the flattened input."""
    x = _checked(call)
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape"))
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    call.allow((*x.shape[:2], *windows.size), np.dtype(np.int64))
    padded = windows.padded(x, least)
    y = np.full((*x.shape[:2], *windows.size), least, x.dtype)
    best = np.full(y.shape, -1, np.int64)
    column_major = call.integer("storage_order", 0)
    for tap in windows.taps():
        found = windows.at(padded, tap)
        place, unit = np.zeros((), np.int64), 1
        dims = list(range(len(windows.size)))
        for i in dims if column_major else dims[::-1]:
            own = np.arange(windows.size[i]) * windows.strides[i] + tap[i] * windows.dilations[i] - windows.before[i]
            place = place + (own * unit).reshape([-1 if j == i else 1 for j in dims])
            unit *= x.shape[2 + i]
        better = (found > y) | np.isnan(found) | ((best < 0) & (found == y))
        y = np.where(better, found, y)
        best = np.where(better, place, best)
    planes = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(windows.size))
    return [y, best + planes * prod(x.shape[2:])][: max(call.outputs, 1)]


@evaluates("AveragePool")
def average_pool(call: Call) -> list[Array]:
    """The mean of each window, with or without the pads; what hangs over them never counts."""
    x = _checked(call)
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape"))
    total = np.zeros(call.allow((*x.shape[:2], *windows.size), x.dtype), x.dtype)
    padded = windows.padded(x, 0)
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    if call.integer("count_include_pad", 0):
        widths = [(0, 0), (0, 0), *zip(windows.before, windows.after, strict=True)]
        ones = np.pad(ones, widths, constant_values=1)
        missing = [(0, max(0, p - o)) for p, o in zip(padded.shape[2:], ones.shape[2:], strict=True)]
        ones = np.pad(ones, [(0, 0), (0, 0), *missing])
    else:
        ones = windows.padded(ones, 0)
    count = np.zeros((1, 1, *windows.size), x.dtype)
    for tap in windows.taps():
        total += windows.at(padded, tap)
        count += windows.at(ones, tap)
    return [np.asarray(total / count, x.dtype)]


@evaluates("LpPool")
def lp_pool(call: Call) -> list[Array]:
    """The p-norm of each window."""
    x, p = _checked(call), call.integer("p", 2)
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape"))
    padded = np.abs(windows.padded(x, 0)) ** p
    y = np.zeros(call.allow((*x.shape[:2], *windows.size), x.dtype), x.dtype)
    for tap in windows.taps():
        y += windows.at(padded, tap)
    return [np.asarray(y ** (1 / p), x.dtype)]


@evaluates("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pool(call: Call) -> list[Array]:
    """Over all spatial dimensions."""
    x = _checked(call)
    axes = tuple(range(2, x.ndim))
    if call.op == "GlobalMaxPool":
        return [np.max(x, axes, keepdims=True)]
    if call.op == "GlobalAveragePool":
        return [np.mean(x, axes, keepdims=True).astype(x.dtype)]
    p = call.integer("p", 2)
    return [np.asarray(np.sum(np.abs(x) ** p, axes, keepdims=True) ** (1 / p), x.dtype)]


@evaluates("MaxUnpool")
def max_unpool(call: Call) -> list[Array]:
    """Elements put back where MaxPool's indices say, zero elsewhere."""
    x, places, given = _checked(call), call.x(1), call.get_ints(2)
    rank = x.ndim - 2
    kernel = call.integers("kernel_shape")
    strides, pads = call.integers("strides") or [1] * rank, call.integers("pads") or [0] * (2 * rank)
    if len(kernel) != rank or len(strides) != rank or len(pads) != 2 * rank or places.shape != x.shape:
        raise call.error(f"kernel {kernel}, strides {strides}, pads {pads}, indices {places.shape}")
    inferred = [
        (d - 1) * s + k - pads[i] - pads[i + rank]
        for i, (d, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = call.allow((*x.shape[:2], *inferred), x.dtype)
    if places.size and (places.min() < 0 or places.max() >= prod(shape)):
        raise call.error("an index is out of range")
    y = np.zeros(prod(shape), x.dtype)
    y[places.reshape(-1)] = x.reshape(-1)
    y = y.reshape(shape)
    if given is None:
        return [y]
    call.allow(given, x.dtype)
    widths = [(0, max(0, g - d)) for g, d in zip(given, shape, strict=True)]
    return [np.pad(y, widths)[tuple(slice(g) for g in given)]]
