"""Ensembles of trees, as importing states them (graph/contrib/trees.py): rows of features and the forest's words."""

from __future__ import annotations

from ..ir import Attr
from .context import Context, Value, lowers

_COUNTS = ("trees", "nodes", "entries", "results", "depth", "is_plain", "is_positive", "has_base")
_NAMES = ("aggregate", "transform", "classes")


@lowers("flexnn.Trees")
def trees(ctx: Context) -> list[Value]:
    """Scores; of a classifier labels and scores."""
    x, forest = ctx.input(0), ctx.input(1)
    is_wide, features = ctx.integer("is_wide", 0), ctx.integer("features", 0)
    wanted = "f64" if is_wide else "f32"
    if ctx.dtype(x) != wanted:
        x = ctx.emit("cast", [x], {"to": wanted})
    shape = ctx.shape(x)
    if len(shape) == 1:
        x, shape = ctx.reshape(x, (1, *shape)), (1, *shape)
    if len(shape) != 2 or shape[1] < features:
        raise ctx.error(f"input of shape {shape} does not have the {features} features that its branches compare")
    attrs: dict[str, Attr] = {name: ctx.integer(name, 0) for name in _COUNTS}
    attrs |= {name: ctx.text(name, "") for name in _NAMES}
    to_wide = ctx.integer("to_wide", 0)
    y = ctx.emit("trees", [x, forest], attrs | {"to": "f64" if to_wide else "f32"})
    if attrs["classes"] == "none":
        return [y]
    rows, results = shape[0], ctx.integer("results", 0)
    scores = ctx.reshape(ctx.slice(y, [0], [rows * results], [1]), (rows, results))
    best = ctx.emit("cast", [ctx.slice(y, [rows * results], [rows], [1])], {"to": "i64"})
    return [ctx.emit("gather", [ctx.input(2), best], {"axis": 0}), scores]
