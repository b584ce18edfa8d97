"""Resize and Upsample: over two axes at once, over more of them two by two, for each axis has weights of its own."""

from __future__ import annotations

import math

from ..ir import NARROW, Attr
from ..sizes import is_same
from .context import Context, Value, lowers
from .quantised import chosen

_COORDS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")


@lowers("Upsample")
def upsample(ctx: Context) -> list[Value]:
    """Opsets 7 (scales as attribute) and 9 (as input)."""
    if ctx.opset >= 9:
        values = ctx.constant(1, "its scales")
        scales = [] if values is None else [float(v) for v in values]
    else:
        given = ctx.attr("scales", [1.0])
        scales = list(given) if isinstance(given, list) else []
    return [_resize(ctx, scales, None, "asymmetric", "floor")]


@lowers("Resize")
def resize(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__Resize.html."""
    rank = len(ctx.shape(ctx.input(0)))
    if ctx.opset < 11:
        values = ctx.constant(1, "its scales")
        scales = [] if values is None else [float(v) for v in values]
        # As onnxruntime reads opset 10: shrinking takes the upper neighbour.
        return [_resize(ctx, scales, None, "asymmetric", "ceil" if any(s < 1 for s in scales) else "floor")]
    ctx.attr("extrapolation_value")  # of a mode that is refused
    axes = [ctx.axis(a, rank) for a in ctx.integers("axes")] or list(range(rank))
    values = ctx.constant(2, "its scales")
    sizes = ctx.constant_ints(3, "its sizes")
    policy = ctx.text("keep_aspect_ratio_policy", "stretch")
    coord = ctx.text("coordinate_transformation_mode", "half_pixel")
    if coord not in _COORDS:
        raise ctx.error(f"attribute coordinate_transformation_mode={coord} is not supported")
    nearest = ctx.text("nearest_mode", "round_prefer_floor")
    shape = ctx.shape(ctx.input(0))
    if values is not None and values.size:
        if values.size != len(axes):
            raise ctx.error(f"{values.size} scales do not fit {len(axes)} axes")
        scales = [1.0] * rank
        for axis, scale in zip(axes, values, strict=True):
            scales[axis] = float(scale)
        if coord == "align_corners" and any(math.floor(d * s) != d * s for d, s in zip(shape, scales, strict=True)):
            raise ctx.error("align_corners with scales that make no whole sizes is not supported")
        return [_resize(ctx, scales, None, coord, nearest)]
    if not sizes or len(sizes) != len(axes):
        raise ctx.error(f"sizes {sizes} do not fit {len(axes)} axes")
    ratios = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":  # one ratio for all axes, also where the size is rounded
        ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
        sizes = [math.floor(shape[axis] * ratio + 0.5) for axis, ratio in zip(axes, ratios, strict=True)]
    wanted, scales = list(shape), [1.0] * rank
    for axis, size, ratio in zip(axes, sizes, ratios, strict=True):
        wanted[axis], scales[axis] = size, ratio
    return [_resize(ctx, scales, wanted, coord, nearest)]


def _resize(ctx: Context, scales: list[float], sizes: list[int] | None, coord: str, nearest: str) -> Value:
    """Resize the axes whose scale is not 1."""
    x, mode = ctx.input(0), ctx.text("mode", "nearest")
    shape = ctx.shape(x)
    rank = len(shape)
    if mode not in ("nearest", "linear", "bilinear", "cubic"):
        raise ctx.error(f"attribute mode={mode} is not supported (nearest, linear and cubic are)")
    if ctx.dtype(x) != "f32" and not (ctx.dtype(x) in NARROW and mode == "nearest"):
        raise ctx.error(f"input has type {ctx.dtype(x)}; at run time only float32 is computed, of 8 bits the nearest")
    if len(scales) != rank or not all(0 < s < math.inf for s in scales):
        raise ctx.error(f"scales {scales} do not fit {rank} dimensions")
    if sizes is None:
        sizes = [math.floor(d * s) for d, s in zip(shape, scales, strict=True)]
    if not sizes or any(not 1 <= size < 1 << 31 for size in sizes):
        raise ctx.error(f"scales {scales} are not possible for shape {shape}")
    axes = [i for i in range(rank) if not is_same(sizes[i], shape[i]) or scales[i] != 1]
    op, attrs = _operator(ctx, mode, nearest)
    while axes:
        x = _resize_two(ctx, x, axes[-2:], scales, sizes, op, attrs | {"coord": coord})
        axes = axes[:-2]
    return x


def _resize_two(
    ctx: Context, x: Value, axes: list[int], scales: list[float], sizes: list[int], op: str, attrs: dict[str, Attr]
) -> Value:
    """Resize one or two axes, seen as height and width of [n,h,w,c]."""
    shape = ctx.shape(x)
    rank = len(shape)
    result, resized = [sizes[i] if i in axes else shape[i] for i in range(rank)], axes
    if len(axes) == 1:
        beside = axes[0] - 1 if axes[0] > 1 else axes[0] + 1
        axes = sorted((axes[0], beside)) if 0 <= beside < rank else axes
    image, perm = x, list(range(rank))
    if len(axes) == 1:  # a vector
        image = ctx.reshape(x, (1, 1, shape[0], 1))
        factors, target = (1.0, scales[0]), [1, result[0]]
    else:
        rest = [i for i in range(rank) if i not in axes]
        # What is before and behind the two axes: one dimension each.
        before, behind = (rest[:1], rest[1:]) if rest[:1] == [0] else ([], rest)
        perm = before + axes + behind
        image = ctx.transpose(x, perm)
        moved = ctx.shape(image)
        at = len(before)
        outer, inner = math.prod(moved[:at]), math.prod(moved[at + 2 :])
        image = ctx.reshape(image, (outer, moved[at], moved[at + 1], inner))
        given = [scales[i] if i in resized else 1.0 for i in axes]
        factors, target = (given[0], given[1]), [result[i] for i in axes]
    attrs |= {"sizes": target, "scale_h": factors[0], "scale_w": factors[1]}
    y: Value = chosen(ctx, image, "resize_u8", attrs) if ctx.dtype(x) in NARROW else ctx.emit(op, [image], attrs)
    y = ctx.reshape(y, tuple(result[p] for p in perm))
    return ctx.transpose(y, [perm.index(i) for i in range(rank)])


def _operator(ctx: Context, mode: str, nearest: str) -> tuple[str, dict[str, Attr]]:
    """The operator that resizes in a mode, with the attributes that are its own."""
    is_antialiased, is_exclusive = (int(bool(ctx.integer(name, 0))) for name in ("antialias", "exclude_outside"))
    a = ctx.number("cubic_coeff_a", -0.75)
    if mode == "nearest" or (mode != "cubic" and not is_antialiased):
        return "resize", {"mode": "nearest" if mode == "nearest" else "linear", "nearest": nearest}
    attrs: dict[str, Attr] = {"is_cubic": int(mode == "cubic"), "is_antialiased": is_antialiased}
    return "resample", attrs | {"is_exclusive": is_exclusive, "a": a}
