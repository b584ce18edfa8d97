"""Weights of convolutions over bytes, made of the panels of those over floats: whole numbers, steps and biases."""

from __future__ import annotations

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..build import panels_of
from ..ir import Array, Attr, Graph, Node, WeightSource
from ..operators.quantised import NO_RESIDUAL
from ..pack import PanelSource
from ..pack_bytes import BytePanels
from ..sources import ArraySource, MappedSource
from .byte_values import Steps

_FROM_WINDOW = "kernel", "strides", "dilations", "pads"
NAMES = {"conv": "conv_u8", "dwconv": "dwconv_u8"}
"""The operators on bytes of those on floats."""
BIAS_MAX = 1 << 30
"""Most steps of a bias: sums of products stay far below what is left of 31 bits."""
RUN = 4
"""Channels that levels multiply at once: with fewer, rows of taps are runs."""


@quick_dataclass(frozen=True, slots=True)
class _Whole:
    """The whole numbers that weights are multiples of, int8."""

    weight: WeightSource
    step: WeightSource

    @property
    def key(self) -> str:
        """Name of both."""
        return f"whole({self.weight.key}|{self.step.key})"

    def load(self) -> Array:
        """Load the weights and divide them by their steps."""
        values = np.asarray(self.weight.load(), np.float32)
        steps = np.asarray(self.step.load(), np.float32).reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(np.rint(values / steps), np.int8)


@quick_dataclass(frozen=True, slots=True)
class _Counts:
    """A bias in steps of the sums, int32. ``step``: of each channel's weights; ``scale``: of the input."""

    bias: WeightSource
    step: WeightSource
    scale: float

    @property
    def key(self) -> str:
        """Name of all."""
        return f"counts{self.scale!r}({self.bias.key}|{self.step.key})"

    def whole(self) -> Array:
        """The steps, rounded, float64."""
        steps = np.asarray(self.step.load(), np.float64) * self.scale
        return np.asarray(np.rint(np.asarray(self.bias.load(), np.float64) / steps))

    def load(self) -> Array:
        """The steps as int32."""
        return self.whole().astype(np.int32)


def fits_bytes(graph: Graph, node: Node, scale: float = 1.0, last: float = 1.0) -> bool:
    """Whether a convolution of what bytes in steps of ``scale`` were restored to can be one of the bytes. ``last``: the
    steps of its result.
    """
    if len(node.inputs) != 1 or node.attrs["act"] != "none" or node.attrs.get("group", 1) != 1:
        return False
    panels = panels_of(graph, node)
    if panels.wtype != "s8" or panels.step is None or panels.slope is not None:
        return False
    step = _step(panels)
    steps = np.asarray(step.load(), np.float32)
    if not (steps > 0).all() or ratio(steps, scale, last) is None:
        return False
    return panels.bias is None or bool((np.abs(_Counts(panels.bias, step, scale).whole()) < BIAS_MAX).all())


def ratio(first: Array | float, second: float, last: float) -> Array | None:
    """Steps times steps in steps of the result, in float32; None where that is no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.asarray(np.float32(1) * first, np.float32) * np.float32(second) / np.float32(last)
    return np.asarray(value) if np.isfinite(value).all() else None


def _step(panels: PanelSource) -> WeightSource:
    """The steps of each channel's weights, with what was folded into them."""
    assert panels.step is not None
    if panels.scale is None:
        return panels.step
    factor = panels.scale.load()
    return MappedSource(panels.step, lambda v: (v * factor).astype(np.float32), f"times({panels.scale.key})")


def rounding_panels(graph: Graph, node: Node, x: Steps, y: Steps) -> BytePanels:
    """Panels of a convolution over bytes in steps ``x`` whose sums are rounded to steps ``y``."""
    panels = panels_of(graph, node)
    step, first, last = _step(panels), np.float32(x.scale), np.float32(y.scale)
    scale = MappedSource(step, lambda v: (v.astype(np.float32) * first / last).astype(np.float32), f"by{first}/{last}")
    bias = None if panels.bias is None else _Counts(panels.bias, step, float(first))
    return _panels(node, panels, x.zero, "u8", scale, bias=bias)


def float_panels(
    graph: Graph,
    node: Node,
    x: Steps,
    factors: Array | None = None,
    offset: Array | None = None,
    bias: Array | None = None,
) -> BytePanels:
    """Panels of a convolution over bytes in steps ``x`` that makes floats, and what comes behind it, for each channel:
    factors, numbers that are added to the floats, and whole numbers that are added to the sums.
    """
    panels = panels_of(graph, node)
    first = np.float32(x.scale) * (np.ones(1, np.float32) if factors is None else factors.astype(np.float32))
    scale = MappedSource(_step(panels), lambda v: (v * first).astype(np.float32), f"times({ArraySource(first).key})")
    added = panels.bias if offset is None else ArraySource(offset.astype(np.float32))
    whole = None if bias is None else ArraySource(bias.astype(np.int32))
    return _panels(node, panels, x.zero, "f32", scale, bias=whole, offset=added)


def _panels(
    node: Node,
    panels: PanelSource,
    zero: int,
    to: str,
    scale: WeightSource,
    *,
    bias: WeightSource | None = None,
    offset: WeightSource | None = None,
) -> BytePanels:
    assert panels.step is not None
    narrow = node.op == "conv" and panels.shape[1] < RUN and panels.shape[3] > 1 and node.attrs["dilations"] == [1, 1]
    whole = _Whole(panels.weight, panels.step)
    return BytePanels(NAMES[node.op], panels.shape, whole, scale, zero, to, bias, offset, by_rows=narrow)


def byte_attrs(node: Node, panels: BytePanels, clamp: dict[str, Attr]) -> dict[str, Attr]:
    """Attributes of the operator over bytes that a convolution becomes."""
    return {name: node.attrs[name] for name in _FROM_WINDOW} | panels.attrs | clamp | NO_RESIDUAL
