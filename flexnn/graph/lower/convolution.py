"""Conv and ConvTranspose."""

from __future__ import annotations

from math import prod

import numpy as np

from flexnn import _core

from ..build import NO_ACT, copy_attrs
from ..ir import Attr, WeightSource
from ..pack import PanelSource
from ..panels import is_narrow
from ..sources import ArraySource, MappedSource
from .constant import Const, stored_form
from .context import Context, Value, lowers
from .spatial import Window, auto_pads, seen_taps, spatial_rank, window
from .volumes import Filters, convolve_volume, from_maps, maps_rank, to_maps


def window_attrs(w: Window) -> dict[str, Attr]:
    """A window as attributes of an internal operator."""
    return {"kernel": w.kernel, "strides": w.strides, "dilations": w.dilations, "pads": w.pads}


def emit_conv(
    ctx: Context, x: Value, w: Window, panels: PanelSource, sums: str = "f32", residual: Value | None = None
) -> int:
    """A conv or dwconv node over the image ``x``; depthwise where each channel has one filter of its own."""
    attrs = window_attrs(w) | NO_ACT | {"sums": sums} | panels.attrs
    return ctx.emit_panels(panels.op, [x] if residual is None else [x, residual], attrs, panels)


def conv_op(cin_group: int, cout: int, group: int) -> str:
    """The internal operator for a grouped convolution."""
    return "dwconv" if cin_group == 1 and group == cout and group > 1 else "conv"


def _weights(ctx: Context, rank: int, weights: Const) -> Const:
    """The weights as [a, b, kh, kw], of volumes [a, b, kd, kh, kw], checked against kernel_shape."""
    if len(weights.shape) != rank + 2 or weights.dtype != "f32" or 0 in weights.shape:
        raise ctx.error(f"weights of shape {weights.shape} and type {weights.dtype}")
    kernel = ctx.integers("kernel_shape") or list(weights.shape[2:])
    if kernel != list(weights.shape[2:]):
        raise ctx.error(f"attribute kernel_shape={kernel} does not fit weights of shape {weights.shape}")
    a, b, *spatial = weights.shape
    image = (a, b, 1, *spatial)
    return weights.reshaped(image) if rank == 1 else weights


def _bias(ctx: Context) -> Const | None:
    value = ctx.optional(2)
    return None if value is None else ctx.known(value, "its bias")


def _check_bias(ctx: Context, bias: Const | None, cout: int) -> None:
    if bias is not None and (bias.shape != (cout,) or bias.dtype != "f32"):
        raise ctx.error(f"bias of shape {bias.shape} and type {bias.dtype} does not fit {cout} output channels")


