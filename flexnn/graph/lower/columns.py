"""Col2Im: the columns of a convolution's patches, added where the patches lie in the picture."""

from __future__ import annotations

from itertools import product
from math import prod

from ..ir import Attr
from .context import Context, Value, lowers
from .elementwise import emit_binary

TAPS_MAX = 64
"""Most taps of a patch; numpy adds those of larger ones."""


@lowers("Col2Im")
def columns_to_image(ctx: Context) -> list[Value]:
    """For each tap its columns, spread over the padded picture by the strides, are added; then the pads go."""
    x = ctx.input(0)
    image, block = (ctx.constant_ints(i, what) or [] for i, what in ((1, "its image"), (2, "its block")))
    rank, shape = len(image), ctx.shape(x)
    dilations, strides = (ctx.integers(name) or [1] * rank for name in ("dilations", "strides"))
    pads = ctx.integers("pads") or [0] * (2 * rank)
    taps = prod(block)
    if not rank or {len(block), len(dilations), len(strides), len(pads) / 2} != {rank} or len(shape) != 3:
        raise ctx.error(f"image {image}, block {block}, strides {strides}, pads {pads} do not fit shape {shape}")
    if any(n < 1 for n in (*image, *block, *dilations, *strides)) or any(pad < 0 for pad in pads):
        raise ctx.error(f"image {image}, block {block}, strides {strides}, pads {pads} are not possible")
    if taps > TAPS_MAX or ctx.dtype(x) != "f32":
        raise ctx.error(f"a block {block} of {ctx.dtype(x)} is not supported")
    whole = [d + a + b for d, a, b in zip(image, pads[:rank], pads[rank:], strict=True)]
    reach = [1 + (n - 1) * d for n, d in zip(block, dilations, strict=True)]
    counts = [(d - r) // s + 1 for d, r, s in zip(whole, reach, strides, strict=True)]
    if min(counts) < 1 or shape[1] % taps or prod(counts) != shape[2]:
        raise ctx.error(f"shape {shape} is not that of patches {block} of a picture {image}")
    planes = shape[0] * (shape[1] // taps)
    x = ctx.reshape(x, (planes, taps, *counts))
    total: Value | None = None
    for k, tap in enumerate(product(*map(range, block))):
        part = ctx.slice(x, [0, k, *[0] * rank], [planes, 1, *counts], [1] * (rank + 2))
        before = [i * d for i, d in zip(tap, dilations, strict=True)]
        spread = [1 + (n - 1) * s for n, s in zip(counts, strides, strict=True)]
        after = [d - n - b for d, n, b in zip(whole, spread, before, strict=True)]
        attrs: dict[str, Attr] = {"mode": "constant", "value": 0.0, "value_int": 0, "before": [0, *before]}
        attrs |= {"after": [0, *after], "interior": [0, *(s - 1 for s in strides)]}
        placed: Value = ctx.emit("pad", [ctx.reshape(part, (planes, *counts))], attrs)
        total = placed if total is None else emit_binary(ctx, total, placed, "add")
    assert total is not None
    cut = ctx.slice(total, [0, *pads[:rank]], [planes, *image], [1] * (rank + 1))
    return [ctx.reshape(cut, (shape[0], shape[1] // taps, *image))]
