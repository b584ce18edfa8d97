"""Operators over consecutive axes of a contiguous input: softmax, reductions."""

from __future__ import annotations

from math import prod

from ..attributes import Int, Ints, int_attr, ints_attr, node_error
from ..ir import RANK_MAX, Node, Shape, Tensor
from .fields import enum, enum_index
from .record import FLOAT, Cost, Operator, Values, always_together, contiguous_operands


def _infer_softmax(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if int_attr(node, "axis") >= len(shapes[0]):
        raise node_error(node, f"axis {node.attrs['axis']} is outside shape {shapes[0]}")
    return shapes[0], dtypes[0]


def _encode_softmax(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, shape = int_attr(node, "axis"), y.shape
    inner = prod(shape[axis + 1 :])
    return {"outer": prod(shape[:axis]), "n": shape[axis], "inner": inner, "log": int_attr(node, "log")}


def _infer_reduce(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axes, shape = ints_attr(node, "axes"), shapes[0]
    if not axes or axes != list(range(axes[0], axes[0] + len(axes))) or axes[-1] >= len(shape):
        raise node_error(node, f"axes {axes} are not consecutive axes of shape {shape}")
    kept = (1,) * len(axes) if int_attr(node, "keepdims") else ()
    return shape[: axes[0]] + kept + shape[axes[-1] + 1 :], "f32"


def _encode_reduce(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axes, shape = ints_attr(node, "axes"), inputs[0].shape
    n = prod(shape[axes[0] : axes[-1] + 1])
    kind = enum_index("reduce_kind", node.attrs["kind"])
    return {"kind": kind, "outer": prod(shape[: axes[0]]), "n": n, "inner": prod(shape[axes[-1] + 1 :])}


OPERATORS = (
    Operator(
        name="softmax",
        attrs={"axis": Int(0, RANK_MAX - 1), "log": Int(0, 1)},
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer_softmax,
        encode=_encode_softmax,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="axis",
        rows="whole",
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=4.0),
    ),
    Operator(
        name="reduce",
        # ``axes`` are consecutive and ascending.
        attrs={"kind": enum("reduce_kind"), "axes": Ints(-1, 0, RANK_MAX - 1), "keepdims": Int(0, 1)},
        inputs=(1, 1),
        dtypes=FLOAT,
        infer=_infer_reduce,
        encode=_encode_reduce,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="late",
        rows="whole",
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
)
