"""Random numbers, which differ in each run but where the model states a seed."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from ..ir import Attr
from ..stated import dtype_name
from .context import Context, Value, lowers
from .filling import filled


@lowers("RandomNormal", "RandomNormalLike")
def random_normal(ctx: Context) -> list[Value]:
    """Noise about a mean, of a shape or of that of a tensor."""
    return _noise(ctx, False, ctx.number("mean", 0.0), ctx.number("scale", 1.0))


@lowers("RandomUniform", "RandomUniformLike")
def random_uniform(ctx: Context) -> list[Value]:
    """Numbers from ``low`` on and below ``high``, of a shape or of that of a tensor."""
    low, high = ctx.number("low", 0.0), ctx.number("high", 1.0)
    return _noise(ctx, True, low, high - low)


def _noise(ctx: Context, is_uniform: bool, shift: float, factor: float) -> list[Value]:
    lo, hi = _seed(ctx)
    if ctx.node.op_type.endswith("Like"):
        x: Value = ctx.input(0)
        dtype = ctx.dtype(x)
    else:
        x, dtype = filled(ctx, np.zeros(1, np.uint8), tuple(ctx.integers("shape", []))), "f32"
    if ctx.has("dtype"):
        dtype = dtype_name(ctx.integer("dtype", 1), ctx.node.where)
    if dtype != "f32":  # numpy makes the others
        raise ctx.error(f"noise of type {dtype} is not supported")
    attrs: dict[str, Attr] = {"is_uniform": int(is_uniform), "is_seeded": int(ctx.has("seed"))}
    attrs |= {"seed_lo": lo, "seed_hi": hi, "shift": shift, "factor": factor, "end": shift + factor}
    return [ctx.emit("noise", [x], attrs)]


def _seed(ctx: Context) -> tuple[int, int]:
    """Two words of 31 bits: of the model's seed, or of the node's name, so that no two nodes draw the same numbers."""
    stated = np.float32(ctx.number("seed", 0.0)).tobytes() if ctx.has("seed") else ctx.node.output[0].encode()
    return crc32(stated) >> 1, crc32(stated, 1) >> 1
