"""Operators whose activations are 8 bits, u8 (kernels/include/flexnn/params_bytes.h)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..attributes import Enum, Float, Int, Spec, float_attr, int_attr, ints_attr, node_error
from ..ir import DTYPES, Attr, Node, Shape, Tensor
from ..panels import NR
from ..strided import broadcast, fits_inner, has_rows, is_contiguous
from .fields import (
    SPATIAL,
    box_fields,
    broadcast_strides,
    enum_index,
    image,
    pixel_strides,
    window_fields,
    window_sizes,
)
from .linear import OPERATORS as PRODUCTS
from .normalisation import row_strides
from .record import Cost, Operator, Values, always_together, any_strides, contiguous_operands, elementwise_strides
from .rows import WHOLE, Halves, Need, cut_window, keep_attrs, matmul_rows, no_halves, same_rows, window_rows
from .window import OPERATORS as WINDOWS

BYTE = Int(0, 255)
MEASURED = (2,)
"""Shape of what ``byte_steps`` leaves: a step and a zero point, both floats."""
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
    if len(shapes) == 3 or dtypes[1:] == ["f32"]:
        third = "f32" if shapes[1] == MEASURED and node.op == "conv_u8" else "u8"
        _dtypes(node, dtypes, ("u8", "f32", third)[: len(dtypes)])
        known = shapes[1] == MEASURED and shapes[2:] in ([], [shape])
        if to != "f32" or not (known or (third == "u8" and all(prod(s) == 1 for s in shapes[1:]) and len(shapes) == 3)):
            raise node_error(node, f"steps of shapes {shapes[1:]} for {to}")
        return shape, to
    _dtypes(node, dtypes, ("u8",) * len(dtypes))
    if len(shapes) == 2 and (shapes[1] not in (shape, (1, 1, 1, cout)) or to != "u8"):
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


def _dynamic(inputs: Sequence[Tensor]) -> int:
    """Return 1 for a step and a zero point that a run computes, 2 for both as ``byte_steps`` leaves them, else 0."""
    if len(inputs) == 1 or inputs[1].dtype != "f32":
        return 0
    return 1 if inputs[2:] and inputs[2].dtype == "u8" else 2


def _fields(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    steps = _dynamic(inputs)
    at = 2 if steps == 2 else 1
    x, residual = inputs[0], inputs[at] if len(inputs) > at and steps != 1 else None
    (n, h, w, _), (_, oh, ow, _) = x.shape, y.shape
    values: Values = {"n": n, "h": h, "w": w, "oh": oh, "ow": ow, "nr": NR, **window_fields(node)}
    values |= pixel_strides("x", x) | pixel_strides("y", y) | pixel_strides("r", residual)
    if residual is not None and residual.shape != y.shape:
        values |= {"r_sn": 0, "r_sh": 0, "r_sw": 0}  # one for each channel
    values |= {name: int_attr(node, name) for name in ("x_zero", "r_zero", "sum_zero")} | clamp_fields(node)
    values |= {name: float_attr(node, name) for name in ("v_scale", "r_scale", "sum_lo", "sum_hi")}
    values |= {"to": enum_index("dtype", y.dtype), "has_residual": int(residual is not None)}
    return values | {"is_dynamic": steps}


def _encode_conv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"cin": inputs[0].shape[3], "cout": y.shape[3], "is_by_rows": int_attr(node, "by_rows")}
    return values | _fields(node, inputs, y)


def _encode_dwconv(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"c": y.shape[3]} | _fields(node, inputs, y)


def _infer_binary(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    shape = broadcast(shapes[0], shapes[1])
    if shape is None:
        raise node_error(node, f"shapes {shapes[0]} and {shapes[1]} do not broadcast")
    return shape, "u8"


def _encode_binary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    a, b = (broadcast_strides(tensor, y.shape) for tensor in inputs)
    values = box_fields(node, y.shape, ("as", "bs", "ys"), (a, b, y.strides)) | clamp_fields(node)
    values |= {name: int_attr(node, name) for name in ("a_zero", "b_zero")}
    values |= {name: float_attr(node, name) for name in ("a_scale", "b_scale")}
    return values | {"kind": enum_index("binary_kind", node.attrs["kind"])}


def _infer_table(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if shapes[1] != (256,) or dtypes[0] == "f32":
        raise node_error(node, f"a table of {dtypes[1]}{shapes[1]} for {dtypes[0]}")
    return shapes[0], dtypes[1]


def _encode_table(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values = box_fields(node, y.shape, ("xs", "ys"), (inputs[0].strides, y.strides))
    return values | {"elem_bytes": DTYPES[y.dtype].itemsize}


_POOL, _RESIZE = WINDOWS[:2]
_MATMUL = PRODUCTS[0]


def _infer_pool(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return _POOL.infer(node, shapes, dtypes)[0], "u8"


def _encode_pool(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values = _POOL.encode(node, inputs, y) | clamp_fields(node)
    return values | {"x_zero": int_attr(node, "x_zero"), "scale": float_attr(node, "scale")}


def _infer_resize(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return _RESIZE.infer(node, shapes, dtypes)[0], "u8"


def _product_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the rows under a sliding window, and of a residual; steps that a run computes have none."""
    needs = window_rows(node, inputs[:1], output, axis)
    return needs and (*needs, *(Need(axis) if shape == output else WHOLE for shape in inputs[1:]))


