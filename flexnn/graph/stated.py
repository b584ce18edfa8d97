"""Limits of what a model may state, its types of elements, and the error for what cannot be used. Reading and checking
a model computes nothing, so this module does without numpy.
"""

from __future__ import annotations

from flexnn.errors import FlexNNError

RANK_MAX = 8
"""Dimensions of a tensor."""
TENSOR_BYTES_MAX = 1 << 40
OPSET_MIN, OPSET_MAX = 6, 28
"""Versions of the default domain whose operators are known."""
IR_VERSION_MAX = 14
"""Newest version of the format: a newer one may state what nothing here reads."""
NAME_MAX = 2048
"""Characters of a name in a model. Those in an artifact, of which it takes twice as many, are made of them."""
NESTING_MAX = 64
"""Depth of graphs inside graphs."""

_DTYPE_NAMES = {1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64"}
_DTYPE_NAMES |= {12: "u32", 13: "u64"}
_OTHER_TYPES = {8: "STRING", 14: "COMPLEX64", 15: "COMPLEX128", 16: "BFLOAT16"}
"""TensorProto.DataType (onnx.proto) that cannot be computed with; there are more, of 8 bits and fewer."""


class GraphError(FlexNNError, ValueError):
    """A model or graph that cannot be used; the message is one line naming what and where."""


def dtype_name(number: int, what: str) -> str:
    """The name of TensorProto.DataType ``number`` in ir.DTYPES. Raises GraphError naming ``what``."""
    name = _DTYPE_NAMES.get(number)
    if name is None:
        raise GraphError(f"{what}: data type {_OTHER_TYPES.get(number, number)} is not supported")
    return name
