"""ONNX operators as internal ones, one function each; a module for each family."""

from . import (  # noqa: F401 (each registers its operators)
    convolution,
    elementwise,
    filling,
    indexing,
    linear,
    logic,
    pooling,
    reduction,
    resizing,
    selection,
    shape,
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
