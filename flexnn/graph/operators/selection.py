"""Operators that set elements by their position: triangles of matrices, one of many by an index."""

from __future__ import annotations

from math import prod

from ..attributes import INT_MAX, Int, int_attr, node_error
from ..ir import DTYPES, RANK_MAX, Node, Shape, Tensor
from .record import ANY_DTYPE, Cost, Values, whole_operator


def _infer_trilu(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    if len(shapes[0]) < 2:
        raise node_error(node, f"input of shape {shapes[0]} holds no matrices")
    return shapes[0], dtypes[0]


def _encode_trilu(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    values: Values = {"elem_bytes": DTYPES[y.dtype].itemsize, "outer": prod(y.shape[:-2])}
    values |= {"rows": y.shape[-2], "columns": y.shape[-1]}
    return values | {name: int_attr(node, name) for name in ("k", "is_upper")}


def _infer_one_hot(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    axis, (indices, values) = int_attr(node, "axis"), shapes
    if axis > len(indices) or len(indices) == RANK_MAX or dtypes[0] not in ("i64", "i32") or values != (2,):
        raise node_error(node, f"indices {dtypes[0]}{indices} and values of shape {values} do not fit axis {axis}")
    return (*indices[:axis], int_attr(node, "depth"), *indices[axis:]), dtypes[1]


def _encode_one_hot(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    axis = int_attr(node, "axis")
    sizes = {"outer": prod(y.shape[:axis]), "depth": y.shape[axis], "inner": prod(y.shape[axis + 1 :])}
    return {"elem_bytes": DTYPES[y.dtype].itemsize, "index_bytes": DTYPES[inputs[0].dtype].itemsize, **sizes}


OPERATORS = (
    whole_operator(
        "trilu",
        attrs={"k": Int(-INT_MAX), "is_upper": Int(0, 1)},
        inputs=(1, 1),
        dtypes=ANY_DTYPE,
        infer=_infer_trilu,
        encode=_encode_trilu,
        in_place=(0,),
        cost=Cost(passes=1.0),
    ),
    whole_operator(
        "one_hot",
        attrs={"axis": Int(0, RANK_MAX - 1), "depth": Int(1)},
        inputs=(2, 2),
        dtypes=ANY_DTYPE,
        infer=_infer_one_hot,
        encode=_encode_one_hot,
        cost=Cost(passes=1.0),
    ),
)
