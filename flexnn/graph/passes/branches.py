"""Convolutions of one map whose results are added become one.

Networks are trained with a 3x3 and a 1x1 convolution, and the map itself times a vector, side by side (RepVGG, Ding et
al. 2021, section 3.3); many are exported like that. The sum is a convolution again: its weights are the sum of theirs,
the smaller ones in the middle of the largest. Behind fold_affine, so that each has its BatchNormalization.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..attributes import ints_attr
from ..build import add_panels, panels_of
from ..ir import Array, Graph, Node, WeightSource
from ..operators import has_panels
from ..pack import PanelSource
from ..sources import ArraySource, depends
from .affine import channel_values
from .rewrite import Rewriter, operands


@quick_dataclass(frozen=True, slots=True)
class Part:
    """The weights of one of the convolutions, and where they stand among those of the sum."""

    weight: WeightSource
    scale: WeightSource | None
    """Factor of each output channel."""
    shape: tuple[int, int, int, int]
    place: tuple[int, int]
    """Row and column of the first tap."""


@quick_dataclass(frozen=True, slots=True)
class SummedSource:
    """Weights of several convolutions as those of one."""

    parts: Sequence[Part]
    """The largest one first."""
    shape: tuple[int, int, int, int]

    @property
    def base(self) -> WeightSource:
        """The largest part's weights: the sum is stored in the form that is chosen for these."""
        return self.parts[0].weight

    @property
    def key(self) -> str:
        """The parts' keys and places."""
        keys = [f"{p.weight.key}*{p.scale.key if p.scale else ''}@{p.place}{p.shape}" for p in self.parts]
        return f"summed({','.join(keys)})"

    def load(self) -> Array:
        """The sum, rounded once for each part."""
        whole = np.zeros(self.shape, np.float32)
        for part in self.parts:
            (row, column), (_, _, kh, kw) = part.place, part.shape
            weights = np.asarray(part.weight.load(), np.float32).reshape(part.shape)
            if part.scale is not None:
                weights = weights * np.asarray(part.scale.load(), np.float32).reshape(-1, 1, 1, 1)
            whole[:, :, row : row + kh, column : column + kw] += weights
        return whole


@quick_dataclass(slots=True)
class _Branch:
    """One of the summands, as a convolution."""

    panels: PanelSource
    node: Node
    """The convolution, or the depthwise one beside the map."""
    source: int
    pads: list[int]


def merge_branches(graph: Graph) -> None:
    """Merge convolutions of the same map whose results are only added, and the map itself beside a depthwise one."""
    uses = Rewriter(graph)
    for node in graph.nodes:
        is_sum = node.op == "binary" and node.attrs["kind"] == "add" and node.attrs["act"] == "none"
        if is_sum and node.inputs[0] != node.inputs[1]:
            for first, second in operands(node):
                panels = _merged(uses, node, first, second)
                if panels is not None:
                    conv = uses.producer[first]
                    conv.weight = add_panels(graph, conv.name, panels)
                    uses.replace(node.outputs[0], first)
                    uses.remove(node)
                    break
    uses.flush()


def _merged(uses: Rewriter, node: Node, first: int, second: int) -> PanelSource | None:
    """The panels of the convolution ``first``, which adds ``second``, too; None where it cannot."""
    large = _convolution(uses, first, node)
    small = large and (_convolution(uses, second, node) or _vector(uses, second, node, large))
    if large is None or small is None or small.source != large.source or not _alike(large, small):
        return None
    if uses.shape(first) != uses.shape(second):
        return None
    place = large.pads[0] - small.pads[0], large.pads[1] - small.pads[1]
    if any(not 0 <= at <= large.panels.shape[2 + i] - small.panels.shape[2 + i] for i, at in enumerate(place)):
        return None
    return _summed(large.panels, small.panels, place)


def _convolution(uses: Rewriter, tensor: int, reader: Node) -> _Branch | None:
    """The convolution that makes ``tensor`` for one reader; None where it is no plain one."""
    node = uses.producer.get(tensor)
    if node is None or not has_panels(node) or node.op not in ("conv", "dwconv") or len(node.inputs) != 1:
        return None
    panels = panels_of(uses.graph, node)
    plain = not (panels.step or panels.least or panels.slope or depends(panels.weight))
    if not plain or node.attrs["act"] != "none" or uses.only_consumer(tensor) is not reader:
        return None
    return _Branch(panels, node, node.inputs[0], ints_attr(node, "pads"))


def _vector(uses: Rewriter, tensor: int, reader: Node, large: _Branch) -> _Branch | None:
    """The map that a depthwise convolution reads, times a vector and plus one, as a convolution; None if it is not."""
    if large.node.op != "dwconv" or set(ints_attr(large.node, "strides")) != {1}:
        return None
    channels = large.panels.shape[0]
    factor, shift = np.ones(channels), np.zeros(channels)
    while tensor != large.source:
        node, is_read = uses.producer.get(tensor), uses.only_consumer(tensor) is reader
        if node is None or not is_read or node.op != "binary" or node.attrs["act"] != "none":
            return None
        given = [(x, channel_values(uses.graph, y, channels)) for x, y in operands(node)]
        known = [(x, values) for x, values in given if values is not None and uses.shape(x) == uses.shape(tensor)]
        if not known or node.attrs["kind"] not in ("add", "mul"):
            return None
        (tensor, values), reader = known[0], node
        if node.attrs["kind"] == "add":
            shift = shift + factor * values
        else:
            factor = factor * values
    weight, bias = (ArraySource(v.astype(np.float32)) for v in (factor.reshape(-1, 1, 1, 1), shift))
    panels = PanelSource("dwconv", (channels, 1, 1, 1), channels, weight, bias, wtype="f32")
    return _Branch(panels, large.node, tensor, [0, 0, 0, 0])


def _alike(large: _Branch, small: _Branch) -> bool:
    """Whether the results of two convolutions lie over each other, as far as attributes say."""
    same = all(large.node.attrs.get(name) == small.node.attrs.get(name) for name in ("strides", "dilations", "sums"))
    form = large.panels.shape[:2] == small.panels.shape[:2] and large.panels.group == small.panels.group
    plain = set(ints_attr(large.node, "dilations")) == {1} and large.node.attrs.get("sums", "f32") == "f32"
    return same and form and plain and large.node.op == small.node.op


def _summed(large: PanelSource, small: PanelSource, place: tuple[int, int]) -> PanelSource:
    parts = [Part(large.weight, large.scale, large.shape, (0, 0)), Part(small.weight, small.scale, small.shape, place)]
    biases = [np.asarray(p.bias.load(), np.float32) for p in (large, small) if p.bias is not None]
    bias = ArraySource(np.asarray(sum(biases), np.float32)) if biases else None
    return PanelSource(large.op, large.shape, large.group, SummedSource(parts, large.shape), bias, wtype=large.wtype)
