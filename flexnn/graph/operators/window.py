"""Operators over images [n,h,w,c] without weights: pooling, resizing, blocks of pixels from channels."""

from __future__ import annotations

import math

from ..attributes import Float, Int, Ints, float_attr, int_attr, ints_attr, node_error
from ..ir import DTYPES, Node, Shape, Tensor
from ..strided import fits_inner
from .fields import PAIR, SPATIAL, enum, enum_index, image, pixel_strides, window_fields, window_sizes
from .record import ANY_DTYPE, FLOAT, Cost, Operator, Values, always_together
from .rows import (
    block_rows,
    cut_blocks,
    cut_resize,
    cut_window,
    no_halves,
    resample_reach,
    resample_rows,
    resize_rows,
    window_rows,
)


def _infer_pool(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, h, w, c = image(node, shapes[0])
    return (n, *window_sizes(node, h, w, bool(int_attr(node, "ceil_mode"))), c), "f32"


def _encode_pool(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    (n, h, w, c), (_, oh, ow, _) = inputs[0].shape, y.shape
    values: Values = {"kind": enum_index("pool_kind", node.attrs["kind"]), "n": n, "h": h, "w": w, "c": c}
    values |= {"oh": oh, "ow": ow, "pb": ints_attr(node, "pads")[2], "pr": ints_attr(node, "pads")[3]}
    values |= {"count_include_pad": int_attr(node, "count_include_pad")} | window_fields(node)
    return values | pixel_strides("x", inputs[0]) | pixel_strides("y", y)


def _infer_resize(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, _, _, c = image(node, shapes[0])
    if not all(0 < float_attr(node, name) < math.inf for name in ("scale_h", "scale_w")):
        raise node_error(node, "a scale is not positive")
    return (n, *ints_attr(node, "sizes"), c), "f32"


def _encode_resize(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"mode": enum_index("resize_mode", node.attrs["mode"])}
    values["nearest"] = enum_index("resize_nearest", node.attrs["nearest"])
    return values | _encode_map(node, inputs[0], y)


def _infer_resample(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    inferred = _infer_resize(node, shapes, dtypes)
    if not math.isfinite(float_attr(node, "a")):
        raise node_error(node, "the cubic's coefficient is not finite")
    if any(2 * resample_reach(node, float_attr(node, name)) > RESAMPLE_TAPS for name in ("scale_h", "scale_w")):
        raise node_error(node, f"more than {RESAMPLE_TAPS} neighbours count along an axis")
    return inferred


def _encode_resample(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {name: int_attr(node, name) for name in ("is_cubic", "is_antialiased", "is_exclusive")}
    return values | {"a": float_attr(node, "a")} | _encode_map(node, inputs[0], y)


def _encode_map(node: Node, x: Tensor, y: Tensor) -> Values:
    (n, h, w, c), (_, oh, ow, _) = x.shape, y.shape
    values: Values = {"n": n, "h": h, "w": w, "c": c, "oh": oh, "ow": ow}
    values["coord"] = enum_index("resize_coord", node.attrs["coord"])
    values |= {name: float_attr(node, name) for name in ("scale_h", "scale_w")}
    part = ints_attr(node, "part") if "part" in node.attrs else [0] * 4  # of a node that computes some rows alone
    values |= zip(("y_row", "all_oh", "x_row", "all_h"), part, strict=True)
    return values | pixel_strides("x", x) | pixel_strides("y", y)


def _infer_depth_to_space(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    n, h, w, c = image(node, shapes[0])
    (sh, sw), (top, left, bottom, right) = ints_attr(node, "blocks"), ints_attr(node, "crop")
    height, width = h * sh - top - bottom, w * sw - left - right
    if c % (sh * sw) or max(top, bottom) >= sh or max(left, right) >= sw or height < 1 or width < 1:
        raise node_error(node, f"blocks of {sh} x {sw} less {top, left, bottom, right} do not fit shape {shapes[0]}")
    return (n, height, width, c // (sh * sw)), dtypes[0]


def _encode_depth_to_space(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    (n, h, w, _), (_, oh, ow, c) = inputs[0].shape, y.shape
    (sh, sw), (top, left, _, _) = ints_attr(node, "blocks"), ints_attr(node, "crop")
    values: Values = {"elem_bytes": DTYPES[y.dtype].itemsize, "n": n, "h": h, "w": w, "c": c, "oh": oh, "ow": ow}
    values |= {"sh": sh, "sw": sw, "top": top, "left": left}
    return values | pixel_strides("x", inputs[0]) | pixel_strides("y", y)


RESAMPLE_TAPS = 256
"""Most neighbours that a weighted sum of a resize has along an axis (TAPS_MAX in kernels/ops/resample.c)."""


OPERATORS = (
    Operator(
        name="pool",
        attrs={"kind": enum("pool_kind"), **SPATIAL, "ceil_mode": Int(0, 1), "count_include_pad": Int(0, 1)},
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer_pool,
        encode=_encode_pool,
        strided=(fits_inner,) * 2,
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=window_rows,
        cut=cut_window,
        halves=no_halves,
        interleaves=True,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=4.0),
    ),
    Operator(
        name="resize",
        attrs={
            "mode": enum("resize_mode"),
            "coord": enum("resize_coord"),
            "nearest": enum("resize_nearest"),
            "sizes": PAIR,  # height and width of the output
            "scale_h": Float(),
            "scale_w": Float(),
        },
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer_resize,
        encode=_encode_resize,
        strided=(fits_inner,) * 2,
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=resize_rows,
        cut=cut_resize,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=3.0),
    ),
    Operator(
        name="resample",
        attrs={
            "is_cubic": Int(0, 1),
            "is_antialiased": Int(0, 1),
            "is_exclusive": Int(0, 1),
            "coord": enum("resize_coord"),
            "sizes": PAIR,  # height and width of the output
            "scale_h": Float(),
            "scale_w": Float(),
            "a": Float(),
        },
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer_resample,
        encode=_encode_resample,
        strided=(fits_inner,) * 2,
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=resample_rows,
        cut=cut_resize,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=8.0),
    ),
    Operator(
        name="depth_to_space",
        # Height and width of the block of pixels that a pixel's channels are; rows and columns left out of the first
        # and last blocks: top, left, bottom, right.
        attrs={"blocks": PAIR, "crop": Ints(4)},
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_depth_to_space,
        encode=_encode_depth_to_space,
        strided=(fits_inner,) * 2,
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=block_rows,
        cut=cut_blocks,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.5),
    ),
)
