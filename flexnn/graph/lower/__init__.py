"""ONNX operators as internal ones, one function each; a module for each family, imported when one of its operators is
lowered: what templates say needs none.
"""

from . import shape  # noqa: F401 (registers its operators, whose module others need)
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
