"""The constants whose weights may be stored in fewer bits, and what each form takes and how far it is off."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from flexnn.graph.ir import GraphError, Weight
from flexnn.graph.pack import PackedSource, PanelSource
from flexnn.graph.panels import is_narrow
from flexnn.graph.sources import ModelSource, model_source
from flexnn.quick_dataclass import quick_dataclass

WEIGHTS_MIN = 16 << 10
"""Fewest weights of a layer that is narrowed: smaller ones save little, and their rounding costs as much as that of
large ones.
"""
FORMS = ("f16", "s8b", "s8", "q4m", "q4")
"""Forms that are chosen from, beside f32."""


@quick_dataclass(slots=True)
class Layer:
    """A constant of the model, and the panels that are made of it."""

    source: ModelSource
    weights: list[Weight]
    """Different ones: what several nodes read is stored once."""
    own: str = "f32"
    """The form that they have without a choice: that of the model's blocks, where it has such."""
    rounding: dict[str, float] = field(default_factory=dict)
    """Relative L2 of the weights in each form that they fit into."""
    nbytes: dict[str, int] = field(default_factory=dict)
    """Bytes of all panels in each of these forms, and in f32."""
    error: float = 0.0
    """Relative L2 of the worst output where these weights alone are in 8 bits."""

    @property
    def name(self) -> str:
        """Name of the first weight."""
        return self.weights[0].name

    @property
    def count(self) -> int:
        """Number of weights."""
        return sum(int(np.prod(panels_of(weight).shape)) for weight in self.weights)


def panels_of(weight: Weight) -> PanelSource:
    """Return a weight's panels."""
    found = _panels(weight)
    assert found is not None
    return found


def _panels(weight: Weight) -> PanelSource | None:
    """The weight's panels of floats, those of a table that a product reads, too, among them; None: it has none."""
    found = weight.source.panels if isinstance(weight.source, PackedSource) else weight.panels
    return found if isinstance(found, PanelSource) else None


def in_form(panels: PanelSource, form: str) -> PanelSource:
    """Return the same panels with their weights stored in another form, rounded to it."""
    return replace(panels, wtype=form, step=None, least=None, factors=None)


def layers_of(weights: list[Weight], *, with_blocks: bool = False) -> list[Layer]:
    """Return the layers among an artifact's weights, in their order, without figures. ``with_blocks``: also those whose
    weights are integers with scales in blocks already.
    """
    found: dict[int, Layer] = {}
    wide: set[int] = set()
    seen: set[str] = set()
    for weight in weights:
        panels = _panels(weight)
        if panels is None or panels.key in seen:
            continue
        seen.add(panels.key)
        source = model_source(panels.weight)
        if source is None:
            continue
        layer = found.setdefault(id(source), Layer(source, [], panels.form.name))
        layer.weights.append(weight)
        if not _may_be_narrow(panels, with_blocks) or panels.form.name != layer.own:
            wide.add(id(source))
    return [layer for key, layer in found.items() if key not in wide]


def _may_be_narrow(panels: PanelSource, with_blocks: bool) -> bool:
    few = int(np.prod(panels.shape)) < WEIGHTS_MIN or is_narrow(panels.shape[0], panels.shape[1], panels.group)
    in_blocks = with_blocks and panels.step is not None and panels.form.block > 0
    is_wide = panels.wtype == "f32" and panels.step is None
    return (is_wide or in_blocks) and not panels.is_depthwise and not few


def weigh(layer: Layer, forms: tuple[str, ...]) -> None:
    """Fill in bytes of its own form and of f32, and bytes and rounding of each of these forms that fits and is smaller
    than its own.
    """
    layer.nbytes["f32"] = sum(in_form(panels_of(weight), "f32").nbytes for weight in layer.weights)
    layer.nbytes[layer.own] = sum(weight.nbytes for weight in layer.weights)
    for form in forms:
        each = [in_form(panels_of(weight), form) for weight in layer.weights]
        nbytes = sum(panels.nbytes for panels in each)
        if any(panels.form.name != form for panels in each) or nbytes >= layer.nbytes[layer.own]:
            continue
        try:
            error = [_squares(panels) for panels in each]
        except GraphError:  # numbers too large for this form
            continue
        layer.rounding[form] = float(np.sqrt(sum(off for off, _ in error) / (sum(all_ for _, all_ in error) or 1.0)))
        layer.nbytes[form] = nbytes


def _squares(panels: PanelSource) -> tuple[float, float]:
    """Sum of the squares of what rounding changes, and of the weights."""
    off = whole = 0.0
    for before, after in panels.widened():
        off += float(np.square(after - before, dtype=np.float64).sum())
        whole += float(np.square(before, dtype=np.float64).sum())
    return off, whole
