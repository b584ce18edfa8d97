"""ConvTranspose, as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..build import copy_attrs
from ..ir import Attr
from ..pack import PanelSource
from ..panels import NR
from ..sources import MappedSource
from .constant import Const, stored_form
from .context import Context, Value, lowers
from .convolution import check_bias, constant_bias, conv_op, convolve_image, emit_conv, image_weights
from .spatial import Window, window
from .volumes import Filters, convolve_volume, from_maps, images, maps_rank, slice_volume, to_maps


@lowers("ConvTranspose")
def conv_transpose(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__ConvTranspose.html.

    With strides every pixel of the input makes a block of outputs, from the pixels beside it: a convolution with
    outputs for each place in a block, which are put in order (_by_blocks, _by_depths). Else, dilated or in groups of
    large strides, the input, with zeros between its pixels, goes through a convolution with the kernel turned around.
    """
    x = ctx.input(0)
    rank = maps_rank(ctx, x)
    weights = image_weights(ctx, rank, ctx.known(ctx.input(1), "its weight"))
    cin, cout_group = weights.shape[:2]
    group = ctx.integer("group", 1)
    if group < 1 or cin % group or ctx.shape(x)[1] != cin:
        raise ctx.error(f"input {ctx.shape(x)}, weights {weights.shape}, attribute group={group} do not fit together")
    w = window(ctx, rank, list(weights.shape[-rank:]))
    extra = ctx.integers("output_padding") or [0] * rank
    if len(extra) != rank or any(e < 0 for e in extra):
        raise ctx.error(f"attribute output_padding={extra} does not suit {rank} spatial dimensions")
    axes = range(len(w.kernel))
    extra = [0] * (len(axes) - rank) + extra
    image = to_maps(ctx, x, rank)
    _transposed_pads(ctx, rank, w, extra, ctx.shape(image)[1:-1])
    bias = constant_bias(ctx)
    check_bias(ctx, bias, cout_group * group)
    filters = Filters(weights, bias, group)
    if max(w.strides) > 1 and max(w.dilations) == 1 and (group == 1 or prod(w.strides) <= PLACES_APART):
        if rank < 3:
            return [from_maps(ctx, _by_blocks(ctx, image, w, extra, filters), rank)]
        if group == 1 and w.kernel == w.strides and not any(w.pads) and not any(extra):
            return [from_maps(ctx, _volume_blocks(ctx, image, w, weights, bias), rank)]
        return [from_maps(ctx, _by_depths(ctx, image, w, extra, filters), rank)]
    reach = [w.dilations[i] * (w.kernel[i] - 1) for i in axes]
    before = [0, *(reach[i] - w.pads[i] for i in axes), 0]
    after = [0, *(reach[i] - w.pads[i + len(axes)] + extra[i] for i in axes), 0]
    interior = [0, *(stride - 1 for stride in w.strides), 0]
    image = _padded(ctx, image, before, after, interior)
    unpadded = Window(w.kernel, [1] * len(axes), w.dilations, [0] * (2 * len(axes)))
    if rank == 3:
        turned = Filters(_turned(weights, group), bias, group)
        return [from_maps(ctx, convolve_volume(ctx, image, unpadded, turned, convolve_image), rank)]
    cout = cout_group * group
    wtype, step = stored_form(weights, 1, group)
    panels = PanelSource(
        conv_op(cin // group, cout, group),
        (cout, cin // group, w.kernel[0], w.kernel[1]),
        group,
        _turned(weights, group).source,
        bias.source if bias else None,
        wtype=wtype,
        step=step,
    )
    return [from_maps(ctx, emit_conv(ctx, image, unpadded, panels), rank)]


def _turned(weights: Const, group: int) -> Const:
    """Weights [cin, cout / group, ...] of a transposed convolution as those of the convolution that it is."""
    cin, cout, *kernel = weights.shape
    spatial = range(-len(kernel), 0)
    shape = (group * cout, cin // group, *kernel)

    def turned(v: np.ndarray) -> np.ndarray:
        if group == 1:  # a view, where the general case is a copy
            return np.flip(v, tuple(spatial)).swapaxes(0, 1)
        grouped = np.flip(v.reshape(group, cin // group, cout, *kernel), tuple(spatial))
        return grouped.swapaxes(1, 2).reshape(shape)

    return Const(weights.name, shape, "f32", MappedSource(weights.source, turned, f"turned{group}"))


def _transposed_pads(ctx: Context, rank: int, w: Window, extra: list[int], sizes: tuple[int, ...]) -> None:
    """Apply output_shape and auto_pad to the window's pads."""
    wanted = ctx.integers("output_shape")
    mode = ctx.text("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ctx.error(f"attribute auto_pad={mode} is not known")
    if wanted:
        wanted = [1] * (len(sizes) - rank) + wanted[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(sizes, w.strides, strict=True)]
    else:
        if mode == "VALID":
            w.pads = [0] * (2 * len(sizes))
        return
    for i, size in enumerate(sizes):
        reach = (w.kernel[i] - 1) * w.dilations[i] + 1
        total = w.strides[i] * (size - 1) + extra[i] + reach - wanted[i]
        if total < 0:  # more than the input reaches: the end grows
            extra[i] -= total
            total = 0
        small, large = total // 2, total - total // 2
        w.pads[i], w.pads[i + len(sizes)] = (small, large) if mode == "SAME_UPPER" else (large, small)


class _Axis(NamedTuple):
    """A transposed convolution along an axis: block q of outputs, as long as the stride, is computed from input pixels
    q - taps + 1 to q. Output 0 lies in block ``first``.
    """

    kernel: int
    stride: int
    first: int
    after: int
    """Blocks behind the last input pixel."""
    crop: tuple[int, int]
    """Outputs of the first and of the last block that are left out."""

    def places(self, is_apart: bool) -> list[_Places]:
        """Return a block's places: each with its own taps if ``is_apart``, or all with as many taps."""
        taps = [max(-(-(self.kernel - place) // self.stride), 1) for place in range(self.stride)]
        return [_Places(i, 1, n) for i, n in enumerate(taps)] if is_apart else [_Places(0, self.stride, taps[0])]


class _Places(NamedTuple):
    """Neighbouring places in a block, and the taps of the convolution that computes them."""

    first: int
    number: int
    taps: int


def _axis(w: Window, i: int, extra: int, size: int) -> _Axis:
    kernel, stride, before, after = w.kernel[i], w.strides[i], w.pads[i], w.pads[i + len(w.kernel)]
    first, behind = before // stride, (kernel - 1 - after + extra) // stride
    outputs = stride * (size - 1) + kernel - before - after + extra
    crop = before - first * stride
    return _Axis(kernel, stride, first, behind, (crop, (size + behind - first) * stride - crop - outputs))


PLACES_APART = 4
"""Most places in a block each of which has a convolution of its own."""


def _by_blocks(ctx: Context, image: Value, w: Window, extra: list[int], filters: Filters) -> Value:
    """ConvTranspose of an image by what its outputs are made of: those at one place in their blocks, of the strides'
    size, are a convolution of the input by every stride-th tap, turned around (Shi et al., Is the deconvolution layer
    the same as a convolutional layer?, 2016). Zeros between pixels are not multiplied. Zeros behind the kernel are,
    where its sides are no multiples of the strides and places with fewer taps are not computed apart.
    """
    axes = _axes(w, extra, ctx.shape(image))
    made: list[Value] = []
    for places in _places_of_images(axes, filters):
        kernel = Window([own.taps for own in places], [1, 1], [1, 1], [0] * 4)
        own = _filters_of_places(filters, axes, places)
        wtype, step = stored_form(filters.weights, 1, own.weights.shape[0] // filters.weights.shape[1])
        op = conv_op(own.weights.shape[1], own.weights.shape[0], filters.group)
        shape: tuple[int, int, int, int] = own.weights.shape  # type: ignore[assignment]
        bias = own.bias.source if own.bias else None
        panels = PanelSource(op, shape, filters.group, own.weights.source, bias, wtype=wtype, step=step)
        made.append(emit_conv(ctx, _around(ctx, image, axes, places), kernel, panels))
    return _in_order(ctx, made, axes)


def _by_depths(ctx: Context, volume: Value, w: Window, extra: list[int], filters: Filters) -> Value:
    """ConvTranspose of a volume as ``_by_blocks`` has it: the depths at each place in their blocks are images whose
    blocks come out of a convolution of the volume. Then the depths are put in order.
    """
    depth, *plane = axes = _axes(w, extra, ctx.shape(volume))
    depths: list[Value] = []
    for place in depth.places(is_apart=True):
        made: list[Value] = []
        for places in _places_of_images(plane, filters):
            kernel = Window([own.taps for own in (place, *places)], [1] * 3, [1] * 3, [0] * 6)
            own = _filters_of_places(filters, axes, [place, *places])
            x = _around(ctx, volume, axes, [place, *places])
            made.append(images(ctx, convolve_volume(ctx, x, kernel, own, convolve_image)))
        image = _in_order(ctx, made, plane)
        count, height, width, cout = ctx.shape(image)
        depths.append(ctx.reshape(image, (count, 1, height * width, cout)))
    whole = depths[0] if len(depths) == 1 else ctx.emit("concat", depths, {"axis": 1})
    n, size = ctx.shape(volume)[0], depth.stride * count // ctx.shape(volume)[0]
    y = ctx.reshape(whole, (n, size, height, width, cout))
    return slice_volume(ctx, y, 1, [1], depth.crop[0], size - sum(depth.crop))


def _axes(w: Window, extra: list[int], shape: Sequence[int]) -> list[_Axis]:
    return [_axis(w, i, extra[i], size) for i, size in enumerate(shape[1:-1])]


def _places_of_images(axes: Sequence[_Axis], filters: Filters) -> list[tuple[_Places, ...]]:
    """Return the rows and columns of blocks that each convolution makes."""
    is_odd = any(0 != axis.kernel % axis.stride < axis.kernel for axis in axes)
    is_apart = is_odd and filters.weights.shape[1] >= NR and prod(axis.stride for axis in axes) <= PLACES_APART
    is_apart |= filters.group > 1  # a group's outputs are neighbours, whatever their place
    return list(product(*(axis.places(is_apart) for axis in axes)))


def _around(ctx: Context, maps: Value, axes: Sequence[_Axis], places: Sequence[_Places]) -> Value:
    """Maps with the zeros that these places' taps reach."""
    before = [own.taps - 1 - axis.first for own, axis in zip(places, axes, strict=True)]
    after = [axis.after for axis in axes]
    return _padded(ctx, maps, [0, *before, 0], [0, *after, 0], [0] * (len(axes) + 2))


def _in_order(ctx: Context, made: list[Value], axes: Sequence[_Axis]) -> Value:
    """An image out of those of each place in its blocks."""
    blocks = made[0] if len(made) == 1 else ctx.emit("concat", made, {"axis": 3})
    crop = [axis.crop[end] for end in (0, 1) for axis in axes]
    return ctx.emit("depth_to_space", [blocks], {"blocks": [axis.stride for axis in axes], "crop": crop})


def _filters_of_places(filters: Filters, axes: Sequence[_Axis], places: Sequence[_Places]) -> Filters:
    """Filters of the outputs at these places of a block, [depth][row][column][group][cout]; groups have one place."""
    weights, bias, group = filters
    cin, cout = weights.shape[0] // group, weights.shape[1]
    count = prod(own.number for own in places)
    shape = (count * group * cout, cin, *(own.taps for own in places))
    ends = 3 + 2 * len(axes)

    def placed(v: np.ndarray) -> np.ndarray:
        v = v.reshape(group, cin, cout, *v.shape[2:])
        for i, (axis, own) in enumerate(zip(axes, places, strict=True)):
            v = _taps_of_places(v, 3 + 2 * i, axis.stride, own)
        return v.transpose(*range(4, ends, 2), 0, 2, 1, *range(3, ends, 2)).reshape(shape)

    source = MappedSource(weights.source, placed, f"places{axes}{places}in{group}")
    if bias:
        tiled = MappedSource(bias.source, lambda v: np.tile(v, count), f"tiled{count}")
        bias = Const(bias.name, (shape[0],), "f32", tiled)
    return Filters(Const(weights.name, shape, "f32", source), bias, group)


def _taps_of_places(v: np.ndarray, dim: int, stride: int, places: _Places) -> np.ndarray:
    """A dimension of taps as two: taps of each place, turned around, and places. Behind the kernel there are zeros."""
    missing = max(places.taps * stride - v.shape[dim], 0)
    filled = np.pad(v, [(0, missing if d == dim else 0) for d in range(v.ndim)])
    taps = np.arange(places.taps)[::-1, None] * stride + places.first + np.arange(places.number)
    return np.take(filled, taps, dim)


def _padded(ctx: Context, image: Value, before: list[int], after: list[int], interior: list[int]) -> Value:
    """An image with zeros around it and between its pixels."""
    if not any((*before, *after, *interior)):
        return image
    pads: dict[str, Attr] = {"mode": "constant", "before": before, "after": after, "interior": interior}
    return ctx.emit("pad", [image], pads | {"value": 0.0, "value_int": 0})


def _volume_blocks(ctx: Context, volume: Value, w: Window, weights: Const, bias: Const | None) -> Value:
    """ConvTranspose of a volume whose kernel is its stride, in one group: each pixel's outputs, cout for each tap, are
    moved apart; depths first, as a copy has at most six dimensions with strides of their own.
    """
    cin, cout = weights.shape[:2]
    n, d, height, width, _ = ctx.shape(volume)
    depth, taps = w.kernel[0], prod(w.kernel)
    shape = (taps * cout, cin, 1, 1)
    source = MappedSource(weights.source, lambda v: v.transpose(2, 3, 4, 1, 0).reshape(shape), f"blocks{shape}")
    tiled = MappedSource(bias.source, lambda v: np.tile(v, taps), f"tiled{taps}") if bias else None
    wtype, step = stored_form(weights, 1, taps)
    panels = PanelSource("conv", shape, 1, source, tiled, wtype=wtype, step=step)
    pixels = ctx.reshape(volume, (n * d, height, width, cin))
    out = emit_conv(ctx, pixels, Window([1, 1], [1, 1], [1, 1], [0, 0, 0, 0]), panels)
    parts = ctx.reshape(out, (n * d, height * width, depth, taps // depth * cout))
    moved = ctx.emit("copy", [parts], copy_attrs(4, perm=[0, 2, 1, 3]))
    blocks = ctx.reshape(moved, (n * d * depth, height, width, taps // depth * cout))
    y = ctx.emit("depth_to_space", [blocks], {"blocks": w.kernel[1:], "crop": [0] * 4})
    return ctx.reshape(y, (n, *(size * k for size, k in zip((d, height, width), w.kernel, strict=True)), cout))
