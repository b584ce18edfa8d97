"""DFT and STFT: one operator, whose table of cosines and sines is a constant."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Attr
from ..operators.fourier import LENGTH_MAX
from .context import Context, Value, lowers

_PRIME_MAX = 97
"""Largest radix (kernels/ops/fourier.c)."""


def _pairs(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], -1).astype(np.float32).reshape(-1)


def _size(n: int) -> int:
    """Length of the transforms that compute one of length n: n itself if its primes are small."""
    rest = n
    for prime in range(2, _PRIME_MAX + 1):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        return n
    twos = [1 << i for i in range(2 * LENGTH_MAX.bit_length())]
    return min(odd * two for odd in (1, 3, 5) for two in twos if odd * two >= 2 * n - 1)


def _table(n: int, size: int) -> np.ndarray:
    """Cosines and sines of a length; where that is not n, Bluestein's chirp and the spectrum of its conjugate."""
    turns = _pairs(np.exp(-2j * np.pi * np.arange(size) / size))
    if size == n:
        return turns
    chirp = np.exp(-1j * np.pi * (np.arange(n, dtype=np.int64) ** 2 % (2 * n)) / n)
    wrapped = np.zeros(size, np.complex128)
    wrapped[:n] = chirp.conj()
    wrapped[size - n + 1 :] = chirp[:0:-1].conj()
    return np.concatenate([turns, _pairs(chirp), _pairs(np.fft.fft(wrapped) / size)])


def _emit(ctx: Context, x: Value, n: int, window: Value | None, attrs: dict[str, Attr]) -> Value:
    if not 1 <= n <= LENGTH_MAX:
        raise ctx.error(f"transforms of length {n} are not supported")
    size = _size(n)
    inputs = [x, ctx.array(_table(n, size), "turns"), *([] if window is None else [window])]
    return ctx.emit("fourier", inputs, attrs | {"n": n, "size": size})


def _length(ctx: Context, index: int, what: str) -> int | None:
    """An integer input that may be absent."""
    given = ctx.constant(index, what)
    if given is None:
        return None
    if given.size != 1:
        raise ctx.error(f"{what} of shape {given.shape} is not one number")
    return int(given.reshape(-1)[0])


@lowers("DFT")
def dft(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__DFT.html: the axis is an attribute at first, an input since opset 20."""
    x, length = ctx.input(0), _length(ctx, 1, "its length")
    given = _length(ctx, 2, "its axis") if ctx.opset >= 20 else ctx.integer("axis", 1)
    inverse, onesided = ctx.integer("inverse", 0), ctx.integer("onesided", 0)
    shape = ctx.shape(x)
    axis = ctx.axis(-2 if given is None else given, len(shape))
    if ctx.dtype(x) != "f32" or axis == len(shape) - 1 or shape[-1] not in (1, 2):
        raise ctx.error(f"axis {axis} of shape {shape} and type {ctx.dtype(x)} cannot be transformed")
    is_half = bool(inverse and onesided)
    n = (2 * (shape[axis] - 1) if is_half else shape[axis]) if length is None else length
    if is_half and shape[-1] == 1:
        raise ctx.error("half a spectrum without imaginary parts is not supported")
    bins, parts = (n // 2 + 1 if onesided and not inverse else n), (1 if is_half else 2)
    attrs: dict[str, Attr] = {"frames": 1, "hop": 1, "bins": bins, "parts": parts, "inverse": int(bool(inverse))}
    box = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 : -1]), shape[-1])
    y = _emit(ctx, ctx.reshape(x, box), n, None, attrs)
    return [ctx.reshape(y, (*shape[:axis], bins, *shape[axis + 1 : -1], parts))]


@lowers("STFT")
def stft(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__STFT.html: a signal [batch, time, 1 or 2], frames every ``hop`` samples."""
    x, window = ctx.input(0), ctx.optional(2)
    hop, length = _length(ctx, 1, "its frame_step"), _length(ctx, 3, "its frame_length")
    onesided, shape = ctx.integer("onesided", 1), ctx.shape(x)
    if length is None and window is not None:
        length = prod(ctx.shape(window))
    if ctx.dtype(x) != "f32" or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 2)):
        raise ctx.error(f"signal of shape {shape} and type {ctx.dtype(x)} is not supported")
    if not hop or hop < 1 or not length or not 0 < length <= shape[1]:
        raise ctx.error(f"frames of {length} samples every {hop} do not fit into {shape[1]} samples")
    if window is not None and (ctx.shape(window) != (length,) or ctx.dtype(window) != "f32"):
        raise ctx.error(f"window of shape {ctx.shape(window)} does not fit frames of {length} samples")
    frames, bins = (shape[1] - length) // hop + 1, length // 2 + 1 if onesided else length
    attrs: dict[str, Attr] = {"frames": frames, "hop": hop, "bins": bins, "parts": 2, "inverse": 0}
    signal = ctx.reshape(x, (shape[0], shape[1], 1, 1 if len(shape) == 2 else shape[2]))
    return [ctx.reshape(_emit(ctx, signal, length, window, attrs), (shape[0], frames, bins, 2))]
