"""Signals: Fourier transforms and windows."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, boxes, work_bytes
from .call import Call, evaluates


def _complex(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


@evaluates("DFT")
def dft(call: Call) -> list[Array]:
    """Along an axis of [..., real or (real, imaginary)]; inverse, one-sided, cut or padded to a length."""
    x, length = call.x(0), call.scalar(1)
    given = call.scalar(2) if call.opset >= 20 else None
    axis = int(given) if given is not None else call.integer("axis", 1 if call.opset < 20 else -2)
    axis = call.axis(axis, x.ndim)
    inverse, onesided = call.integer("inverse", 0), call.integer("onesided", 0)
    if axis == x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise call.error(f"axis {axis} of shape {x.shape} cannot be transformed")
    n = x.shape[axis] if length is None else int(length)
    if n < 1:
        raise call.error(f"length {n}")
    real = bool(inverse and onesided)  # half a spectrum to a real signal
    if real and length is None:
        n = 2 * (x.shape[axis] - 1)
    made = call.shape((*x.shape[:axis], n // 2 + 1 if onesided and not real else n, *x.shape[axis + 1 : -1], 2 - real))
    block = min(max(x.size, prod(made)), max(ELEMENTS, x.shape[axis], n))
    call.reserve((made, x.dtype), workspace=80 * block + _plan_bytes(n))
    y = np.empty(made, x.dtype)
    source, out = (np.moveaxis(a, axis, -2) for a in (x, y))
    transform = np.fft.irfft if real else np.fft.ifft if inverse else np.fft.fft
    for box in boxes(source.shape[:-2], max(1, ELEMENTS // max(x.shape[axis], n))):
        found = transform(_complex(source[box]), n, -1)[..., : out.shape[-2]]
        out[box][..., 0] = found.real
        if not real:
            out[box][..., 1] = found.imag
    return [y]


def _plan_bytes(n: int) -> int:
    """Most bytes that numpy takes for the factors of a transform of n elements, and while it computes one."""
    left, factor = n, 2
    while factor * factor <= left and factor < 1 << 20:
        if left % factor:
            factor += 1
        else:
            left //= factor
    return (48 if left * left <= n else 240) * n  # a large prime is computed through a longer transform


@evaluates("STFT")
def stft(call: Call) -> list[Array]:
    """Fourier transforms of windows of a signal [batch, time, 1 or 2]."""
    signal, step, window, given = call.x(0), call.scalar(1), call.get(2), call.scalar(3)
    if step is None or signal.ndim not in (2, 3):
        raise call.error(f"signal of shape {signal.shape} has neither 2 nor 3 dimensions, or frame_step is missing")
    length = int(given) if given is not None else (window.shape[0] if window is not None else 0)
    values = signal[..., None] if signal.ndim == 2 else signal
    hop, samples = int(step), values.shape[1]
    if hop < 1 or not 0 < length <= samples or (window is not None and window.shape != (length,)):
        raise call.error(f"frames of {length} samples every {hop} do not fit into {samples} samples")
    frames = (samples - length) // hop + 1
    made = (values.shape[0], frames, length // 2 + 1 if call.integer("onesided", 1) else length, 2)
    block = min(values.shape[0] * frames * length, max(ELEMENTS, length))
    call.reserve((made, signal.dtype), workspace=80 * block + _plan_bytes(length))
    y = np.empty(made, signal.dtype)
    cut = np.moveaxis(np.lib.stride_tricks.sliding_window_view(values, length, 1)[:, ::hop], -1, -2)
    for box in boxes(cut.shape[:2], max(1, ELEMENTS // length)):
        own = _complex(cut[box])
        found = np.fft.fft(own if window is None else own * window)[..., : made[2]]
        y[box][..., 0], y[box][..., 1] = found.real, found.imag
    return [y]


_WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@evaluates(*_WINDOWS)
def cosine_window(call: Call) -> list[Array]:
    """A sum of cosines over a period."""
    size, dtype = call.scalar(0), call.dtype("output_datatype", 1)
    if size is None or int(size) < 0:
        raise call.error("size is missing or negative")
    n = int(size)
    call.reserve(((n,), dtype), workspace=work_bytes(n))
    a, b, c = _WINDOWS[call.op]
    y = np.empty(n, dtype)
    for first in range(0, n, ELEMENTS):
        part = y[first : first + ELEMENTS]
        at = np.arange(first, first + part.size)
        turn = 2 * math.pi * at / max(1, n if call.integer("periodic", 1) else n - 1)
        part[:] = a - b * np.cos(turn) + c * np.cos(2 * turn)
    return [y]


@evaluates("MelWeightMatrix")
def mel_weights(call: Call) -> list[Array]:
    """Triangles on the mel scale over the bins of a spectrum."""
    bins, length, rate, low, high = (call.scalar(i) for i in range(5))
    if bins is None or length is None or rate is None or low is None or high is None:
        raise call.error("an input is missing")
    count, spectrum = int(bins), int(length) // 2 + 1
    dtype = call.dtype("output_datatype", 1)
    call.reserve(((spectrum, max(count, -1)), dtype), workspace=64 * (count + 2))
    ends = [2595 * math.log10(1 + float(f) / 700) for f in (low, high)]
    mels = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)  # ONNX's step, not the textbook's
    places = ((int(length) + 1) * (700 * (10 ** (mels / 2595) - 1)) // float(rate)).astype(np.int64)
    y = np.zeros((spectrum, count), dtype)
    for i in range(count):
        first, top, last = (int(p) for p in places[i : i + 3])
        if first == top:
            y[top : top + 1, i] = 1
        for j in range(max(first, 0), min(top + 1, spectrum)):
            if top > first:
                y[j, i] = (j - first) / (top - first)
        for j in range(max(top, 0), min(last, spectrum)):
            if last > top:
                y[j, i] = (last - j) / (last - top)
    return [y]
