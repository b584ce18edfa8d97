"""Over axes: sums and their kin, running sums, softmax, norms."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, Axes, boxes, fill, summed, work_bytes
from .call import Call, copied, evaluates
from .indexing import extreme, extreme_bytes


def _ends(dtype: np.dtype) -> tuple[object, object]:
    """The smallest and the largest value of a type: what an empty maximum and minimum are."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    top = _max(x, axes)
    top[~np.isfinite(top)] = 0
    y = summed(x, axes, lambda v, t: np.exp(v - t), np.promote_types(x.dtype, np.float32), top)
    np.log(y, out=y)
    y += top
    return y


def _wide(dtype: np.dtype) -> np.dtype:
    """The type in which values of a type are added up: integers in their own, which wraps as ONNX's do."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _mean(x: Array, axes: Axes) -> Array:
    return np.asarray(np.mean(x, axes, keepdims=True))


def _max(x: Array, axes: Axes) -> Array:
    return np.asarray(np.max(x, axes, keepdims=True, initial=_ends(x.dtype)[0]))  # type: ignore[call-overload]


def _min(x: Array, axes: Axes) -> Array:
    return np.asarray(np.min(x, axes, keepdims=True, initial=_ends(x.dtype)[1]))  # type: ignore[call-overload]


_REDUCE_WORDS = {
    "ReduceMean": 1,
    "ReduceL1": 1,
    "ReduceL2": 2,
    "ReduceSumSquare": 1,
    "ReduceLogSum": 1,
    "ReduceLogSumExp": 3,
}
"""Temporaries of 8 bytes for each element of the output."""
_REDUCE: dict[str, Callable[[Array, Axes], Array]] = {
    "ReduceSum": lambda x, a: np.sum(x, a, x.dtype, keepdims=True),
    "ReduceMean": _mean,
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceProd": lambda x, a: np.prod(x, a, x.dtype, keepdims=True),
    "ReduceL1": lambda x, a: summed(x, a, np.abs, _wide(x.dtype)),
    "ReduceL2": lambda x, a: np.sqrt(summed(x, a, np.square, _wide(x.dtype))),
    "ReduceSumSquare": lambda x, a: summed(x, a, np.square, _wide(x.dtype)),
    "ReduceLogSum": lambda x, a: np.log(np.sum(x, a, x.dtype, keepdims=True)),
    "ReduceLogSumExp": _log_sum_exp,
}


_OF_FLOATS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


@evaluates(*_REDUCE)
def reduced(call: Call) -> list[Array]:
    """Axes are an attribute until opset 18 (ReduceSum: 13), an input since; none means all, or with noop, nothing."""
    x = call.x(0)
    is_wide = call.op in _OF_FLOATS and x.dtype.kind in "iu"
    if call.opset >= (13 if call.op == "ReduceSum" else 18):
        axes = call.get_ints(1) or []
        idle = not axes and bool(call.integer("noop_with_empty_axes", 0))
    else:
        axes, idle = call.integers("axes"), False
    chosen = () if idle else tuple(call.axes(axes, x.ndim)) or tuple(range(x.ndim))
    kept = [1 if i in chosen else d for i, d in enumerate(x.shape)]
    words = _REDUCE_WORDS.get(call.op, 0)
    wide_bytes = 8 * x.size if is_wide else 0
    call.reserve((kept, x.dtype), workspace=8 * words * prod(kept) + work_bytes(x.size) + wide_bytes)
    y = np.asarray(_REDUCE[call.op](x.astype(np.float64) if is_wide else x, chosen)).astype(x.dtype, copy=False)
    return [y if idle or call.integer("keepdims", 1) else np.squeeze(y, chosen)]


@evaluates("CumSum", "CumProd")
def cumulated(call: Call) -> list[Array]:
    """Running sums or products along an axis."""
    x, given = call.x(0), call.scalar(1)
    axis = call.axis(0 if given is None else int(given), x.ndim)
    total, start = (np.cumsum, 0) if call.op == "CumSum" else (np.cumprod, 1)
    call.reserve((x.shape, x.dtype), workspace=work_bytes(x.size))
    y = np.empty(x.shape, x.dtype)
    ends = [np.flip(a, axis) if call.integer("reverse", 0) else a for a in (x, y)]
    source, out = (np.moveaxis(a, axis, 0) for a in ends)
    if call.integer("exclusive", 0) and len(out):
        out[0] = start
        source, out = source[:-1], out[1:]
    total(source, 0, x.dtype, out)
    return [y]


def softmax(x: Array, axis: int) -> Array:
    """exp(x) over its sum along an axis, in x's type."""
    y = np.asarray(x - np.max(x, axis, keepdims=True, initial=-np.inf), x.dtype)
    np.exp(y, out=y)
    y /= np.sum(y, axis, keepdims=True)
    return y


