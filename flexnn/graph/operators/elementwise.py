"""Operators that compute element by element: functions and arithmetic of f32, conversions."""

from __future__ import annotations

from ..attributes import Enum, Float, float_attr, node_error
from ..ir import DTYPES, Node, Shape, Tensor
from ..strided import broadcast
from .fields import PLAIN_ACT, act_fields, box_fields, broadcast_strides, enum, enum_index, enum_without, infer_same
from .record import (
    ANY_DTYPE,
    FLOAT,
    Cost,
    Operator,
    Values,
    always_together,
    contiguous_operands,
    elementwise_strides,
)
from .rows import keep_attrs, no_halves, same_rows


def _encode_unary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values = box_fields(node, y.shape, ("xs", "ys"), (inputs[0].strides, y.strides))
    kind = enum_index("unary_kind", node.attrs["kind"])
    return values | {"kind": kind, "alpha": float_attr(node, "alpha"), "beta": float_attr(node, "beta")}


def _infer_binary(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    shape = broadcast(shapes[0], shapes[1])
    if shape is None:
        raise node_error(node, f"shapes {shapes[0]} and {shapes[1]} do not broadcast")
    return shape, "f32"


def _encode_binary(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    a, b = (broadcast_strides(tensor, y.shape) for tensor in inputs)
    values = box_fields(node, y.shape, ("as", "bs", "ys"), (a, b, y.strides))
    return values | {"kind": enum_index("binary_kind", node.attrs["kind"])} | act_fields(node)


def _infer_cast(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    return shapes[0], str(node.attrs["to"])


def _encode_cast(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"from": enum_index("dtype", inputs[0].dtype), "to": enum_index("dtype", y.dtype), "count": y.size}


OPERATORS = (
    Operator(
        name="unary",
        attrs={"kind": enum_without("unary_kind", "prelu"), "alpha": Float(), "beta": Float()},
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=infer_same,
        encode=_encode_unary,
        strided=elementwise_strides(1),
        together=always_together,
        in_place=(0,),
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
        name="binary",
        attrs={"kind": enum("binary_kind"), **PLAIN_ACT},
        inputs=(2, 2),
        dtypes=FLOAT,
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
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="cast",
        attrs={"to": Enum(tuple(DTYPES))},
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_cast,
        encode=_encode_cast,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="any",
        rows=same_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
)
