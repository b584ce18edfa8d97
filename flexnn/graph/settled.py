"""Weights of a template whose numbers depend on sizes (graph/sizes.py): panels are packed once, so their numbers are
settled while the trail is open, and the sizes are conditions from then on.
"""

from __future__ import annotations

from dataclasses import fields, replace

from .fold import fold, is_lazy
from .ir import Graph, WeightSource
from .lower import LOWERINGS, Const, Context
from .pack import PanelSource
from .pack_bytes import BytePanels
from .size_fold import LateSource
from .sources import ArraySource, MappedSource, ShapedSource, depends


def settled_panels(panels: PanelSource | BytePanels) -> PanelSource | BytePanels:
    """Return the panels, of numbers that depend on no size."""
    parts = {field.name: getattr(panels, field.name) for field in fields(panels)}
    found = {name: settled(part) for name, part in parts.items() if depends(part)}
    return replace(panels, **found) if found else panels  # type: ignore[arg-type]


def settled(source: WeightSource) -> WeightSource:
    """Return a source of the same numbers, as known sizes would have made it: with the same key, by which an artifact
    finds the panels that it holds.
    """
    if isinstance(source, MappedSource) and isinstance(source.base, ShapedSource):
        own, function = tuple(map(int, source.base.shape)), source.function
        return MappedSource(_settled(source.base.base), lambda v: function(v.reshape(own)), f"{own}{source.label}")
    if isinstance(source, MappedSource):
        return replace(source, base=_settled(source.base))
    return _settled(source)


def _settled(source: WeightSource) -> WeightSource:
    if isinstance(source, MappedSource):
        return settled(source)
    if not isinstance(source, LateSource):
        return ArraySource(source.load()) if depends(source) else source
    node = source.node
    inputs = [value if value is None or not depends(value.source) else _known(value) for value in source.inputs]
    if is_lazy(node, inputs):
        results = LOWERINGS[node.op_type](Context(Graph(), node, source.opset, list(inputs)))
        lazy = results[source.output]
        if isinstance(lazy, Const):
            return lazy.source
    return fold(node, inputs, source.opset)[source.output].source


def _known(value: Const) -> Const:
    return Const(value.name, tuple(map(int, value.shape)), value.dtype, settled(value.source))