def log_softmax(x: Array, axis: int) -> Array:
    """The logarithm of the softmax."""
    y = np.asarray(x - np.max(x, axis, keepdims=True, initial=-np.inf), x.dtype)
    y -= np.log(summed(y, (axis,), np.exp, _wide(x.dtype)))
    return y


def _hardmax(x: Array, axis: int) -> Array:
    y = np.zeros(x.shape, x.dtype)
    np.put_along_axis(y, extreme(x, axis, np.argmax, False), 1, axis)
    return y


_OVER_AXIS = {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": _hardmax}


@evaluates(*_OVER_AXIS)
def over_axis(call: Call) -> list[Array]:
    """Along one axis since opset 13; before, over all from the axis on as one."""
    x = call.x(0)
    if call.opset >= 13:
        axis, shape = call.axis(call.integer("axis", -1), x.ndim), x.shape
    else:
        first = call.axis(call.integer("axis", 1), x.ndim)
        axis, shape = 1, (prod(x.shape[:first]), prod(x.shape[first:]))
    n = x.size // max(shape[axis], 1)
    hard = extreme_bytes(shape, axis, x.itemsize) + 16 * (sum(shape) - shape[axis])
    work = 32 * n + work_bytes(x.size) + (hard if call.op == "Hardmax" else 0)
    call.reserve((x.shape, x.dtype), workspace=work + copied(x))
    return [_OVER_AXIS[call.op](x.reshape(shape), axis).reshape(x.shape)]


@evaluates("LpNormalization")
def lp_normalization(call: Call) -> list[Array]:
    """Divided by the 1- or 2-norm along an axis; zero where that is zero."""
    x, p = call.x(0), call.integer("p", 2)
    if p not in (1, 2):
        raise call.error(f"p={p} is neither 1 nor 2")
    axis = call.axis(call.integer("axis", -1), x.ndim)
    call.reserve((x.shape, x.dtype), workspace=24 * (x.size // max(x.shape[axis], 1)) + work_bytes(x.size))
    norm = summed(x, (axis,), np.abs if p == 1 else np.square, _wide(x.dtype)).astype(x.dtype)
    norm = norm if p == 1 else np.sqrt(norm)
    function = lambda v, n: np.where(n == 0, 0, v / np.where(n == 0, 1, n))  # noqa: E731
    return [fill(np.empty(x.shape, x.dtype), function, x, norm)]


def moments(x: Array, axes: Axes, dtype: np.dtype) -> tuple[Array, Array]:
    """Mean and variance over axes, which stay with size 1. It takes temporaries of a block."""
    count = prod(x.shape[i] for i in axes)
    mean = np.mean(x, axes, dtype, keepdims=True)
    return mean, summed(x, axes, lambda v, m: np.square(v - m), dtype, mean) / count


@evaluates("MeanVarianceNormalization")
def mean_variance(call: Call) -> list[Array]:
    """Zero mean and unit variance over axes."""
    x = call.x(0)
    axes = tuple(call.axes(call.integers("axes", [0, 2, 3]), x.ndim))
    kept = prod(d for i, d in enumerate(x.shape) if i not in axes)
    call.reserve((x.shape, x.dtype), workspace=40 * kept + work_bytes(x.size))
    mean, variance = moments(x, axes, np.promote_types(x.dtype, np.float32))
    return [fill(np.empty(x.shape, x.dtype), lambda v, m, d: (v - m) / (d + 1e-9), x, mean, np.sqrt(variance))]


@evaluates("Det")
def determinant(call: Call) -> list[Array]:
    """Determinants of square matrices."""
    x = call.x(0)
    matrix = prod(x.shape[-2:])
    call.reserve((x.shape[:-2], x.dtype), workspace=16 * max(matrix, ELEMENTS))
    y = np.empty(x.shape[:-2], x.dtype)
    for box in boxes(y.shape, max(1, ELEMENTS // max(matrix, 1))):
        y[box] = np.linalg.det(x[box])
    return [y]
