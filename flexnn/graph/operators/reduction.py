"""Operators over consecutive axes of a contiguous input: softmax, reductions, running sums, positions of extremes."""

from __future__ import annotations

from math import prod

from ..attributes import Int, Ints, int_attr, ints_attr, node_error
from ..ir import RANK_MAX, Node, Shape, Tensor
from .fields import enum, enum_index
from .record import ANY_DTYPE, FLOAT, Cost, Operator, Values, always_together, contiguous_operands
from .rows import apart_from_axis, keep_attrs, no_halves, reduced_halves, reduced_rows


def _infer_softmax(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    _axis_of(node, shapes[0])
    return shapes[0], dtypes[0]


def _encode_softmax(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, shape = int_attr(node, "axis"), y.shape
    inner = prod(shape[axis + 1 :])
    return {"outer": prod(shape[:axis]), "n": shape[axis], "inner": inner, "log": int_attr(node, "log")}


def reduces(kind: str, dtype: str) -> bool:
    """Return whether a kind of reduction computes elements of this type."""
    if dtype in ("f32", "f64"):
        return True
    if dtype == "bool":
        return kind in ("max", "min")
    return dtype != "f16" and kind not in ("l2", "log_sum", "log_sum_exp")


def _infer_reduce(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axes, shape = ints_attr(node, "axes"), shapes[0]
    if not axes or axes != list(range(axes[0], axes[0] + len(axes))) or axes[-1] >= len(shape):
        raise node_error(node, f"axes {axes} are not consecutive axes of shape {shape}")
    kept = (1,) * len(axes) if int_attr(node, "keepdims") else ()
    if not reduces(str(node.attrs["kind"]), dtypes[0]):
        raise node_error(node, f"{node.attrs['kind']} does not take type {dtypes[0]}")
    return shape[: axes[0]] + kept + shape[axes[-1] + 1 :], dtypes[0]


def _encode_reduce(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axes, shape = ints_attr(node, "axes"), inputs[0].shape
    n = prod(shape[axes[0] : axes[-1] + 1])
    kind, dtype = enum_index("reduce_kind", node.attrs["kind"]), enum_index("dtype", y.dtype)
    inner = prod(shape[axes[-1] + 1 :])
    return {"kind": kind, "dtype": dtype, "outer": prod(shape[: axes[0]]), "n": n, "inner": inner}


def _axis_of(node: Node, shape: Shape) -> int:
    axis = int_attr(node, "axis")
    if axis >= len(shape):
        raise node_error(node, f"axis {axis} is outside shape {shape}")
    return axis


def _along(node: Node, x: Tensor) -> Values:
    """Fields of [outer, n, inner] around the axis, and of the type."""
    axis, shape = int_attr(node, "axis"), x.shape
    sizes = {"outer": prod(shape[:axis]), "n": shape[axis], "inner": prod(shape[axis + 1 :])}
    return {"dtype": enum_index("dtype", x.dtype), **sizes}


def _infer_argmax(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axis, shape = _axis_of(node, shapes[0]), shapes[0]
    return (*shape[:axis], 1, *shape[axis + 1 :]), "i64"


def _encode_argmax(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return _along(node, inputs[0]) | {name: int_attr(node, name) for name in ("is_min", "is_last")}


def _infer_cumulate(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    _axis_of(node, shapes[0])
    return shapes[0], dtypes[0]


def _encode_cumulate(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    return _along(node, inputs[0]) | {n: int_attr(node, n) for n in ("is_product", "is_exclusive", "is_reverse")}


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
        in_place=(0,),
        reads_transposes=False,
        order="axis",
        rows=apart_from_axis,
        cut=keep_attrs,
        halves=no_halves,
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
        dtypes=ANY_DTYPE,
        infer=_infer_reduce,
        encode=_encode_reduce,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="late",
        rows=reduced_rows,
        cut=keep_attrs,
        halves=reduced_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="argmax",
        attrs={"axis": Int(0, RANK_MAX - 1), "is_min": Int(0, 1), "is_last": Int(0, 1)},
        inputs=(1, 1),
        dtypes=tuple(dtype for dtype in ANY_DTYPE if dtype != "f16"),
        infer=_infer_argmax,
        encode=_encode_argmax,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="axis",
        rows=apart_from_axis,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=4.0),
    ),
    Operator(
        name="cumulate",
        attrs={"axis": Int(0, RANK_MAX - 1), **dict.fromkeys(("is_product", "is_exclusive", "is_reverse"), Int(0, 1))},
        inputs=(1, 1),
        dtypes=tuple(dtype for dtype in ANY_DTYPE if dtype not in ("f16", "bool")),
        infer=_infer_cumulate,
        encode=_encode_cumulate,
        strided=contiguous_operands(1),
        together=always_together,
        in_place=(0,),
        reads_transposes=False,
        order="axis",
        rows=apart_from_axis,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=2.0),
    ),
)
