"""Pictures read between their pixels: at the places of a grid, and in regions."""

from __future__ import annotations

from ..ir import Attr
from .context import Context, Value, lowers
from .spatial import from_image, to_image

_MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}


@lowers("GridSample")
def grid_sample(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__GridSample.html, of two spatial dimensions."""
    x, grid = ctx.input(0), ctx.input(1)
    mode, border = ctx.text("mode", "linear"), ctx.text("padding_mode", "zeros")
    aligned = ctx.integer("align_corners", 0)
    if len(ctx.shape(x)) != 4 or mode not in _MODES or border not in ("zeros", "border", "reflection"):
        raise ctx.error(f"mode={mode}, padding_mode={border} of an input of shape {ctx.shape(x)} is not supported")
    attrs: dict[str, Attr] = {"mode": _MODES[mode], "border": border, "is_aligned": int(bool(aligned))}
    return [from_image(ctx, ctx.emit("grid_sample", [to_image(ctx, x), grid], attrs), 2)]


@lowers("RoiAlign")
def roi_align(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__RoiAlign.html."""
    x, regions, pictures = ctx.input(0), ctx.input(1), ctx.input(2)
    mode = ctx.text("mode", "avg")
    default = "half_pixel" if ctx.opset >= 16 else "output_half_pixel"
    coordinates = ctx.text("coordinate_transformation_mode", default)
    if len(ctx.shape(x)) != 4 or mode not in ("avg", "max"):
        raise ctx.error(f"mode={mode} of an input of shape {ctx.shape(x)} is not supported")
    attrs: dict[str, Attr] = {"sizes": [ctx.integer("output_height", 1), ctx.integer("output_width", 1)]}
    attrs |= {"is_max": int(mode == "max"), "is_half": int(coordinates == "half_pixel")}
    attrs |= {"ratio": ctx.integer("sampling_ratio", 0), "scale": ctx.number("spatial_scale", 1.0)}
    return [from_image(ctx, ctx.emit("roi_align", [to_image(ctx, x), regions, pictures], attrs), 2)]