def _infer_steps(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    part, shape = node.attrs["part"], shapes[0]
    if part == "all":
        return MEASURED, "f32"
    if len(shape) < 2 or (part == "ranges" and shape[-1] != 2):
        raise node_error(node, f"{part} of an input of shape {shape}")
    lead = _row_axes(shape)
    return (MEASURED if part == "ranges" else (*shape[:lead], *(1 for _ in shape[lead + 1 :]), 2)), "f32"


def _row_axes(shape: Shape) -> int:
    """Return how many axes a map's rows lie on: pixels of a row, and what a token has, lie behind them."""
    return 2 if len(shape) > 2 else 1


def _encode_steps(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    part, shape = node.attrs["part"], inputs[0].shape
    outer = prod(shape[: _row_axes(shape)]) if part == "rows" else 1
    n = inputs[0].size // outer // (2 if part == "ranges" else 1)
    return {"outer": outer, "n": n, "of_ranges": int(part == "ranges"), "to_ranges": int(part == "rows")}


def _steps_rows(node: Node, inputs: Sequence[Shape], output: Shape, axis: int) -> tuple[Need, ...] | None:
    """Return the same rows where each has a range of its own."""
    return (Need(axis),) if node.attrs["part"] == "rows" and axis < _row_axes(inputs[0]) else None


def _steps_halves(node: Node, shape: Shape, dtype: str, axis: int) -> Halves | None:
    """Return ranges of rows, and the steps of these."""
    if node.attrs["part"] == "ranges" or axis != _row_axes(shape) - 1 or len(shape) < 2:
        return None
    return Halves({"part": "rows"}, {"part": "ranges"} if node.attrs["part"] == "all" else None)


def _infer_rows(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    _dtypes(node, dtypes, ("u8", "f32", "f32")[: len(dtypes)])
    least, most = (1, 1) if node.attrs["kind"] == "softmax" else (2, 3)
    if not least <= len(shapes) <= most or not shapes[0] or any(s != shapes[0][-1:] for s in shapes[1:]):
        raise node_error(node, f"scale or bias {shapes[1:]} does not fit an input of shape {shapes[0]}")
    return shapes[0], "u8"


def _encode_rows(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"rows": prod(y.shape[:-1]), "n": y.shape[-1], "has_bias": int(len(inputs) == 3)}
    values |= {"is_softmax": int(node.attrs["kind"] == "softmax"), "is_rms": int(node.attrs["kind"] == "rms_norm")}
    values |= {name: int_attr(node, name) for name in ("x_zero", "zero")} | row_strides(inputs[0], y)
    return values | {name: float_attr(node, name) for name in ("epsilon", "x_scale", "scale")}


def _infer_matmul(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    floats = Node(node.name, node.op, node.inputs, node.outputs, {"sums": "f32"})
    return _MATMUL.infer(floats, shapes, dtypes)[0], str(node.attrs["to"])


def _encode_matmul(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    plain: dict[str, Attr] = {"sums": "f32", "act": "none", "alpha": 0.0, "beta": 0.0}
    floats = Node(node.name, node.op, node.inputs, node.outputs, plain)
    values = _MATMUL.encode(floats, inputs, y)
    values = {name: value for name, value in values.items() if name not in plain}
    values |= {"a_zero": int_attr(node, "a_zero"), "b_zero": int_attr(node, "b_zero")} | clamp_fields(node)
    return values | {"scale": float_attr(node, "scale"), "to": enum_index("dtype", y.dtype)}


def _conv_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(output) * prod(ints_attr(node, "kernel")) * inputs[0][3]


def _depthwise_flops(node: Node, inputs: Sequence[Shape], output: Shape) -> float:
    return 2.0 * prod(output) * prod(ints_attr(node, "kernel"))


OPERATORS = (
    Operator(
        name="conv_u8",
        attrs={**SPATIAL, "cout": Int(1), "by_rows": Int(0, 1), **FINISH},
        inputs=(1, 3),  # x; or x, residual; or x, step, zero point of x; or x, both of them, perhaps a residual
        dtypes=("u8", "f32"),
        infer=_infer_conv,
        encode=_encode_conv,
        strided=(fits_inner,) * 4,
        together=always_together,
        in_place=(1, 2),
        reads_transposes=False,
        order="fixed",
        rows=_product_rows,
        cut=cut_window,
        halves=no_halves,
        interleaves=True,
        has_panels=True,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=3.0, flops=_conv_flops),
    ),
    Operator(
        name="dwconv_u8",
        attrs={**SPATIAL, **FINISH},
        inputs=(1, 3),  # as conv_u8's
        dtypes=("u8", "f32"),
        infer=_infer_dwconv,
        encode=_encode_dwconv,
        strided=(fits_inner,) * 4,
        together=always_together,
        in_place=(1,),
        reads_transposes=False,
        order="fixed",
        rows=_product_rows,
        cut=cut_window,
        halves=no_halves,
        interleaves=True,
        has_panels=True,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=0.7, flops=_depthwise_flops),
    ),
    Operator(
        name="binary_u8",
        attrs={
            "kind": Enum(("add", "mul")),
            "a_zero": BYTE,
            "b_zero": BYTE,
            "a_scale": Float(),
            "b_scale": Float(),
            **CLAMP,
        },
        inputs=(2, 2),
        dtypes=("u8",),
        infer=_infer_binary,
        encode=_encode_binary,
        strided=elementwise_strides(2),
        together=always_together,
        in_place=(0, 1),
        reads_transposes=False,
        order="any",
        rows=same_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=2.0),
    ),
    Operator(
        name="table_u8",
        attrs={},
        inputs=(2, 2),  # x, and what each of 256 bytes becomes
        dtypes=("u8", "i8", "f32"),
        infer=_infer_table,
        encode=_encode_table,
        strided=(any_strides, is_contiguous, any_strides),
        together=always_together,
        in_place=(0,),
        reads_transposes=False,
        order="own",
        rows=same_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=4.0),
    ),
    Operator(
        name="pool_u8",
        attrs={**_POOL.attrs, "x_zero": BYTE, "scale": Float(), **CLAMP},
        inputs=(1, 1),
        dtypes=("u8",),
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
        name="resize_u8",
        attrs=_RESIZE.attrs,
        inputs=(1, 1),
        dtypes=("u8",),
        infer=_infer_resize,
        encode=_RESIZE.encode,
        strided=(fits_inner,) * 2,
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=_RESIZE.rows,
        cut=_RESIZE.cut,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=6.0),
    ),
    Operator(
        name="byte_steps",
        # of ``all`` numbers, ranges of ``rows`` (``_row_axes``), or steps of such ``ranges``
        attrs={"part": Enum(("all", "rows", "ranges"))},
        inputs=(1, 1),
        dtypes=("f32",),
        infer=_infer_steps,
        encode=_encode_steps,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="own",
        rows=_steps_rows,
        cut=keep_attrs,
        halves=_steps_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="rows_u8",
        attrs={
            "kind": Enum(("layer_norm", "rms_norm", "softmax")),
            "epsilon": Float(),
            "x_zero": BYTE,
            "x_scale": Float(),
            "zero": BYTE,
            "scale": Float(),
        },
        inputs=(1, 3),  # x, and scale and bias of a norm
        dtypes=("u8", "f32"),
        infer=_infer_rows,
        encode=_encode_rows,
        strided=(has_rows, is_contiguous, is_contiguous, has_rows),
        together=always_together,
        in_place=(0,),
        reads_transposes=False,
        order="fixed",
        rows=same_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=8.0),
    ),
    Operator(
        name="matmul_u8",
        attrs={"a_zero": BYTE, "b_zero": BYTE, "scale": Float(), "to": Enum(("u8", "f32")), **CLAMP},
        inputs=(2, 2),
        dtypes=("u8",),
        infer=_infer_matmul,
        encode=_encode_matmul,
        strided=_MATMUL.strided,
        together=_MATMUL.together,
        in_place=(),
        reads_transposes=True,
        order="fixed",
        rows=matmul_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0, peak_fraction=2.0, flops=_MATMUL.cost.flops),
    ),
)
