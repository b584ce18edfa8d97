"""Signals: Fourier transforms and windows."""

from __future__ import annotations

import math

import numpy as np

from ..ir import Array
from .call import Call, evaluates


def _complex(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def _pairs(y: Array, dtype: np.dtype) -> Array:
    return np.stack([y.real, y.imag], -1).astype(dtype)


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
    call.allow((*x.shape[:axis], n, *x.shape[axis + 1 : -1], 2), np.dtype(np.float64))
    values = _complex(x)
    if inverse and onesided:  # half a spectrum to a real signal
        whole = n if length is not None else 2 * (x.shape[axis] - 1)
        return [np.fft.irfft(values, whole, axis)[..., None].astype(x.dtype)]
    y = (np.fft.ifft if inverse else np.fft.fft)(values, n, axis)
    if onesided:
        y = y[(slice(None),) * axis + (slice(n // 2 + 1),)]
    return [_pairs(y, x.dtype)]


@evaluates("STFT")
def stft(call: Call) -> list[Array]:
    """Fourier transforms of windows of a signal [batch, time, 1 or 2]."""
    signal, step, window, given = call.x(0), call.scalar(1), call.get(2), call.scalar(3)
    if step is None or signal.ndim not in (2, 3):
        raise call.error(f"signal of shape {signal.shape} has neither 2 nor 3 dimensions, or frame_step is missing")
    length = int(given) if given is not None else (window.shape[0] if window is not None else 0)
    values = _complex(signal[..., None] if signal.ndim == 2 else signal)
    hop, samples = int(step), values.shape[1]
    if hop < 1 or not 0 < length <= samples or (window is not None and window.shape != (length,)):
        raise call.error(f"frames of {length} samples every {hop} do not fit into {samples} samples")
    frames = (samples - length) // hop + 1
    call.allow((values.shape[0], frames, length, 2), np.dtype(np.float64))
    cut = np.stack([values[:, i * hop : i * hop + length] for i in range(frames)], 1)
    y = np.fft.fft(cut if window is None else cut * window, axis=-1)
    if call.integer("onesided", 1):
        y = y[..., : length // 2 + 1]
    return [_pairs(y, signal.dtype)]


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
    call.allow((n,), np.dtype(np.float64))
    a, b, c = _WINDOWS[call.op]
    turn = 2 * math.pi * np.arange(n) / max(1, n if call.integer("periodic", 1) else n - 1)
    return [(a - b * np.cos(turn) + c * np.cos(2 * turn)).astype(dtype)]


@evaluates("MelWeightMatrix")
def mel_weights(call: Call) -> list[Array]:
    """Triangles on the mel scale over the bins of a spectrum."""
    bins, length, rate, low, high = (call.scalar(i) for i in range(5))
    if bins is None or length is None or rate is None or low is None or high is None:
        raise call.error("an input is missing")
    count, spectrum = int(bins), int(length) // 2 + 1
    dtype = call.dtype("output_datatype", 1)
    call.allow((spectrum, max(count, -1)), dtype)
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
