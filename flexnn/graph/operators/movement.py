"""Operators that move elements and compute none: copies, pads, gathers."""

from __future__ import annotations

from math import prod

from ..attributes import INT_MAX, Float, Int, Ints, float_attr, int_attr, ints_attr, node_error
from ..ir import DTYPES, RANK_MAX, Node, Shape, Tensor
from ..panels import NR
from ..strided import collapse, same
from ..weight_form import FORMS
from .fields import box_fields, enum, enum_index, numbered
from .record import ANY_DTYPE, Cost, Operator, Values, always_together, contiguous_operands, elementwise_strides
from .rows import copy_rows, cut_copy, cut_pad, keep_attrs, no_halves, pad_rows, whole_rows


def _infer_copy(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    perm, expand, shape = ints_attr(node, "perm"), ints_attr(node, "expand"), shapes[0]
    if sorted(perm) != list(range(len(shape))) or len(expand) != len(shape):
        raise node_error(node, f"perm {perm} and expand {expand} do not fit shape {shape}")
    moved = [shape[p] for p in perm]
    if any(e and d not in (1, e) for d, e in zip(moved, expand, strict=True)):
        raise node_error(node, f"shape {tuple(moved)} does not expand to {expand}")
    return tuple(e or d for d, e in zip(moved, expand, strict=True)), dtypes[0]


def _encode_copy(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x = inputs[0]
    moved = [(x.shape[p], x.strides[p]) for p in ints_attr(node, "perm")]
    strides = tuple(s if same(d, out) else 0 for (d, s), out in zip(moved, y.shape, strict=True))
    return box_fields(node, y.shape, ("xs", "ys"), (strides, y.strides)) | {"elem_bytes": DTYPES[y.dtype].itemsize}


def _infer_pad(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    lists = [ints_attr(node, name) for name in ("before", "after", "interior")]
    counts = [len(values) for values in lists]
    if any(count != len(shapes[0]) for count in counts):
        raise node_error(node, f"shape {shapes[0]} needs as many pads as dimensions, not {counts}")
    before, after, interior = lists
    if node.attrs["mode"] != "constant":
        limit = 1 if node.attrs["mode"] == "reflect" else INT_MAX
        if any(interior) or any(
            max(b, a) > 0 and limit == 1 and max(b, a) > d - 1 for b, a, d in zip(before, after, shapes[0], strict=True)
        ):
            raise node_error(node, f"pads {before}, {after} exceed shape {shapes[0]}")
    shape = tuple(d + (d - 1) * i + b + a for d, b, a, i in zip(shapes[0], before, after, interior, strict=True))
    return shape, dtypes[0]


def _encode_pad(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    x, interior = inputs[0], ints_attr(node, "interior")
    # An axis that is padded stays alone; between axes that are not, x and y have the same sizes.
    alone = tuple(not same(dx, dy) for dx, dy in zip(x.shape, y.shape, strict=True))
    before = ints_attr(node, "before")
    alone = tuple(a or bool(b or i) for a, b, i in zip(alone, before, interior, strict=True))
    box = collapse(y.shape, (x.strides, y.strides), alone=alone, equal=same)
    if box is None:
        raise node_error(node, f"more than 6 dimensions with strides of their own: {y.shape}")
    values: Values = {"mode": enum_index("pad_mode", node.attrs["mode"]), "elem_bytes": DTYPES[y.dtype].itemsize}
    values |= numbered("d", box.sizes(y.shape)) | numbered("xd", box.sizes(x.shape))
    values |= numbered("b", box.sums(before)) | numbered("interior", box.sums(interior))
    values |= numbered("xs", box.strides(x.strides)) | numbered("ys", box.strides(y.strides))
    return values | {"value": float_attr(node, "value"), "value_int": int_attr(node, "value_int")}


def _infer_gather(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axis = int_attr(node, "axis")
    if axis >= len(shapes[0]) or dtypes[1] not in ("i64", "i32"):
        raise node_error(node, f"axis {axis} of shape {shapes[0]} with indices of type {dtypes[1]} is not possible")
    return shapes[0][:axis] + shapes[1] + shapes[0][axis + 1 :], dtypes[0]


def _encode_gather(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis, (data, indices) = int_attr(node, "axis"), inputs
    return {
        "elem_bytes": DTYPES[data.dtype].itemsize,
        "index_bytes": DTYPES[indices.dtype].itemsize,
        "outer": prod(data.shape[:axis]),
        "axis": data.shape[axis],
        "inner": prod(data.shape[axis + 1 :]),
        "count": indices.size,
    }


def _infer_gather_panels(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    rows, inner, panels = int_attr(node, "rows"), int_attr(node, "inner"), shapes[0]
    layout = FORMS[str(node.attrs["wtype"])].layout(NR * inner)
    if panels != (-(-rows // NR), layout.end // 4) or dtypes[0] != "f32" or dtypes[1] == "f32":
        raise node_error(node, f"panels of shape {panels} and {dtypes[0]} with indices of type {dtypes[1]}")
    return (*shapes[1], inner), "f32"


def _encode_gather_panels(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    indices = inputs[1]
    return {
        "index_bytes": DTYPES[indices.dtype].itemsize,
        "rows": int_attr(node, "rows"),
        "inner": int_attr(node, "inner"),
        "count": indices.size,
        "wtype": enum_index("wtype", node.attrs["wtype"]),
    }


OPERATORS = (
    Operator(
        name="copy",
        # ``perm`` transposes; then ``expand`` broadcasts axes of size 1 to the sizes that it states (0 keeps an axis).
        attrs={"perm": Ints(-1, 0, RANK_MAX - 1), "expand": Ints()},
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_copy,
        encode=_encode_copy,
        strided=elementwise_strides(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="own",
        rows=copy_rows,
        cut=cut_copy,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="pad",
        attrs={
            "mode": enum("pad_mode"),
            "before": Ints(-1, -INT_MAX),
            "after": Ints(-1, -INT_MAX),
            "interior": Ints(),
            "value": Float(),
            "value_int": Int(-INT_MAX - 1),
        },
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_pad,
        encode=_encode_pad,
        strided=elementwise_strides(1),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="axes",
        rows=pad_rows,
        cut=cut_pad,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=1.0),
    ),
    Operator(
        name="gather",
        attrs={"axis": Int(0, RANK_MAX - 1)},
        inputs=(2, 2),  # data, indices
        dtypes=ANY_DTYPE,
        infer=_infer_gather,
        encode=_encode_gather,
        strided=contiguous_operands(2),
        together=always_together,
        in_place=(),
        reads_transposes=False,
        order="own",
        rows=whole_rows,
        cut=keep_attrs,
        halves=no_halves,
        interleaves=False,
        has_panels=False,
        kernels=(),
        cost=Cost(passes=2.0),
    ),
    Operator(
        name="gather_panels",
        attrs={"rows": Int(1), "inner": Int(1), "wtype": enum("wtype")},  # of the table; its tensor are its panels
        inputs=(2, 2),  # panels, indices
        dtypes=("f32", "i64", "i32"),
        infer=_infer_gather_panels,
        encode=_encode_gather_panels,
        strided=contiguous_operands(2),
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
        cost=Cost(passes=2.0),
    ),
)
