"""Conv, and what other operators that are convolutions share with it."""

from __future__ import annotations

import numpy as np

from flexnn import _core

from ..build import NO_ACT
from ..ir import Attr, WeightSource
from ..pack import PanelSource
from ..panels import is_narrow
from ..sources import MappedSource
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


def image_weights(ctx: Context, rank: int, weights: Const) -> Const:
    """The weights as [a, b, kh, kw], of volumes [a, b, kd, kh, kw], checked against kernel_shape."""
    if len(weights.shape) != rank + 2 or weights.dtype != "f32" or 0 in weights.shape:
        raise ctx.error(f"weights of shape {weights.shape} and type {weights.dtype}")
    kernel = ctx.integers("kernel_shape") or list(weights.shape[2:])
    if kernel != list(weights.shape[2:]):
        raise ctx.error(f"attribute kernel_shape={kernel} does not fit weights of shape {weights.shape}")
    a, b, *spatial = weights.shape
    image = (a, b, 1, *spatial)
    return weights.reshaped(image) if rank == 1 else weights


def constant_bias(ctx: Context) -> Const | None:
    """The third input, which must be known when compiling; None if there is none."""
    value = ctx.optional(2)
    return None if value is None else ctx.known(value, "its bias")


def check_bias(ctx: Context, bias: Const | None, cout: int) -> None:
    """Refuse a bias that is not float32 [cout]. Raises GraphError."""
    if bias is not None and (bias.shape != (cout,) or bias.dtype != "f32"):
        raise ctx.error(f"bias of shape {bias.shape} and type {bias.dtype} does not fit {cout} output channels")


@lowers("Conv")
def conv(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__Conv.html."""
    return [convolve(ctx, ctx.input(0), ctx.known(ctx.input(1), "its weight"), constant_bias(ctx))]


def convolve(ctx: Context, x: Value, weights: Const, bias: Const | None, sums: str = "f32") -> Value:
    """The convolution of a node with Conv's attributes. ``sums``: i32 of integers, exact."""
    rank = maps_rank(ctx, x) if sums == "f32" else spatial_rank(ctx, x)
    weights = image_weights(ctx, rank, weights)
    cout, cin_group = weights.shape[:2]
    group = ctx.integer("group", 1)
    if group < 1 or cout % group or ctx.shape(x)[1] != cin_group * group:
        raise ctx.error(f"input {ctx.shape(x)}, weights {weights.shape}, attribute group={group} do not fit together")
    w = window(ctx, rank, list(weights.shape[-rank:]))
    check_bias(ctx, bias, cout)
    image = to_maps(ctx, x, rank)
    auto_pads(ctx, w, ctx.shape(image)[1:-1])
    filters = Filters(weights, bias, group)
    if rank == 3:
        y = convolve_volume(ctx, image, w, filters, convolve_image)
    else:
        y = convolve_image(ctx, image, w, filters, sums=sums)
    return from_maps(ctx, y, rank)


def convolve_image(
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
