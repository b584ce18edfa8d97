"""Operators that make many numbers out of few, where these are too many to be constants: the run computes them."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np

from ..ir import DTYPES
from ..model import Constant
from ..stated import dtype_name
from .constant import Const
from .context import Context, Lowering, Value, lowers
from .shape import expanded, progression


def filled(ctx: Context, number: np.ndarray, shape: tuple[int, ...]) -> Value:
    """One number everywhere."""
    return expanded(ctx, ctx.array(number.reshape((1,) * len(shape)), "number"), shape)


def _constant_of_shape(ctx: Context) -> list[Value]:
    """Zeros, or the number of an attribute."""
    shape, value = ctx.constant_ints(0, "its shape"), ctx.attr("value")
    number = np.asarray(value.source.load()) if isinstance(value, Constant) else np.zeros(1, np.float32)
    return [filled(ctx, number, tuple(shape or []))]


def _range(ctx: Context) -> list[Value]:
    """Start + i * step, from i as integers."""
    start, limit, step = (
        ctx.known(ctx.input(i), name) for i, name in enumerate(("its start", "its limit", "its step"))
    )
    first, last, by = map(_number, (start, limit, step))
    whole = start.dtype != "f32"
    count = -((last - first) // -by) if whole else math.ceil((last - first) / by)
    return [progression(ctx, start, step, count)]


def _number(value: Const) -> Any:
    """The number of a constant of one; a size where it is one (graph/sizes.py)."""
    numbers = getattr(value.source, "numbers", None)
    return (value.load() if numbers is None else numbers).item()


FILLINGS: dict[str, Lowering] = {"ConstantOfShape": _constant_of_shape, "Range": _range}
"""Lowerings of operators whose inputs are constants, and whose outputs are to be none."""
EYE_BYTES = 64 << 10
"""Most bytes of a diagonal that is a constant."""


@lowers("EyeLike")
def eye_like(ctx: Context) -> list[Value]:
    """Ones on a diagonal; shape and type of the input decide, not its numbers."""
    x, k = ctx.input(0), ctx.integer("k", 0)
    shape = ctx.shape(x)
    if len(shape) != 2:
        raise ctx.error(f"input of shape {shape} is not a matrix")
    dtype = dtype_name(ctx.integer("dtype", 0), ctx.node.where) if ctx.has("dtype") else ctx.dtype(x)
    if prod(shape) * DTYPES[dtype].itemsize <= EYE_BYTES:
        rows, columns = map(int, shape)
        return [ctx.array(np.eye(rows, columns, k=max(-rows, min(columns, k)), dtype=DTYPES[dtype]), "eye")]
    y = filled(ctx, np.ones(1, DTYPES[dtype]), shape)
    for is_upper in (1, 0):
        y = ctx.emit("trilu", [y], {"k": k, "is_upper": is_upper})
    return [y]
