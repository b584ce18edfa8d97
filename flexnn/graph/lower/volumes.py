"""Windows over three dimensions by those over two: each depth is an image of the batch.

A volume is [n, d, h, w, c]. A kernel of depth 1 is one of images. One of height and width 1 runs along the rows of
images [d, h * w]. Any other is a sum of convolutions, one for each of its depths, each of which adds to what the one
before it left in place: nothing is gathered but the padding in depth, and every convolution of images serves.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from ..ir import Attr
from .constant import Const
from .context import Context, Value
from .spatial import Window, from_image, seen_taps, spatial_rank, to_image

GATHERED_CHANNELS = 16
"""Most input channels of a kernel, of all its depths, whose depths are gathered: the sums of so few are soon computed,
and writing and reading them again takes longer."""


class Filters(NamedTuple):
    """Weights and bias of a convolution, and its number of groups."""

    weights: Const
    bias: Const | None
    group: int


Convolution = Callable[[Context, Value, Window, Filters, "Value | None"], Value]
"""Convolution of images, added to a residual or to none."""


def maps_rank(ctx: Context, value: Value) -> int:
    """1, 2 or 3 spatial dimensions of [n, c, ...]. Raises GraphError."""
    rank = len(ctx.shape(value)) - 2
    if rank > 3:
        raise ctx.error(f"input of shape {ctx.shape(value)}: only one, two or three spatial dimensions are supported")
    return rank if rank == 3 else spatial_rank(ctx, value)


def to_maps(ctx: Context, value: Value, rank: int) -> Value:
    """[n,c,d,h,w] as [n,d,h,w,c]; with fewer spatial dimensions as an image."""
    return ctx.transpose(value, [0, 2, 3, 4, 1]) if rank == 3 else to_image(ctx, value)


def from_maps(ctx: Context, value: Value, rank: int) -> Value:
    """The way back from ``to_maps``."""
    return ctx.transpose(value, [0, 4, 1, 2, 3]) if rank == 3 else from_image(ctx, value, rank)


def parted(w: Window) -> tuple[Window, Window]:
    """A window over (depth, height, width) as one over depth and one over (height, width)."""
    depth = Window(w.kernel[:1], w.strides[:1], w.dilations[:1], [w.pads[0], w.pads[3]])
    return depth, Window(w.kernel[1:], w.strides[1:], w.dilations[1:], [*w.pads[1:3], *w.pads[4:]])


def along_depth(depth: Window) -> Window:
    """A window over depth as one over the rows of images [d, h * w]."""
    before, after = depth.pads
    return Window([*depth.kernel, 1], [*depth.strides, 1], [*depth.dilations, 1], [before, 0, after, 0])


def images(ctx: Context, volume: Value) -> Value:
    """Each depth as an image."""
    n, d, *rest = ctx.shape(volume)
    return ctx.reshape(volume, (n * d, *rest))


def rows(ctx: Context, volume: Value) -> Value:
    """Each depth as a row of an image."""
    n, d, h, w, c = ctx.shape(volume)
    return ctx.reshape(volume, (n, d, h * w, c))


def volume_of(ctx: Context, image: Value, n: int, d: int) -> Value:
    """The way back from ``images``."""
    return ctx.reshape(image, (n, d, *ctx.shape(image)[1:]))


def convolve_volume(ctx: Context, volume: Value, w: Window, filters: Filters, of: Convolution) -> Value:
    """The convolution of a volume, by convolutions of images."""
    depth, plane = parted(w)
    weights = filters.weights
    n, d, height, width, c = ctx.shape(volume)
    if not ctx.in_run:
        seen = seen_taps(depth, 0, d)
        if len(seen) < depth.kernel[0] and (weights.narrow is None or not weights.narrow.block):
            step = depth.dilations[0]
            depth.pads = [depth.pads[0] - step * seen.start, depth.pads[1] - step * (depth.kernel[0] - seen.stop)]
            depth.kernel, weights = [len(seen)], weights.depths(seen)
    taps = depth.kernel[0]
    if taps > 1 and plane.kernel == [1, 1] and not any(plane.pads):
        thin = slice_volume(ctx, volume, 2, plane.strides)
        _, _, height, width, _ = ctx.shape(thin)
        flat = weights.reshaped((*weights.shape[:2], taps, 1))
        sums = of(ctx, rows(ctx, thin), along_depth(depth), filters._replace(weights=flat), None)
        return ctx.reshape(sums, (n, ctx.shape(sums)[1], height, width, weights.shape[0]))
    reach = (taps - 1) * depth.dilations[0] + 1
    out = (d + sum(depth.pads) - reach) // depth.strides[0] + 1
    if out < 1:
        raise ctx.error(f"a window of {taps} does not fit into {d} elements")
    if taps > 1:  # in the order of memory that images have, whatever the input's is: it is moved once, not for each tap
        volume = ctx.reshape(volume, (n, d, height * width * c, 1, 1))
    volume = _padded(ctx, volume, *depth.pads)
    parts = [slice_volume(ctx, volume, 1, depth.strides, tap * depth.dilations[0], out) for tap in range(taps)]
    parts = [ctx.reshape(part, (n * out, height, width, c)) for part in parts]
    if taps > 1 and taps * c <= GATHERED_CHANNELS and filters.group == 1:
        parts = [ctx.emit("concat", parts, {"axis": 3})]
        cout, _, _, *kernel = weights.shape
        weights = weights.transposed([0, 2, 1, 3, 4]).reshaped((cout, taps * c, 1, *kernel))
    y: Value | None = None
    for tap, part in enumerate(parts):
        own = Filters(weights.depth(tap), None if tap else filters.bias, filters.group)
        y = of(ctx, part, plane, own, y)
    assert y is not None
    return volume_of(ctx, y, n, out)


def slide_volume(ctx: Context, volume: Value, w: Window, slide: Callable[[Value, Window], Value]) -> Value:
    """A pool of a volume: of each depth, then along depth. The size of a window is a product, so averages are right."""
    depth, plane = parted(w)
    n, d, *_ = ctx.shape(volume)
    is_flat = depth.kernel == [1] and depth.strides == [1] and not any(depth.pads)
    if is_flat or prod(plane.kernel) != 1 or prod(plane.strides) != 1 or any(plane.pads):
        volume = volume_of(ctx, slide(images(ctx, volume), plane), n, d)
    if is_flat:
        return volume
    _, _, h, width, c = ctx.shape(volume)
    y = slide(rows(ctx, volume), along_depth(depth))
    return ctx.reshape(y, (n, ctx.shape(y)[1], h, width, c))


def _padded(ctx: Context, volume: Value, before: int, after: int) -> Value:
    """``volume`` with zeros in front of and behind its depths, or without some of these."""
    if before > 0 or after > 0:
        attrs: dict[str, Attr] = {"mode": "constant", "value": 0.0, "value_int": 0, "interior": [0] * 5}
        attrs |= {"before": [0, max(before, 0), 0, 0, 0], "after": [0, max(after, 0), 0, 0, 0]}
        volume = ctx.emit("pad", [volume], attrs)
    if before < 0 or after < 0:
        d = ctx.shape(volume)[1] - max(-before, 0) - max(-after, 0)
        volume = slice_volume(ctx, volume, 1, [1], max(-before, 0), d)
    return volume


def slice_volume(ctx: Context, volume: Value, axis: int, strides: list[int], start: int = 0, size: int = 0) -> Value:
    """Every so many elements along ``axis`` and the axes behind it; ``size`` of them, or all from ``start`` on."""
    shape = ctx.shape(volume)
    starts, sizes, steps = [0] * 5, list(shape), [1] * 5
    for i, step in enumerate(strides, axis):
        starts[i], steps[i] = start, step
        sizes[i] = size or -(-(shape[i] - start) // step)
    return ctx.slice(volume, starts, sizes, steps)
