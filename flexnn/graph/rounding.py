"""Rounding of weights to a form: integers with their scales and minima, and the bytes of either.

Weights come as [weight of the channel][channel], in the panel's order, so that a block is a range of the first
dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from .ir import GraphError
from .panels import NR
from .weight_form import GROUP, WeightForm, groups_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

F32: TypeAlias = "NDArray[np.float32]"

_SHRUNK = np.array([1.0, 0.95, 0.9, 0.85, 0.8], np.float32)
"""Parts of the range of a block of 4 bits that are tried: the largest weights are cut off where others gain more."""


class Rounded(NamedTuple):
    """Weights as scale * integer + minimum; scales and minima are [block][channel]."""

    integers: F32
    scales: F32
    minima: F32 | None
    factors: F32 | None = None
    """Factors of double blocks: of scales, then of minima, [those that share one][channel]."""


def limits(form: WeightForm) -> tuple[int, int]:
    """Return the least and the largest integer of a form."""
    if form.minimum and form.bits < 8:
        return 0, (1 << form.bits) - 1
    return (-127 if form.bits == 8 else -(1 << form.bits - 1)), (1 << form.bits - 1) - 1


def rounded(body: F32, form: WeightForm) -> Rounded:
    """Return the weights that are nearest, with scales that the form can hold. Raises GraphError where it cannot."""
    blocks = in_blocks(body, form)
    with np.errstate(over="ignore"):
        scales, minima = _ranges(blocks, form)
    if not np.isfinite(scales).all() or (minima is not None and not np.isfinite(minima).all()):
        raise GraphError(f"scales of weights do not fit into {8 * form.scales} bits")
    return Rounded(_integers(blocks, scales, minima, form).reshape(-1, body.shape[1])[: len(body)], scales, minima)


def exactly(body: F32, form: WeightForm, scales: F32, minima: F32 | None) -> Rounded:
    """Return weights that are made of these scales and minima. Raises GraphError for others."""
    blocks = in_blocks(body, form)
    whole = np.rint(_over(blocks, scales, minima))
    least, most = limits(form)
    if not ((whole >= (-128 if form.bits == 8 else least)) & (whole <= most)).all():
        raise GraphError(f"weights do not fit into {form.bits} bits")
    return Rounded(whole.reshape(-1, body.shape[1])[: len(body)], scales, minima)


def widened(made: Rounded, form: WeightForm) -> F32:
    """Return the weights as floats again."""
    blocks = in_blocks(made.integers, form) * made.scales[:, None]
    if made.minima is not None:
        blocks = blocks + made.minima[:, None]
    return np.asarray(blocks.reshape(-1, made.integers.shape[1])[: len(made.integers)], np.float32)


def in_blocks(body: F32, form: WeightForm) -> F32:
    """[block][weight][channel] of a form with scales, the last block filled up with zeros."""
    if not form.block:
        return body[None]
    count = -(-len(body) // form.block)
    blocks = np.zeros((count * form.block, body.shape[1]), np.float32)
    blocks[: len(body)] = body
    return blocks.reshape(count, form.block, -1)


def scale_bytes(values: F32, nbytes: int) -> bytes:
    """Return scales or minima as they are stored, ``nbytes`` each."""
    return np.ascontiguousarray(values, f"f{nbytes}").tobytes()


def integer_bytes(integers: F32, form: WeightForm) -> bytes:
    """Return integers [weight][NR] as they are stored."""
    return integers.astype(np.int8).tobytes() if form.bits == 8 else _packed(integers, form.bits).tobytes()


def shared_bytes(made: Rounded, form: WeightForm) -> bytes:
    """Return scales and minima of double blocks as they are stored. Raises GraphError for those that are no integers
    times their factors.
    """
    assert made.factors is not None
    parts = [made.scales] if made.minima is None else [made.scales, made.minima]
    count = len(made.factors) // len(parts)
    factors = made.factors.reshape(len(parts), count, 1, NR)
    whole = [_times(v.reshape(count, -1, NR), f, sign) for v, f, sign in zip(parts, factors, (1, -1), strict=False)]
    least, most = (0, 63) if form.minimum else (-128, 127)
    if not all(((v >= least) & (v <= most)).all() for v in whole):
        raise GraphError(f"scales do not fit into {6 if form.minimum else 8} bits")
    integers = np.concatenate(whole, axis=1).reshape(-1, NR)
    stored = _packed(integers, 6) if form.minimum else integers.astype(np.int8)
    halves = np.ascontiguousarray(factors[:, :, 0].swapaxes(0, 1), "f2").reshape(count, -1)
    return np.concatenate([halves.view(np.uint8), stored.reshape(count, -1).view(np.uint8)], axis=1).tobytes()


def _times(values: F32, factors: F32, sign: int) -> F32:
    """The integers that make these values of the factors, and of nothing else."""
    whole = np.rint(sign * values / np.where(factors == 0, np.float32(1), factors))
    if not (sign * whole * factors == values).all():
        raise GraphError("scales are not multiples of their factor")
    return np.asarray(whole, np.float32)


def _packed(integers: F32, bits: int) -> NDArray[np.uint32]:
    """Integers [weight][NR] of less than 8 bits: the lower 4 of each, upper ones behind those that share them."""
    groups, upper = groups_of(bits), bits - 4
    runs = -(-len(integers) // (GROUP * groups))
    whole = np.zeros((runs * GROUP * groups, NR), np.int32)
    whole[: len(integers)] = integers
    lanes = whole.astype(np.uint32).reshape(runs, groups, GROUP, NR)
    shifts = np.arange(0, 4 * GROUP, 4, dtype=np.uint32)[:, None]
    low: NDArray[np.uint32] = np.bitwise_or.reduce((lanes & 15) << shifts, axis=2)
    if not upper:
        return low
    more = shifts + upper * np.arange(groups, dtype=np.uint32)[:, None, None]
    high = np.bitwise_or.reduce((lanes >> np.uint32(4) & np.uint32((1 << upper) - 1)) << more, axis=(1, 2))
    return np.concatenate([low, high[:, None]], axis=1)


def _held(values: F32, nbytes: int) -> F32:
    """Values as a scale or minimum of so many bytes holds them."""
    return values.astype(f"f{nbytes}").astype(np.float32)


def _over(blocks: F32, scales: F32, minima: F32 | None) -> F32:
    safe = np.where(scales == 0, np.float32(1), scales)[:, None]
    return np.asarray((blocks if minima is None else blocks - minima[:, None]) / safe, np.float32)


def _integers(blocks: F32, scales: F32, minima: F32 | None, form: WeightForm) -> F32:
    return np.clip(np.rint(_over(blocks, scales, minima)), *limits(form))


def _ranges(blocks: F32, form: WeightForm) -> tuple[F32, F32 | None]:
    """Scales and minima of blocks: those with the smallest squares of errors among a few."""
    if form.minimum:
        low, high = blocks.min(axis=1), blocks.max(axis=1)
        if form.bits == 8:
            return _held((high - low) / 254, form.scales), _held((high + low) / 2, form.minimum)
        tried = [(_held((high - low) * f / 15, form.scales), _held(low + (high - low) * (1 - f) / 2, form.minimum))
                 for f in _SHRUNK]  # fmt: skip
        return _best(blocks, tried, form)
    most = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    if form.bits == 8:
        step = np.abs(most) / np.float32(127)
        return _held(np.where(step > 0, step, np.float32(1)), form.scales), None
    return _best(blocks, [(_held(most * f / -8, form.scales), None) for f in _SHRUNK], form)


def _best(blocks: F32, tried: Sequence[tuple[F32, F32 | None]], form: WeightForm) -> tuple[F32, F32 | None]:
    scales, minima = (None if v is None else v.copy() for v in tried[0])
    assert scales is not None
    least = np.full(scales.shape, np.inf, np.float32)
    for scale, minimum in tried:
        made = _integers(blocks, scale, minimum, form) * scale[:, None]
        error = np.square((made if minimum is None else made + minimum[:, None]) - blocks).sum(axis=1)
        better = error < least
        least[better], scales[better] = error[better], scale[better]
        if minima is not None and minimum is not None:
            minima[better] = minimum[better]
    return scales, minima
