"""Constants of integers of 4 bits: two in a byte, the first in its lower half. They are read as bytes, and only by
nodes for which that is the same: those that restore, convert or move them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx

from .ir import TENSOR_BYTES_MAX, Array, GraphError, WeightSource
from .sources import ArraySource, FileSource, MappedSource

if TYPE_CHECKING:
    from .model import ModelNode
    from .onnx_file import OnnxFile

TYPES = {21: "u8", 22: "i8"}
"""TensorProto.DataType UINT4 and INT4, and the types that they are read as."""
_MOVES = {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


def source_of_halves(file: OnnxFile, tensor: onnx.TensorProto) -> tuple[tuple[int, ...], str, WeightSource]:
    """Shape, dtype and source of a tensor of 4 bits, as OnnxFile.source returns them. Raises GraphError."""
    what, shape, dtype = f"tensor {tensor.name!r}", tuple(tensor.dims), TYPES[tensor.data_type]
    if any(d < 0 for d in shape) or prod(shape) > TENSOR_BYTES_MAX:
        raise GraphError(f"{what}: invalid shape {shape}")
    count, is_signed = prod(shape), dtype == "i8"
    nbytes = -(-count // 2)
    packed: WeightSource
    if (place := file.place(tensor, nbytes)) is not None:
        packed = FileSource(*place, np.dtype(np.uint8), (nbytes,))
    else:
        raw = tensor.HasField("raw_data")
        values = np.frombuffer(tensor.raw_data, np.uint8) if raw else np.array(tensor.int32_data, np.int64)
        if values.size != nbytes or (not raw and np.any((values < 0) | (values > 255))):
            raise GraphError(f"{what}: data do not fit shape {shape}")
        packed = ArraySource(values.astype(np.uint8))

    def halves(v: Array) -> Array:
        own = np.stack([v & 15, v >> 4], 1).reshape(-1)[:count].reshape(shape)
        return ((own ^ 8).astype(np.int8) - np.int8(8)) if is_signed else own

    return shape, dtype, MappedSource(packed, halves, f"halves{dtype}{list(shape)}")


def follow_halves(node: ModelNode, halves: set[str]) -> None:
    """Mark what ``node`` makes of ``halves``, values of 4 bits by name. Raises GraphError if it would compute with them
    as if they were bytes.
    """
    halves.difference_update(node.output)
    read = [name for name in node.input if name in halves]
    if not read:
        return
    if node.domain or node.op_type not in ("DequantizeLinear", "Cast", *_MOVES):
        raise GraphError(
            f"{node.where}: its input {read[0]!r} has 4 bits; DequantizeLinear and Cast read such constants"
        )
    if node.op_type in _MOVES:
        halves.update(node.output)
    elif node.op_type == "DequantizeLinear" and node.input[0] in halves:
        node.attrs["bits"] = 4
