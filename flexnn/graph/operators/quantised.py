"""Operators whose activations are 8 bits, u8 (kernels/include/flexnn/params_bytes.h)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Enum, Float, Int, Spec, float_attr, int_attr, ints_attr, node_error
from ..ir import Node, Shape, Tensor
from ..panels import NR
from ..strided import fits_inner
from .fields import SPATIAL, enum_index, image, pixel_strides, window_fields, window_sizes
from .record import Cost, Operator, Values, always_together

BYTE = Int(0, 255)
CLAMP: dict[str, Spec] = {"zero": BYTE, "lo": Float(), "hi": Float()}
"""How a number becomes a byte: clamped to [lo, hi], rounded, and ``zero`` is added; f32 outputs are clamped only."""
FINISH: dict[str, Spec] = {
    "to": Enum(("u8", "f32")),
    "x_zero": BYTE,
    **CLAMP,
    "r_zero": BYTE,
    "v_scale": Float(),
    "r_scale": Float(),
    "sum_zero": BYTE,
    "sum_lo": Float(),
    "sum_hi": Float(),
}
"""The same of products, and how a residual is added to what they became."""
NO_RESIDUAL: dict[str, int | float] = {
    "r_zero": 0,
    "v_scale": 0.0,
    "r_scale": 0.0,
    "sum_zero": 0,
    "sum_lo": 0.0,
    "sum_hi": 0.0,
}
"""Attributes of a node without residual."""


def _dtypes(node: Node, dtypes: Sequence[str], expected: tuple[str, ...]) -> None:
    if tuple(dtypes) != expected:
        raise node_error(node, f"inputs of {', '.join(dtypes)}, expected {', '.join(expected)}")


def _infer(node: Node, shapes: list[Shape], dtypes: list[str], cout: int) -> tuple[Shape, str]:
    n, h, w, _ = image(node, shapes[0])
    shape, to = (n, *window_sizes(node, h, w), cout), str(node.attrs["to"])
    if len(shapes) == 3:
        _dtypes(node, dtypes, ("u8", "f32", "u8"))
        if to != "f32" or any(ints_attr(node, "pads")) or any(prod(s) != 1 for s in shapes[1:]):
            raise node_error(node, f"a step of shape {shapes[1]} and a zero point of {shapes[2]} for {to}")
        return shape, to
    _dtypes(node, dtypes, ("u8",) * len(dtypes))
    if len(shapes) == 2 and (shapes[1] != shape or to != "u8"):
        raise node_error(node, f"residual of shape {shapes[1]} does not have the output's shape {shape}")
    return shape, to


def _infer_conv(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if int_attr(node, "by_rows") and ints_attr(node, "dilations")[1] != 1:
        raise node_error(node, "rows of taps that are dilated")
    return _infer(node, shapes, dtypes, int_attr(node, "cout"))


def _infer_dwconv(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return _infer(node, shapes, dtypes, image(node, shapes[0])[3])


def clamp_fields(node: Node) -> Values:
    """Fields of the attributes in CLAMP."""
    return {"zero": int_attr(node, "zero"), "lo": float_attr(node, "lo"), "hi": float_attr(node, "hi")}


def _fields(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, residual = inputs[0], inputs[1] if len(inputs) == 2 else None
    (n, h, w, _), (_, oh, ow, _) = x.shape, y.shape
    values: Values = {"n": n, "h": h, "w": w, "oh": oh, "ow": ow, "nr": NR, **window_fields(node)}
    values |= pixel_strides("x", x) | pixel_strides("y", y) | pixel_strides("r", residual)
    values |= {name: int_attr(node, name) for name in ("x_zero", "r_zero", "sum_zero")} | clamp_fields(node)
    values |= {name: float_attr(node, name) for name in ("v_scale", "r_scale", "sum_lo", "sum_hi")}
    return values | {"to": enum_index("dtype", y.dtype), "has_residual": int(residual is not None)}


def _encode_conv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"cin": inputs[0].shape[3], "cout": y.shape[3], "is_by_rows": int_attr(node, "by_rows")}
    values |= {"is_symmetric": int_attr(node, "is_symmetric"), "is_dynamic": int(len(inputs) == 3)}
    return values | _fields(node, inputs, y)


def _encode_dwconv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"c": y.shape[3]} | _fields(node, inputs, y)


def _conv_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(output) * prod(ints_attr(node, "kernel")) * inputs[0][3]


def _depthwise_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(output) * prod(ints_attr(node, "kernel"))


OPERATORS = (
    Operator(
        name="conv_u8",
        attrs={**SPATIAL, "cout": Int(1), "by_rows": Int(0, 1), "is_symmetric": Int(0, 1), **FINISH},
        inputs=(1, 3),  # x; or x, residual; or x, step, zero point of x
        dtypes=("u8", "f32"),
        infer=_infer_conv,
        encode=_encode_conv,
        strided=(fits_inner,) * 4,
        together=always_together,
        in_place=(1,),
        reads_transposes=False,
        order="fixed",
        rows="window",
        interleaves=True,
        has_panels=True,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=3.0, flops=_conv_flops),
    ),
    Operator(
        name="dwconv_u8",
        attrs={**SPATIAL, **FINISH},
        inputs=(1, 2),  # x, residual
        dtypes=("u8",),
        infer=_infer_dwconv,
        encode=_encode_dwconv,
        strided=(fits_inner,) * 3,
        together=always_together,
        in_place=(1,),
        reads_transposes=False,
        order="fixed",
        rows="window",
        interleaves=True,
        has_panels=True,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.7, flops=_depthwise_flops),
    ),
)
