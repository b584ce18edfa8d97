"""Convolutions: weights in panels, a residual and an activation taken in."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from flexnn import _core

from ..attributes import Int, int_attr, ints_attr, node_error
from ..ir import Node, Shape, Tensor
from ..panels import NR, conv_cin_panel
from ..strided import fits_inner
from .fields import (
    ACT,
    ROUNDED_SUMS,
    SPATIAL,
    SUMS,
    act_fields,
    enum,
    enum_index,
    image,
    pixel_strides,
    window_fields,
    window_sizes,
)
from .record import FLOAT, Cost, Operator, Values, always_together
from .rows import cut_window, no_halves, window_rows


def _infer(node: Node, shapes: list[Shape], cout: int, group: int) -> tuple[Shape, str]:
    n, h, w, c = image(node, shapes[0])
    if c % group or cout % group:
        raise node_error(node, f"{c} input and {cout} output channels do not divide into {group} groups")
    shape = (n, *window_sizes(node, h, w), cout)
    if len(shapes) == 2 and shapes[1] != shape:
        raise node_error(node, f"residual of shape {shapes[1]} does not have the output's shape {shape}")
    return shape, "i32" if node.attrs["sums"] == "i32" else "f32"


def _infer_conv(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return _infer(node, shapes, int_attr(node, "cout"), int_attr(node, "group"))


def _infer_dwconv(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    channels = image(node, shapes[0])[3]
    return _infer(node, shapes, channels, channels)


def _fields(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, residual = inputs[0], inputs[1] if len(inputs) == 2 else None
    (n, h, w, _), (_, oh, ow, _) = x.shape, y.shape
    values: Values = {"n": n, "h": h, "w": w, "oh": oh, "ow": ow, "nr": NR, **window_fields(node), **act_fields(node)}
    values |= pixel_strides("x", x) | pixel_strides("y", y) | pixel_strides("r", residual)
    values |= {"has_residual": int(residual is not None), "wtype": enum_index("wtype", node.attrs["wtype"])}
    return values | {"sums": enum_index("dtype", node.attrs["sums"])}


def _encode_conv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    cin, cout, group = inputs[0].shape[3], y.shape[3], int_attr(node, "group")
    cin_panel = conv_cin_panel(cout, cin // group, group)
    values: Values = {"cin": cin, "cout": cout, "group": group, "cin_panel": cin_panel, "tile_block": 0}
    return values | {"cin_block": min(int_attr(node, "cin_block"), cin_panel)} | _fields(node, inputs, y)


def _encode_dwconv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"c": y.shape[3]} | _fields(node, inputs, y)


def _depthwise_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(output) * prod(ints_attr(node, "kernel"))


OPERATORS = (
    Operator(
        name="conv",
        attrs={
            **SPATIAL,
            "group": Int(1),
            "cout": Int(1),
            "cin_block": Int(1),
            "wtype": enum("wtype"),
            **ACT,
            **ROUNDED_SUMS,
        },
        inputs=(1, 2),  # x, residual
        dtypes=FLOAT,
        infer=_infer_conv,
        encode=_encode_conv,
        strided=(fits_inner,) * 3,
        together=always_together,
        in_place=(1,),
        reads_transposes=False,
        order="fixed",
        rows=window_rows,
        cut=cut_window,
        halves=no_halves,
        interleaves=True,
        has_panels=True,
        kernels=tuple(_core.ENUMS["conv_kernel"]),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="dwconv",
        attrs={**SPATIAL, "wtype": enum("wtype"), **ACT, **SUMS},
        inputs=(1, 2),  # x, residual
        dtypes=FLOAT,
        infer=_infer_dwconv,
        encode=_encode_dwconv,
        strided=(fits_inner,) * 3,
        together=always_together,
        in_place=(1,),
        reads_transposes=False,
        order="fixed",
        rows=window_rows,
        cut=cut_window,
        halves=no_halves,
        interleaves=True,
        has_panels=True,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.5, flops=_depthwise_flops),
    ),
)
