"""Random numbers: noise, yes or no by probabilities, picks of classes. With a seed they are the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, work_bytes
from .call import Call, copied, evaluates

Draw = Callable[[np.random.Generator, int, int], Array]
"""Makes the numbers from one place on, so many of them."""


@evaluates("RandomNormal", "RandomNormalLike")
def random_normal(call: Call) -> list[Array]:
    """Noise about a mean, of a shape or of that of a tensor."""
    mean, scale = call.number("mean", 0.0), call.number("scale", 1.0)
    return [_noise(call, lambda numbers, _, count: mean + scale * numbers.standard_normal(count))]


@evaluates("RandomUniform", "RandomUniformLike")
def random_uniform(call: Call) -> list[Array]:
    """Numbers from ``low`` on and below ``high``, of a shape or of that of a tensor."""
    low, high = call.number("low", 0.0), call.number("high", 1.0)
    y = _noise(call, lambda numbers, _, count: low + (high - low) * numbers.random(count))
    if low < high:  # rounding to the type's numbers may reach the end, which is not in the range
        np.minimum(y, np.nextafter(y.dtype.type(high), y.dtype.type(low)), out=y)
    return [y]


@evaluates("Bernoulli")
def bernoulli(call: Call) -> list[Array]:
    """1 with the probability that an element says, else 0."""
    x = call.x(0)
    dtype = call.dtype("dtype", 1) if call.has("dtype") else x.dtype
    call.reserve((x.shape, dtype), workspace=work_bytes(x.size) + copied(x))
    shares = x.reshape(-1)
    return [_drawn(call, x.shape, dtype, lambda numbers, at, n: numbers.random(n) < shares[at : at + n])]


@evaluates("Multinomial")
def multinomial(call: Call) -> list[Array]:
    """Classes picked for each row by the logarithms of their shares; those whose number is not finite have none."""
    x, count, dtype = call.x(0), call.integer("sample_size", 1), call.dtype("dtype", 6)
    if x.ndim != 2 or not x.shape[1] or dtype not in (np.int32, np.int64):
        raise call.error(f"an input of shape {list(x.shape)} and picks of type {dtype} are not supported")
    shape = call.shape((len(x), count))
    call.reserve((shape, dtype), workspace=work_bytes(count) + 32 * x.shape[1])
    numbers, y = _generator(call), np.empty(shape, dtype)
    for i, row in enumerate(x):
        is_known = np.isfinite(row)
        if not is_known.any():
            raise call.error(f"row {i} has no number that is finite")
        most = row.max(where=is_known, initial=-np.inf)
        bounds = np.where(is_known, row, -np.inf).astype(np.float64)
        bounds -= most
        np.cumsum(np.exp(bounds, out=bounds), out=bounds)
        _fill(y[i], numbers, partial(_picked, bounds))
    return [y]


def _picked(bounds: Array, numbers: np.random.Generator, _: int, count: int) -> Array:
    """Places by the bounds that each share ends at."""
    return np.asarray(bounds.searchsorted(numbers.random(count) * bounds[-1], "right"))


def _noise(call: Call, draw: Draw) -> Array:
    """Numbers of the node's shape and type."""
    if call.op.endswith("Like"):
        shape, default = call.x(0).shape, call.x(0).dtype
    else:
        shape, default = call.shape(call.integers("shape")), np.dtype(np.float32)
    dtype = call.dtype("dtype", 1) if call.has("dtype") else default
    if dtype.kind != "f":
        raise call.error(f"noise of type {dtype} is not supported")
    call.reserve((shape, dtype), workspace=work_bytes(prod(shape)))
    return _drawn(call, shape, dtype, draw)


def _drawn(call: Call, shape: tuple[int, ...], dtype: np.dtype, draw: Draw) -> Array:
    y = np.empty(prod(shape), dtype)
    _fill(y, _generator(call), draw)
    return y.reshape(shape)


def _fill(y: Array, numbers: np.random.Generator, draw: Draw) -> None:
    for first in range(0, y.size, ELEMENTS):
        part = y[first : first + ELEMENTS]
        part[:] = draw(numbers, first, part.size)


def _generator(call: Call) -> np.random.Generator:
    """The node's source of numbers: with a seed it begins anew in each run."""
    seed = int(np.float64(call.number("seed", 0.0)).view(np.uint64)) if call.has("seed") else None
    return np.random.default_rng(seed)
