"""Pools: max and average, sliding and global."""

from __future__ import annotations

from ..build import MAXIMUM
from ..ir import NARROW, Attr
from .context import Context, Value, lowers
from .convolution import window_attrs
from .quantised import chosen
from .spatial import Window, auto_pads, window
from .volumes import from_maps, maps_rank, slide_volume, to_maps


@lowers("MaxPool", "AveragePool")
def pool(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html."""
    x = ctx.input(0)
    rank = maps_rank(ctx, x)
    kernel = ctx.integers("kernel_shape")
    w = window(ctx, rank, kernel)
    image = to_maps(ctx, x, rank)
    auto_pads(ctx, w, ctx.shape(image)[1:-1])
    attrs: dict[str, Attr] = {"kind": "avg" if ctx.node.op_type == "AveragePool" else "max"}
    attrs |= {"ceil_mode": ctx.integer("ceil_mode", 0), "count_include_pad": ctx.integer("count_include_pad", 0)}
    ctx.attr("storage_order")  # orders the Indices output only, which is refused

    def slide(image: Value, w: Window) -> Value:
        return _slide(ctx, image, attrs | window_attrs(w))

    return [from_maps(ctx, slide_volume(ctx, image, w, slide) if rank == 3 else slide(image, w), rank)]


def _slide(ctx: Context, image: Value, attrs: dict[str, Attr]) -> Value:
    """The pool of an image; integers of 8 bits have a maximum."""
    if ctx.dtype(image) not in NARROW or attrs["kind"] != "max":
        return ctx.emit("pool", [image], attrs)
    return chosen(ctx, image, "pool_u8", attrs | MAXIMUM)


@lowers("GlobalAveragePool", "GlobalMaxPool")
def global_pool(ctx: Context) -> list[Value]:
    """Over all dimensions but the first two, which stay."""
    x = ctx.input(0)
    rank = len(ctx.shape(x))
    if rank < 3:
        raise ctx.error(f"input of shape {ctx.shape(x)} has no spatial dimensions")
    kind = "mean" if ctx.node.op_type == "GlobalAveragePool" else "max"
    return [ctx.emit("reduction", [x], {"kind": kind, "axes": list(range(2, rank)), "keepdims": 1})]
