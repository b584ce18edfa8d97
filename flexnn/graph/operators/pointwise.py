"""The operator that computes element by element over any type: comparisons, bits, arithmetic, functions, choices."""

from __future__ import annotations

from flexnn import _core

from ..attributes import node_error
from ..ir import Node, Shape, Tensor
from ..strided import DIMS, broadcast
from .fields import box_fields, broadcast_strides, enum, enum_index
from .record import ANY_DTYPE, Cost, Operator, Values, always_together, elementwise_strides
from .rows import keep_attrs, no_halves, same_rows

_KINDS = list(_core.ENUMS["pointwise_kind"])
_COMPARISONS = ("equal", "less", "less_equal")
_TESTS = ("is_nan", "is_inf", "is_inf_above", "is_inf_below")
_BITS = ("and", "or", "xor", "shift_left", "shift_right", "not")
_FUNCTIONS = tuple(_KINDS[_KINDS.index("floor") :])
"""Kinds that compute floats only and have one operand."""
_ONE = (*_TESTS, "not", "neg", "abs", "sign", *_FUNCTIONS)
_OF_BOOL = (*_COMPARISONS, "and", "or", "xor", "not")


def computes(kind: str, dtype: str) -> bool:
    """Return whether a kind of pointwise computes elements of this type."""
    if kind == "where":
        return True
    if dtype == "bool":
        return kind in _OF_BOOL
    if dtype in ("f32", "f64"):
        return kind in _KINDS and kind not in _BITS
    return kind in _KINDS and dtype != "f16" and kind not in (*_TESTS, *_FUNCTIONS)


def _infer(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
    kind, own = str(node.attrs["kind"]), dtypes[0]
    shape: Shape | None = ()
    for operand in shapes:
        shape = None if shape is None else broadcast(shape, operand)
    taken = [own, own, "bool"] if kind == "where" else [own] if kind in _ONE else [own, own]
    if shape is None or dtypes != taken or not computes(kind, own):
        raise node_error(node, f"{kind} does not take types {', '.join(dtypes)} with shapes {shapes}")
    return shape, "bool" if kind in _COMPARISONS or kind in _TESTS else own


def _encode(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
    names, steps = ("as", "bs", "cs")[: len(inputs)], [broadcast_strides(tensor, y.shape) for tensor in inputs]
    values = box_fields(node, y.shape, (*names, "ys"), (*steps, y.strides))
    values |= {f"{name}{i}": 0 for name in ("bs", "cs")[len(inputs) - 1 :] for i in range(DIMS)}
    kind, dtype = enum_index("pointwise_kind", node.attrs["kind"]), enum_index("dtype", inputs[0].dtype)
    return values | {"kind": kind, "dtype": dtype}


OPERATORS = (
    Operator(
        name="pointwise",
        attrs={"kind": enum("pointwise_kind")},
        inputs=(1, 3),  # a; b; the condition of ``where``
        dtypes=ANY_DTYPE,
        infer=_infer,
        encode=_encode,
        strided=elementwise_strides(3),
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
)
