"""Comparisons, logic, choices."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .call import Call, broadcast_shape, evaluates, old_broadcast

_COMPARE = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
_LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}


@evaluates(*_COMPARE, *_LOGIC)
def pairs(call: Call) -> list[Array]:
    """Comparisons and logic of two operands of one type, broadcast."""
    a = call.x(0)
    b = old_broadcast(call, a, call.x(1))
    if a.dtype != b.dtype:
        raise call.error(f"the operands have different types: {a.dtype} and {b.dtype}")
    broadcast_shape(call, a, b)
    return [np.asarray((_COMPARE.get(call.op) or _LOGIC[call.op])(a, b), np.bool_)]


@evaluates("Not")
def negation(call: Call) -> list[Array]:
    """Logical not."""
    return [np.logical_not(call.x(0))]


@evaluates("IsNaN")
def is_nan(call: Call) -> list[Array]:
    """Whether each element is no number."""
    return [np.isnan(call.x(0))]


@evaluates("IsInf")
def is_inf(call: Call) -> list[Array]:
    """Whether each element is infinite, of the signs asked for."""
    x = call.x(0)
    positive, negative = call.integer("detect_positive", 1), call.integer("detect_negative", 1)
    return [(np.isposinf(x) & bool(positive)) | (np.isneginf(x) & bool(negative))]


@evaluates("Where")
def where(call: Call) -> list[Array]:
    """Elements of two operands by a condition, all broadcast."""
    condition, a, b = call.x(0), call.x(1), call.x(2)
    if condition.dtype != np.bool_ or a.dtype != b.dtype:
        raise call.error(f"condition {condition.dtype} and operands {a.dtype}, {b.dtype} do not fit together")
    broadcast_shape(call, condition, a, b)
    return [np.where(condition, a, b)]
