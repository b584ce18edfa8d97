"""Elements set by their position: triangles of matrices, one of many by an index, diagonals, ranges."""

from __future__ import annotations

from ..attributes import INT_MAX
from ..evaluate import evaluate
from .constant import Const
from .context import Context, Value, lowers
from .elementwise import emit_cast
from .moving import moving_range


@lowers("Trilu")
def trilu(ctx: Context) -> list[Value]:
    """The upper or lower triangle of matrices."""
    k = ctx.constant_ints(1, "its diagonal")
    shift = max(-INT_MAX, min(INT_MAX, k[0])) if k else 0
    return [ctx.emit("trilu", [ctx.input(0)], {"k": shift, "is_upper": int(bool(ctx.integer("upper", 1)))})]


@lowers("OneHot")
def one_hot(ctx: Context) -> list[Value]:
    """The second value where the index says, elsewhere the first."""
    indices, depth, values = ctx.input(0), ctx.constant(1, "its depth"), ctx.input(2)
    if depth is None or depth.size != 1:
        raise ctx.error("its depth is not a number")
    axis = ctx.axis(ctx.integer("axis", -1), len(ctx.shape(indices)) + 1)
    if ctx.dtype(indices) not in ("i64", "i32"):
        indices = emit_cast(ctx, indices, "i64")
    return [ctx.emit("one_hot", [indices, values], {"axis": axis, "depth": int(depth.item())})]


@lowers("Range")
def arange(ctx: Context) -> list[Value]:
    """A constant, of known bounds; else as many numbers as there are at all bounds."""
    if not all(isinstance(ctx.input(i), Const) for i in range(3)):
        return [moving_range(ctx)]
    names = ("its start", "its limit", "its step")
    bounds = [ctx.known(ctx.input(i), name).load() for i, name in enumerate(names)]
    return [ctx.array(evaluate("Range", {}, bounds, ctx.opset)[0], "range")]
