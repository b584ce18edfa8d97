"""Operators whose maps may hold numbers of 16 bits: what those without ``_f16`` compute, in float32."""

from __future__ import annotations

from ..attributes import Enum, node_error
from ..ir import Node, Shape, Tensor
from . import convolution, elementwise, reduction, window
from .record import Operator, Values

_PLAIN = ("conv", "dwconv", "pool", "unary", "binary", "resize", "reduce")
TYPES = ("f32", "f16")
_OUTPUT_BIT = 2
"""FX_F16_OUTPUT (kernels/include/flexnn/params_f16.h)."""


def _wide(tensor: Tensor) -> Tensor:
    """The tensor as if it were of float32: strides count elements."""
    return Tensor(tensor.name, tensor.shape, "f32", tensor.root, tensor.offset, tensor.strides, tensor.weight)


def _of(plain: Operator) -> Operator:
    """The record of an operator that takes and makes both types."""

    def infer(node: Node, shapes: list[Shape], dtypes: list[str]) -> tuple[Shape, str]:
        shape, dtype = plain.infer(node, shapes, ["f32"] * len(shapes))
        to = str(node.attrs["to"])
        if dtype != "f32" or "f16" not in (*dtypes, to):
            raise node_error(node, f"does not make {dtype} of {', '.join(dtypes)}")
        return shape, to

    def encode(node: Node, inputs: list[Tensor], y: Tensor) -> Values:
        bits = sum(1 << i for i, tensor in enumerate(inputs) if tensor.dtype == "f16")
        bits |= (y.dtype == "f16") << _OUTPUT_BIT
        return plain.encode(node, [_wide(tensor) for tensor in inputs], _wide(y)) | {"f16": bits}

    facts = plain.__dict__ | {"name": f"{plain.name}_f16", "attrs": {**plain.attrs, "to": Enum(TYPES)}}
    return Operator(**facts | {"dtypes": TYPES, "infer": infer, "encode": encode})


OPERATORS = tuple(
    _of(record)
    for family in (convolution, elementwise, reduction, window)
    for record in family.OPERATORS
    if record.name in _PLAIN
)
