"""Numbers of tensors, and values of attributes, as protobuf states them: those of usual types without onnx's modules
for them, which take longer to import than a small model takes to read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto

from .ir import DTYPES, Array, GraphError
from .stated import dtype_name

_FIELDS = {"f32": "float_data", "f64": "double_data", "i32": "int32_data", "i64": "int64_data"}
"""Fields whose numbers have the type of the tensor."""
_VALUES = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}


def numbers_of(tensor: TensorProto) -> Array:
    """Return the numbers of a tensor whose data lie in the model. Raises ValueError, TypeError."""
    try:
        name = dtype_name(tensor.data_type, "")
    except GraphError:
        name = ""
    if name and not tensor.HasField("segment") and tensor.data_location != TensorProto.EXTERNAL:
        if tensor.HasField("raw_data"):
            return np.frombuffer(tensor.raw_data, DTYPES[name]).reshape(tensor.dims)
        if name in _FIELDS:
            return np.array(getattr(tensor, _FIELDS[name]), DTYPES[name]).reshape(tensor.dims)
    from onnx import numpy_helper

    values: Array = numpy_helper.to_array(tensor)
    return values


def value_of(attribute: AttributeProto) -> Any:
    """Return the value of an attribute that holds a number, a text, or a list of these; texts are bytes."""
    value = getattr(attribute, _VALUES[attribute.type])
    return value if isinstance(value, (int, float, bytes)) else list(value)
