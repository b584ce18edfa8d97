"""Descriptions of inputs and outputs with onnxruntime's attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flexnn.graph.ir import DTYPES
from flexnn.graph.ports import Dim, Port

if TYPE_CHECKING:
    from flexnn.graph.labels import Labels

_TYPES = {"f32": "float", "f64": "double"} | {
    name: str(dtype) for name, dtype in DTYPES.items() if name not in ("f32", "f64")
}
"""Names that onnxruntime gives to element types."""


class NodeArg(NamedTuple):
    """Description of an input or output, with onnxruntime's attributes."""

    name: str
    """Name in the model."""
    shape: list[Dim]
    """Dimensions; an open one is a name or None."""
    type: str
    """Element type, like ``tensor(float)``."""

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Dtype of its arrays; of texts and mappings that of the numbers that stand for them."""
        if not self.type.startswith("tensor("):
            return np.dtype("float32")
        name = self.type[len("tensor(") : -1]
        return np.dtype({"float": "float32", "double": "float64", "string": "int64"}.get(name, name))


def described(port: Port, labels: Mapping[str, Labels] | None = None) -> NodeArg:
    """Return the description of an input, or of an output with its labels."""
    if labels and port.name in labels:
        dims = port.dims if labels[port.name].kind != "mappings" else ()
        return NodeArg(port.name, list(dims or ()), labels[port.name].type)
    kind = _TYPES[port.dtype] if port.dtype is not None else "unknown"
    return NodeArg(port.name, list(port.dims or ()), f"tensor({kind})")
