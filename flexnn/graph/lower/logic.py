"""Comparisons, logic, choices: element by element over any type."""

from __future__ import annotations

import numpy as np

from .context import Context, Value, lowers
from .elementwise import aligned

_COMPARE = {"Equal": "equal", "Less": "less", "LessOrEqual": "less_equal"}
_TURNED = {"Greater": "less", "GreaterOrEqual": "less_equal"}
_LOGIC = {"And": "and", "Or": "or", "Xor": "xor"}
_BITS = {"BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor"}


@lowers(*_COMPARE, *_TURNED, *_LOGIC, *_BITS)
def pair(ctx: Context) -> list[Value]:
    """Two operands of one type, with numpy's broadcasting."""
    operator, a = ctx.node.op_type, ctx.input(0)
    b = aligned(ctx, a, ctx.input(1))
    if operator in _TURNED:
        return [ctx.emit("pointwise", [b, a], {"kind": _TURNED[operator]})]
    if operator in _LOGIC and {ctx.dtype(a), ctx.dtype(b)} != {"bool"}:
        raise ctx.error(f"operands of types {ctx.dtype(a)} and {ctx.dtype(b)} are not both bool")
    return [ctx.emit("pointwise", [a, b], {"kind": (_COMPARE | _LOGIC | _BITS)[operator]})]


@lowers("Not")
def negation(ctx: Context) -> list[Value]:
    """Equal to false."""
    return [ctx.emit("pointwise", [ctx.input(0), ctx.array(np.zeros((), np.bool_), "false")], {"kind": "equal"})]


@lowers("IsNaN")
def is_nan(ctx: Context) -> list[Value]:
    """Lower to a comparison: only NaN is not equal to itself."""
    x = ctx.input(0)
    same = ctx.emit("pointwise", [x, x], {"kind": "equal"})
    return [ctx.emit("pointwise", [same, ctx.array(np.zeros((), np.bool_), "false")], {"kind": "equal"})]


@lowers("Where")
def where(ctx: Context) -> list[Value]:
    """The condition chooses, all three broadcast."""
    return [ctx.emit("pointwise", [ctx.input(1), ctx.input(2), ctx.input(0)], {"kind": "where"})]
