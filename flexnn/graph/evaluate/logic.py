"""Comparisons, logic, choices."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .blocks import over
from .call import Call, broadcast_shape, evaluates, old_broadcast

_BOOL = np.dtype(np.bool_)

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
    return [over(call, _COMPARE.get(call.op) or _LOGIC[call.op], [a, b], _BOOL)]


@evaluates("Not")
def negation(call: Call) -> list[Array]:
    """Logical not."""
    call.reserve((call.x(0).shape, _BOOL))
    return [np.logical_not(call.x(0))]


@evaluates("IsNaN")
def is_nan(call: Call) -> list[Array]:
    """Whether each element is no number."""
    call.reserve((call.x(0).shape, _BOOL))
    return [np.isnan(call.x(0))]


@evaluates("IsInf")
def is_inf(call: Call) -> list[Array]:
    """Whether each element is infinite, of the signs asked for."""
    x = call.x(0)
    positive, negative = bool(call.integer("detect_positive", 1)), bool(call.integer("detect_negative", 1))
    return [over(call, lambda v: (np.isposinf(v) & positive) | (np.isneginf(v) & negative), [x], _BOOL)]


@evaluates("Where")
def where(call: Call) -> list[Array]:
    """Elements of two operands by a condition, all broadcast."""
    condition, a, b = call.x(0), call.x(1), call.x(2)
    if condition.dtype != np.bool_ or a.dtype != b.dtype:
        raise call.error(f"condition {condition.dtype} and operands {a.dtype}, {b.dtype} do not fit together")
    call.reserve((broadcast_shape(call, condition, a, b), a.dtype))
    return [np.where(condition, a, b)]
