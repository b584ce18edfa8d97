"""Resizing: every mode works axis by axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..ir import Array
from .blocks import ELEMENTS, boxes
from .call import Call, evaluates


def _nearest(call: Call, at: Array) -> Array:
    match call.text("nearest_mode", "round_prefer_floor"):
        case "round_prefer_floor":
            return np.asarray(np.ceil(at - 0.5))
        case "round_prefer_ceil":
            return np.asarray(np.floor(at + 0.5))
        case "floor":
            return np.asarray(np.floor(at))
        case "ceil":
            return np.asarray(np.ceil(at))
    raise call.error("nearest_mode is not supported")


def cubic(d: Array, a: float) -> Array:
    """Shares of elements at these distances in cubic interpolation."""
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


_PLACES = 1024
"""Most elements of the first axis that are resized at a time."""


@quick_dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized."""

    axis: int
    size: int
    target: int
    scale: float
    ends: tuple[float, float]
    """Ends of the region that tf_crop_and_resize reads."""

    def taps(self, call: Call, mode: str) -> tuple[int, float]:
        """The number of elements of the input that count for one of the output, and a filter's shrinkage."""
        if mode == "nearest":
            return 1, 1.0
        shrink = max(min(1.0, self.scale), 1e-9) if call.integer("antialias", 0) else 1.0
        return 2 * math.ceil((1 if mode == "linear" else 2) / shrink) + 1, shrink


@quick_dataclass(frozen=True, slots=True)
class _Shares:
    """For each element of the output along an axis: places in the input, their shares, whether it is outside."""

    axis: int
    places: Array
    shares: Array
    outside: Array

    def part(self, span: slice) -> _Shares:
        """Those of some elements."""
        return _Shares(self.axis, self.places[span], self.shares[span], self.outside[span])

    def applied(self, x: Array, outside: float | None) -> Array:
        """X resized along the axis: in its own type where one element counts alone, in double precision otherwise."""
        index: tuple[Any, ...] = (slice(None),) * self.axis
        along = -1, *[1] * (x.ndim - 1 - self.axis)
        y: Array = x[(*index, self.places[:, 0])]
        if self.places.shape[1] > 1:
            y = y * self.shares[:, 0].reshape(along)
            for tap in range(1, self.places.shape[1]):
                y += x[(*index, self.places[:, tap])] * self.shares[:, tap].reshape(along)
        if outside is not None and self.outside.any():
            y[(*index, self.outside)] = outside
        return y


