"""Operators that normalise: over channels, over an image, over the last axis."""

from __future__ import annotations

from math import prod

from ..attributes import Float, Int, float_attr, int_attr, node_error
from ..ir import Node, Shape, Tensor
from ..strided import has_rows, is_contiguous, merge_rows
from .record import FLOAT, Cost, Operator, Values, always_together, contiguous_operands
from .rows import keep_attrs, no_halves, same_rows, whole_rows


def _infer_lrn(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if not shapes[0]:
        raise node_error(node, "the input has no channels")
    return shapes[0], "f32"


def row_strides(x: Tensor, y: Tensor) -> Values:
    """How far apart rows of the last axis lie."""
    return {name: merge_rows(tensor.shape, tensor.strides) or 0 for name, tensor in (("x_s", x), ("y_s", y))}


def _encode_lrn(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"rows": prod(y.shape[:-1]), "c": y.shape[-1], "size": int_attr(node, "size")}
    return values | row_strides(inputs[0], y) | {name: float_attr(node, name) for name in ("alpha", "beta", "bias")}


def _infer_instance_norm(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if len(shapes[0]) < 3 or not shapes[1] == shapes[2] == shapes[0][-1:]:
        raise node_error(node, f"scale and bias {shapes[1:]} do not fit an input of shape {shapes[0]}")
    return shapes[0], "f32"


def _encode_instance_norm(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return {"n": y.shape[0], "hw": prod(y.shape[1:-1]), "c": y.shape[-1], "epsilon": float_attr(node, "epsilon")}


def _infer_layer_norm(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if not shapes[0] or any(s != shapes[0][-1:] for s in shapes[1:]):
        raise node_error(node, f"scale or bias {shapes[1:]} does not fit an input of shape {shapes[0]}")
    return shapes[0], "f32"


def _encode_layer_norm(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"rows": prod(y.shape[:-1]), "n": y.shape[-1], "is_rms": int_attr(node, "is_rms")}
    values |= {"has_bias": int(len(inputs) == 3), "epsilon": float_attr(node, "epsilon")}
    return values | row_strides(inputs[0], y)


OPERATORS = (
    Operator(
        name="lrn",
        attrs={"size": Int(1), "alpha": Float(), "beta": Float(), "bias": Float()},
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer_lrn,
        encode=_encode_lrn,
        strided=(has_rows,) * 2,
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=same_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=4.0),
    ),
    Operator(
        name="instance_norm",
        attrs={"epsilon": Float()},
        inputs=(3, 3),  # x, scale, bias
        dtypes=FLOAT,
        infer=_infer_instance_norm,
        encode=_encode_instance_norm,
        strided=contiguous_operands(3),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="fixed",
        rows=whole_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=3.0),
    ),
    Operator(
        name="layer_norm",
        attrs={"is_rms": Int(0, 1), "epsilon": Float()},
        inputs=(2, 3),  # x, and of its last axis scale and bias
        dtypes=FLOAT,
        infer=_infer_layer_norm,
        encode=_encode_layer_norm,
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
        cost=Cost(passes=2.0),
    ),
)
