"""Over axes: sums and their kin, running sums, softmax, norms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir import Array
from .call import Call, evaluates

Axes = tuple[int, ...]


def _log_sum_exp(x: Array, axes: Axes, keep: bool) -> Array:
    top = np.max(x, axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    y = np.log(np.sum(np.exp(x - top), axes, keepdims=True)) + top
    return np.asarray(y if keep else np.squeeze(y, axes))


def _ends(dtype: np.dtype) -> tuple[object, object]:
    """The smallest and the largest value of a type: what an empty maximum and minimum are."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _max(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.max(x, axes, keepdims=keep, initial=_ends(x.dtype)[0]))  # type: ignore[call-overload]


def _min(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.min(x, axes, keepdims=keep, initial=_ends(x.dtype)[1]))  # type: ignore[call-overload]


_REDUCE: dict[str, Callable[[Array, Axes, bool], Array]] = {
    "ReduceSum": lambda x, a, k: np.sum(x, a, x.dtype, keepdims=k),
    "ReduceMean": lambda x, a, k: np.mean(x, a, keepdims=k),
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceProd": lambda x, a, k: np.prod(x, a, x.dtype, keepdims=k),
    "ReduceL1": lambda x, a, k: np.sum(np.abs(x), a, x.dtype, keepdims=k),
    "ReduceL2": lambda x, a, k: np.sqrt(np.sum(x * x, a, x.dtype, keepdims=k)),
    "ReduceSumSquare": lambda x, a, k: np.sum(x * x, a, x.dtype, keepdims=k),
    "ReduceLogSum": lambda x, a, k: np.log(np.sum(x, a, x.dtype, keepdims=k)),
    "ReduceLogSumExp": _log_sum_exp,
}


_OF_FLOATS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


@evaluates(*_REDUCE)
def reduced(call: Call) -> list[Array]:
    """Axes are an attribute until opset 18 (ReduceSum: 13), an input since; none means all, or with noop, nothing."""
    x = call.x(0)
    if call.op in _OF_FLOATS and x.dtype.kind in "iu":
        wide = Call(call.op, call.attrs, [x.astype(np.float64), *call.inputs[1:]], call.opset, 1, call.bytes_max)
        return [reduced(wide)[0].astype(x.dtype)]
    if call.opset >= (13 if call.op == "ReduceSum" else 18):
        axes = call.get_ints(1) or []
        if not axes and call.integer("noop_with_empty_axes", 0):
            return [np.asarray(_REDUCE[call.op](x, (), True), x.dtype)]
    else:
        axes = call.integers("axes")
    chosen = tuple(call.axes(axes, x.ndim)) or tuple(range(x.ndim))
    return [np.asarray(_REDUCE[call.op](x, chosen, bool(call.integer("keepdims", 1))), x.dtype)]


@evaluates("CumSum", "CumProd")
def cumulated(call: Call) -> list[Array]:
    """Running sums or products along an axis."""
    x, given = call.x(0), call.scalar(1)
    axis = call.axis(0 if given is None else int(given), x.ndim)
    total, start = (np.cumsum, 0) if call.op == "CumSum" else (np.cumprod, 1)
    if call.integer("reverse", 0):
        x = np.flip(x, axis)
    y = total(x, axis, x.dtype)
    if call.integer("exclusive", 0):
        y = np.roll(y, 1, axis)
        if x.shape[axis]:
            y[(slice(None),) * axis + (0,)] = start
    return [np.flip(y, axis) if call.integer("reverse", 0) else y]


def softmax(x: Array, axis: int) -> Array:
    """exp(x) over its sum along an axis, in x's type."""
    e = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
    return np.asarray(e / np.sum(e, axis, keepdims=True), x.dtype)


def _log_softmax(x: Array, axis: int) -> Array:
    shifted = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True)), x.dtype)


def _hardmax(x: Array, axis: int) -> Array:
    hot = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.asarray(np.argmax(x, axis, keepdims=True) == hot, x.dtype)


_OVER_AXIS = {"Softmax": softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}


@evaluates(*_OVER_AXIS)
def over_axis(call: Call) -> list[Array]:
    """Along one axis since opset 13; before, over all from the axis on as one."""
    x = call.x(0)
    if call.opset >= 13:
        return [_OVER_AXIS[call.op](x, call.axis(call.integer("axis", -1), x.ndim))]
    axis = call.axis(call.integer("axis", 1), x.ndim)
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return [_OVER_AXIS[call.op](rows, 1).reshape(x.shape)]


@evaluates("LpNormalization")
def lp_normalization(call: Call) -> list[Array]:
    """Divided by the 1- or 2-norm along an axis; zero where that is zero."""
    x, p = call.x(0), call.integer("p", 2)
    if p not in (1, 2):
        raise call.error(f"p={p} is neither 1 nor 2")
    axis = call.axis(call.integer("axis", -1), x.ndim)
    norm = np.sum(np.abs(x), axis, keepdims=True) if p == 1 else np.sqrt(np.sum(x * x, axis, keepdims=True))
    return [np.asarray(np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)), x.dtype)]


@evaluates("MeanVarianceNormalization")
def mean_variance(call: Call) -> list[Array]:
    """Zero mean and unit variance over axes."""
    x = call.x(0)
    axes = tuple(call.axes(call.integers("axes", [0, 2, 3]), x.ndim))
    mean = np.mean(x, axes, keepdims=True)
    deviation = np.sqrt(np.mean(x * x, axes, keepdims=True) - mean * mean)
    return [np.asarray((x - mean) / (deviation + 1e-9), x.dtype)]


@evaluates("Det")
def determinant(call: Call) -> list[Array]:
    """Determinants of square matrices."""
    x = call.x(0)
    return [np.asarray(np.linalg.det(x), x.dtype)]
