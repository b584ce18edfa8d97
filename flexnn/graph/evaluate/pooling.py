"""Pools: the largest, mean or norm of windows, and their inverse."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array
from .blocks import Axes, fill, summed, work_bytes
from .call import Call, copied, evaluates
from .windows import Windows, windows_of


def _checked(call: Call) -> Array:
    x = call.x(0)
    if x.ndim < 3:
        raise call.error(f"input of shape {x.shape} has no spatial dimensions")
    return x


def _reserve(call: Call, x: Array, windows: Windows, workspace: int = 0) -> tuple[int, ...]:
    """State what a pool takes: its output, a padded copy of x, and workspace. Return the shape of the output."""
    size = (*x.shape[:2], *windows.size)
    padded = prod(windows.padded_shape(x.shape)) * x.itemsize
    call.reserve((size, x.dtype), workspace=padded + workspace + work_bytes(prod(size)))
    return size


@evaluates("MaxPool")
def max_pool(call: Call) -> list[Array]:
    """The largest element of each window, and where it was in the flattened input."""
    x = _checked(call)
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape"))
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    with_places = call.outputs > 1
    cells = prod(windows.size)
    size = _reserve(call, x, windows, with_places * (8 * prod(x.shape[:2]) * (cells + 1) + 32 * cells))
    padded = windows.padded(x, least)
    y = np.full(size, least, x.dtype)
    if not with_places:
        for tap in windows.taps():
            fill(y, np.maximum, y, windows.at(padded, tap))
        return [y]
    best = np.full(size, -1, np.int64)
    for tap in windows.taps():
        found = windows.at(padded, tap)
        place = _places(call, x, windows, tap)
        fill(best, _place_of_best, best, found, y, place)
        fill(y, lambda o, f: np.where((f > o) | np.isnan(f), f, o), y, found)
    best += np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(windows.size)) * prod(x.shape[2:])
    return [y, best]


def _place_of_best(best: Array, found: Array, y: Array, place: Array) -> Array:
    return np.where((found > y) | np.isnan(found) | ((best < 0) & (found == y)), place, best)


def _places(call: Call, x: Array, windows: Windows, tap: tuple[int, ...]) -> Array:
    """The place of each window's tap in a flattened plane, row-major unless storage_order says otherwise."""
    place, unit = np.zeros((), np.int64), 1
    dims = list(range(len(windows.size)))
    for i in dims if call.integer("storage_order", 0) else dims[::-1]:
        own = np.arange(windows.size[i]) * windows.strides[i] + tap[i] * windows.dilations[i] - windows.before[i]
        place = place + (own * unit).reshape([-1 if j == i else 1 for j in dims])
        unit *= x.shape[2 + i]
    return np.asarray(place)


@evaluates("AveragePool")
def average_pool(call: Call) -> list[Array]:
    """The mean of each window, with or without the pads; what hangs over them never counts."""
    x = _checked(call)
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape"))
    plane = prod(windows.padded_shape(x.shape)[2:]) * 2 + prod(windows.size)
    total = np.zeros(_reserve(call, x, windows, 2 * plane * x.itemsize), x.dtype)
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
    return [fill(total, np.divide, total, count)]


@evaluates("LpPool")
def lp_pool(call: Call) -> list[Array]:
    """The p-norm of each window."""
    x, p = _checked(call), call.integer("p", 2)
    windows = windows_of(call, x.shape[2:], call.integers("kernel_shape"))
    y = np.zeros(_reserve(call, x, windows), x.dtype)
    padded = windows.padded(x, 0)
    fill(padded, lambda v: np.abs(v) ** p, padded)
    for tap in windows.taps():
        y += windows.at(padded, tap)
    return [fill(y, lambda v: v ** (1 / p), y)]


@evaluates("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pool(call: Call) -> list[Array]:
    """Over all spatial dimensions."""
    x = _checked(call)
    axes: Axes = tuple(range(2, x.ndim))
    call.reserve(((*x.shape[:2], *[1] * len(axes)), x.dtype), workspace=work_bytes(x.size) + 24 * prod(x.shape[:2]))
    if call.op == "GlobalMaxPool":
        return [np.max(x, axes, keepdims=True)]
    if call.op == "GlobalAveragePool":
        return [np.mean(x, axes, keepdims=True).astype(x.dtype)]
    p = call.integer("p", 2)
    return [np.asarray(summed(x, axes, lambda v: np.abs(v) ** p, x.dtype) ** (1 / p), x.dtype)]


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
    shape = call.shape((*x.shape[:2], *inferred))
    if given is not None and len(given) != x.ndim:
        raise call.error(f"output_shape {given} does not fit shape {x.shape}")
    made = [shape] if given is None else [shape, call.shape([max(g, d) for g, d in zip(given, shape, strict=True)])]
    call.reserve(*((dims, x.dtype) for dims in made), workspace=copied(x, places) + places.nbytes)
    if places.size and (places.min() < 0 or places.max() >= prod(shape)):
        raise call.error("an index is out of range")
    y = np.zeros(prod(shape), x.dtype)
    y[places.reshape(-1)] = x.reshape(-1)
    y = y.reshape(shape)
    if given is None:
        return [y]
    widths = [(0, max(0, g - d)) for g, d in zip(given, shape, strict=True)]
    return [np.pad(y, widths)[tuple(slice(g) for g in given)]]
