"""ONNX operators as internal ones, one function each; a module for each family."""

from . import (  # noqa: F401 (each registers its operators)
    attention,
    columns,
    convolution,
    einsum,
    elementwise,
    filling,
    fourier,
    indexing,
    linear,
    logic,
    pooling,
    quantised,
    recurrent,
    reduction,
    resizing,
    sampling,
    selection,
    shape,
    state,
    trees,
)
from .constant import OPERAND_BYTES, Const, array_const, depends, is_sizes, of_halves, sizes_const
from .context import LOWERINGS, OWN, Context, UnknownValueError, Value
from .filling import FILLINGS

__all__ = [
    "FILLINGS",
    "LOWERINGS",
    "OPERAND_BYTES",
    "OWN",
    "Const",
    "Context",
    "UnknownValueError",
    "Value",
    "array_const",
    "depends",
    "is_sizes",
    "of_halves",
    "sizes_const",
]