@lowers("Conv")
def conv(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__Conv.html."""
    return [convolve(ctx, ctx.input(0), ctx.known(ctx.input(1), "its weight"), _bias(ctx))]


def convolve(ctx: Context, x: Value, weights: Const, bias: Const | None, sums: str = "f32") -> Value:
    """The convolution of a node with Conv's attributes. ``sums``: i32 of integers, exact."""
    rank = maps_rank(ctx, x) if sums == "f32" else spatial_rank(ctx, x)
    weights = _weights(ctx, rank, weights)
    cout, cin_group = weights.shape[:2]
    group = ctx.integer("group", 1)
    if group < 1 or cout % group or ctx.shape(x)[1] != cin_group * group:
        raise ctx.error(f"input {ctx.shape(x)}, weights {weights.shape}, attribute group={group} do not fit together")
    w = window(ctx, rank, list(weights.shape[-rank:]))
    _check_bias(ctx, bias, cout)
    image = to_maps(ctx, x, rank)
    auto_pads(ctx, w, ctx.shape(image)[1:-1])
    filters = Filters(weights, bias, group)
    if rank == 3:
        y = convolve_volume(ctx, image, w, filters, _convolve_image)
    else:
        y = _convolve_image(ctx, image, w, filters, sums=sums)
    return from_maps(ctx, y, rank)


def _convolve_image(
    ctx: Context, image: Value, w: Window, filters: Filters, residual: Value | None = None, sums: str = "f32"
) -> Value:
    """The convolution of an image, added to ``residual``."""
    weights, bias, group = filters
    if not ctx.in_run:
        w = Window(w.kernel[:], w.strides, w.dilations, w.pads[:])
        weights = _seen(weights, w, ctx.shape(image)[1:3])  # type: ignore[arg-type]
    cout, cin_group = weights.shape[:2]
    shape = (cout, cin_group, w.kernel[0], w.kernel[1])
    wtype, step = stored_form(weights, 0)
    source = weights.source
    if sums == "i32" and w.kernel[0] * w.kernel[1] * cin_group > _core.exact_terms(wtype):
        source, shape, group = _in_wider_groups(source, shape, group)
    op = conv_op(shape[1], cout, group)
    panels = PanelSource(op, shape, group, source, bias.source if bias else None, wtype=wtype, step=step)
    return emit_conv(ctx, image, w, panels, sums, residual)


def _seen(weights: Const, w: Window, sizes: tuple[int, int]) -> Const:
    """Leave out the taps at the ends of the kernel that only ever meet padding, in the window, too: on the small maps
    behind many strides they are most of a layer's weights.
    """
    taps = [seen_taps(w, axis, size) for axis, size in enumerate(sizes)]
    if [len(seen) for seen in taps] == w.kernel or (weights.narrow is not None and weights.narrow.block):
        return weights
    for axis, seen in enumerate(taps):
        w.pads[axis] -= w.dilations[axis] * seen.start
        w.pads[axis + 2] -= w.dilations[axis] * (w.kernel[axis] - seen.stop)
        w.kernel[axis] = len(seen)
    return weights.taps(*taps)


def _in_wider_groups(
    source: WeightSource, shape: tuple[int, int, int, int], group: int
) -> tuple[WeightSource, tuple[int, int, int, int], int]:
    """Weights of depthwise and narrow groups as those of fewer groups, with zeros, whose kernels cut long sums into
    exact parts; other weights as they are. With their shape and the number of groups.
    """
    cout, wide, kh, kw = shape

    def is_cut(times: int) -> bool:
        narrow = is_narrow(cout, wide * times, group // times)
        return not narrow and conv_op(wide * times, cout, group // times) == "conv"

    times = next(d for d in range(1, group + 1) if group % d == 0 and is_cut(d))
    if times == 1:
        return source, shape, group
    wider = (cout, wide * times, kh, kw)

    def spread(v: np.ndarray) -> np.ndarray:
        y = np.zeros((group, times, cout // group, wide, kh, kw), np.float32)
        own = np.arange(group)
        y[own, own % times] = v.reshape(group, cout // group, wide, kh, kw)
        return y.transpose(0, 2, 1, 3, 4, 5).reshape(wider)

    return MappedSource(source, spread, f"spread{shape}in{group}times{times}"), wider, group // times


@lowers("ConvTranspose")
def conv_transpose(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__ConvTranspose.html.

    Either one pixel makes one block of outputs of its own (kernel = strides): a 1x1 convolution and a copy. Or the
    input, with zeros between its pixels, goes through a convolution with the kernel turned around.
    """
    x = ctx.input(0)
    rank = maps_rank(ctx, x)
    weights = _weights(ctx, rank, ctx.known(ctx.input(1), "its weight"))
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
    bias = _bias(ctx)
    _check_bias(ctx, bias, cout_group * group)
    block = w.kernel == w.strides and not any(w.pads) and not any(extra) and max(w.dilations) == 1
    if block and group == 1 and max(w.kernel) > 1:
        return [from_maps(ctx, _blocks(ctx, image, w, weights, bias), rank)]
    reach = [w.dilations[i] * (w.kernel[i] - 1) for i in axes]
    before = [0, *(reach[i] - w.pads[i] for i in axes), 0]
    after = [0, *(reach[i] - w.pads[i + len(axes)] + extra[i] for i in axes), 0]
    interior = [0, *(stride - 1 for stride in w.strides), 0]
    if any(before) or any(after) or any(interior):
        pads: dict[str, Attr] = {"mode": "constant", "before": before, "after": after, "interior": interior}
        image = ctx.emit("pad", [image], pads | {"value": 0.0, "value_int": 0})
    unpadded = Window(w.kernel, [1] * len(axes), w.dilations, [0] * (2 * len(axes)))
    if rank == 3:
        filters = Filters(_turned(weights, group), bias, group)
        return [from_maps(ctx, convolve_volume(ctx, image, unpadded, filters, _convolve_image), rank)]
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


def _blocks(ctx: Context, image: Value, w: Window, weights: Const, bias: Const | None) -> Value:
    """ConvTranspose whose kernel is its stride, in one group: each pixel's outputs, cout for each tap, moved apart."""
    cin, cout = weights.shape[:2]
    n, *sizes = ctx.shape(image)[:-1]
    axes, taps = len(sizes), prod(w.kernel)
    shape = (taps * cout, cin, 1, 1)
    order = [*range(2, 2 + axes), 1, 0]
    source = MappedSource(
        weights.source, lambda v: v.reshape(cin, cout, *w.kernel).transpose(order).reshape(shape), f"blocks{shape}"
    )
    tiled = ArraySource(np.tile(bias.load(), taps)) if bias else None
    wtype, step = stored_form(weights, 1, taps)
    panels = PanelSource("conv", shape, 1, source, tiled, wtype=wtype, step=step)
    pixels = ctx.reshape(image, (n * sizes[0], *sizes[1:], cin)) if axes == 3 else image
    out = emit_conv(ctx, pixels, Window([1, 1], [1, 1], [1, 1], [0, 0, 0, 0]), panels)
    images = n
    if axes == 3:  # a copy has at most six dimensions with strides of their own: depths are moved before the others
        (d, h, width), depth = sizes, w.kernel[0]
        parts = ctx.reshape(out, (n * d, h * width, depth, taps // depth * cout))
        out = ctx.emit("copy", [parts], copy_attrs(4, perm=[0, 2, 1, 3]))
        images = n * d * depth
    parts = ctx.reshape(out, (images, *sizes[-2:], *w.kernel[-2:], cout))
    moved = ctx.emit("copy", [parts], copy_attrs(6, perm=[0, 1, 3, 2, 4, 5]))
    return ctx.reshape(moved, (n, *(size * k for size, k in zip(sizes, w.kernel, strict=True)), cout))
