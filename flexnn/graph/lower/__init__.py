"""ONNX operators as internal ones, one function each; a module for each family."""

from . import (  # noqa: F401 (each registers its operators)
    attention,
    convolution,
    einsum,
    elementwise,
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
)
from .constant import Const, array_const, of_halves
from .context import LOWERINGS, Context, UnknownValueError, Value

__all__ = ["LOWERINGS", "Const", "Context", "UnknownValueError", "Value", "array_const", "of_halves"]
