"""Probabilities of classes from those of each pair of them, as support vector machines need them."""

from __future__ import annotations

from .context import Context, Value, lowers


@lowers("flexnn.Couple")
def couple(ctx: Context) -> list[Value]:
    """[n, classes] from [n, classes (classes - 1) / 2], which say how probable the first of a pair is."""
    return [ctx.emit("couple", [ctx.input(0)], {"classes": ctx.integer("classes", 2)})]
