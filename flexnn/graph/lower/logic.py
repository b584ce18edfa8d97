"""Comparisons, logic, bits, choices: element by element over any type."""

from __future__ import annotations

from .context import Context, Value, lowers
from .elementwise import aligned, emit_choice

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


@lowers("Not", "BitwiseNot")
def negation(ctx: Context) -> list[Value]:
    """The opposite: of bool its logic, of integers all bits."""
    return [ctx.emit("pointwise", [ctx.input(0)], {"kind": "not"})]


@lowers("BitShift")
def shift(ctx: Context) -> list[Value]:
    """By as many bits as the second operand says."""
    direction = ctx.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ctx.error(f"direction {direction!r} is neither LEFT nor RIGHT")
    return [ctx.emit("pointwise", [ctx.input(0), ctx.input(1)], {"kind": f"shift_{direction.lower()}"})]


@lowers("IsNaN")
def is_nan(ctx: Context) -> list[Value]:
    """Whether each element is no number."""
    return [ctx.emit("pointwise", [ctx.input(0)], {"kind": "is_nan"})]


@lowers("IsInf")
def is_inf(ctx: Context) -> list[Value]:
    """Whether each element is infinite, of the signs asked for."""
    x, above, below = ctx.input(0), ctx.integer("detect_positive", 1), ctx.integer("detect_negative", 1)
    if not above and not below:
        return [ctx.emit("pointwise", [x, x], {"kind": "less"})]  # never
    kind = "is_inf" if above and below else "is_inf_above" if above else "is_inf_below"
    return [ctx.emit("pointwise", [x], {"kind": kind})]


@lowers("Where")
def where(ctx: Context) -> list[Value]:
    """The condition chooses, all three broadcast."""
    return [emit_choice(ctx, ctx.input(0), ctx.input(1), ctx.input(2))]
