"""Shapes of a model's values at given shapes of its inputs: nodes are bound as far as one asks for their outputs."""

from __future__ import annotations

from collections.abc import Mapping

from .bind import Binder
from .ir import GraphError
from .lower import Const
from .model import Model, reads


class BoundShapes:
    """Shapes of values."""

    def __init__(self, model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take shapes of the inputs by name; those without elements are left out."""
        self._model = model
        self._binder = Binder(model.opset)
        self._binder.constants = model.graph.constants
        for port in model.graph.inputs:
            if all(shapes[port.name]):
                self._binder.add_input(port.name, shapes[port.name], str(port.dtype))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value. Raises GraphError where lengths alone do not decide it."""
        binder, wanted = self._binder, {name}
        missing = []
        for node in reversed(self._model.graph.nodes):
            if wanted.intersection(node.output) and not any(output in binder.values for output in node.output):
                missing.append(node)
                wanted |= reads(node)
        for node in reversed(missing):
            binder.add(node)
        value = binder.value(name)
        if value is None:
            raise GraphError(f"nothing is known of the shape of {name!r}")
        return value.shape if isinstance(value, Const) else binder.graph.tensors[value].shape