def _source(call: Call, mode: str, how: _Axis, i: Array) -> Array:
    """Return the places in the input of elements ``i`` of the output, by coordinate_transformation_mode."""
    size, target, scale = how.size, how.target, how.scale
    match mode:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            middle = size / 2
            return middle * (1 - target / (size * scale)) + (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if target > 1 else np.zeros(i.size)
        case "align_corners":
            return i * (size - 1) / (size * scale - 1) if size * scale > 1 else np.zeros(i.size)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
        case "tf_crop_and_resize":
            first, last = how.ends
            if target > 1:
                return first * (size - 1) + i * (last - first) * (size - 1) / (target - 1)
            return np.full(i.size, 0.5 * (first + last) * (size - 1))
    raise call.error(f"coordinate_transformation_mode {mode!r} is not supported")


def _shares(call: Call, mode: str, how: _Axis, coordinates: str, span: slice) -> _Shares:
    """The shares of some elements of the output."""
    at = _source(call, coordinates, how, np.arange(span.start or 0, span.stop, dtype=np.float64))
    outside = (at < 0) | (at > how.size - 1)
    count, shrink = how.taps(call, mode)
    if mode == "nearest":
        chosen = _nearest(call, np.floor(at + 1e-9) if call.op == "Upsample" or call.opset < 11 else at)
        places = np.clip(chosen, 0, how.size - 1).astype(np.int64)[:, None]
        return _Shares(how.axis, places, np.ones(places.shape), outside)
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(-(count // 2), count // 2 + 1)
    shares = (places - at[:, None]) * shrink
    a = call.number("cubic_coeff_a", -0.75)
    shares = np.maximum(0, 1 - np.abs(shares)) if mode == "linear" else cubic(shares, a)
    if call.integer("exclude_outside", 0):
        shares[(places < 0) | (places >= how.size)] = 0
    shares /= np.sum(shares, 1, keepdims=True)
    return _Shares(how.axis, np.clip(places, 0, how.size - 1, out=places), shares, outside)


def _modes(call: Call, rank: int) -> tuple[str, str, list[int], list[float]]:
    """Mode, coordinate transformation, axes, region."""
    mode = {"bilinear": "linear"}.get(call.text("mode", "nearest"), call.text("mode", "nearest"))
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    if call.op == "Upsample" or call.opset < 11:
        coordinates = "asymmetric"
    if mode not in ("nearest", "linear", "cubic"):
        raise call.error(f"mode {mode!r} is not supported")
    axes = call.axes(call.integers("axes"), rank) if call.has("axes") else list(range(rank))
    values = call.get(1) if call.op == "Resize" and call.opset >= 11 else None
    roi = [0.0] * len(axes) + [1.0] * len(axes)
    if values is not None and values.size:
        roi = [float(v) for v in values.reshape(-1)]
    if len(roi) != 2 * len(axes):
        raise call.error(f"roi has {len(roi)} numbers, which do not fit the axes")
    return mode, coordinates, axes, roi


@evaluates("Resize", "Upsample")
def resize(call: Call) -> list[Array]:
    """https://onnx.ai/onnx/operators/onnx__Resize.html; some rows of the first axis at a time."""
    x = call.x(0)
    mode, coordinates, axes, roi = _modes(call, x.ndim)
    scales, target = _amounts(call, x, axes)
    whole, hows = list(x.shape), []
    for i, axis in sorted(enumerate(axes), key=lambda pair: pair[1]):
        size = x.shape[axis]
        if (size == target[i] and scales[i] == 1 and coordinates != "tf_crop_and_resize") or not size:
            continue
        whole[axis] = target[i]
        hows.append(_Axis(axis, size, target[i], scales[i], (roi[i], roi[i + len(axes)])))
    shape = call.shape(whole)
    first = hows[0].axis if hows else 0
    stages, rest = [x.shape[first + 1 :]], list(x.shape)
    for how in hows[1:]:
        rest[how.axis] = how.target
        stages.append(tuple(rest[first + 1 :]))
    row = max(prod(dims) for dims in stages)
    block = max(ELEMENTS, row) if len(hows) else 0
    sizes = [min(hows[0].target, _PLACES), *(how.target for how in hows[1:])] if hows else []
    tables = sum(t * (8 * 8 + 6 * 8 * how.taps(call, mode)[0]) for t, how in zip(sizes, hows, strict=True))
    call.reserve((shape, x.dtype), workspace=tables + 56 * min(block, max(x.size, row * prod(shape[: first + 1]))))
    if not hows:
        return [x.copy()]
    resized = [_shares(call, mode, how, coordinates, slice(t)) for t, how in zip(sizes, hows, strict=True)]
    outside = call.number("extrapolation_value", 0.0) if coordinates == "tf_crop_and_resize" else None
    y = np.empty(shape, x.dtype)
    for box in boxes(shape[: first + 1], max(1, min(_PLACES, ELEMENTS // max(row, 1)))):
        if hows[0].target == sizes[0]:
            part = resized[0].part(box[-1])
        else:  # a part of the axis at a time
            part = _shares(call, mode, hows[0], coordinates, slice(*box[-1].indices(hows[0].target)))
        _fill(y[box], x[box[:-1]], [part, *resized[1:]], outside)
    return [y]


def _fill(y: Array, x: Array, resized: Sequence[_Shares], outside: float | None) -> None:
    """Write the resized x; integers are rounded."""
    for one in resized:
        x = one.applied(x, outside)
    if y.dtype.kind in "iu" and x.dtype.kind == "f":
        np.rint(x, out=x)
        np.clip(x, np.iinfo(y.dtype).min, np.iinfo(y.dtype).max, out=x)
    y[...] = x


def _amounts(call: Call, x: Array, axes: list[int]) -> tuple[list[float], list[int]]:
    """Scale and size of each axis, from scales or sizes."""
    own = [x.shape[a] for a in axes]
    if call.op == "Upsample" and call.opset < 9:
        given: Array | None = np.array(call.numbers("scales", []))
        sizes = None
    elif call.op == "Upsample" or call.opset < 11:
        given, sizes = call.get(1), None
    else:
        given, sizes = call.get(2), call.get_ints(3)
    if sizes:
        if len(sizes) != len(axes):
            raise call.error(f"{len(sizes)} sizes do not fit {len(axes)} axes")
        scales = [t / max(d, 1) for t, d in zip(sizes, own, strict=True)]
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(scales)
            return [one] * len(axes), [math.floor(one * d + 0.5) for d in own]
        return scales, sizes
    if given is None or given.size != len(axes):
        raise call.error(f"neither sizes nor {len(axes)} scales are given")
    scales = [float(s) for s in given.reshape(-1)]
    if not all(0 < s < 1e9 for s in scales):
        raise call.error(f"scales {scales}")
    return scales, [math.floor(s * d) for s, d in zip(scales, own, strict=True)]
