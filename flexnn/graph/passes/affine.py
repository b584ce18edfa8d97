"""Products and sums with constants, a BatchNormalization among them, become part of a convolution.

Behind a convolution: scale and bias of its output channels. Before it, products only: scale of its input channels
(a sum before it would reach into the padding).
"""

from __future__ import annotations

import numpy as np

from ..build import constant_value, panels_of
from ..ir import Array, Graph, Node
from ..operators import has_panels
from ..pack import PanelSource
from ..sources import ArraySource, MappedSource, depends
from .rewrite import Rewriter, operands

_KINDS = ("add", "sub", "mul", "div")
HALVES_SCALE_MAX = 256
"""Weights stored as halves, which must not pass 65504, take factors up to this; with larger ones they become floats."""


def fold_affine(graph: Graph) -> None:
    """Fold binary nodes with constants into the convolutions beside them."""
    uses = Rewriter(graph)
    convolutions = [n for n in graph.nodes if has_panels(n)]
    for fold in (_fold_behind, _fold_before):
        for node in convolutions:
            while fold(uses, node):
                pass
    uses.flush()


def channel_values(graph: Graph, tensor: int, channels: int) -> np.ndarray | None:
    """A constant that is the same for all but the last dimension, as float64 [channels]; None if it is not such, or if
    its numbers depend on sizes: panels made of them would serve these sizes alone.
    """
    shape, weight = graph.tensors[tensor].shape, graph.tensors[tensor].weight
    if weight < 0 or depends(graph.weights[weight].source):
        return None
    if any(d != 1 for d in shape[:-1]) or (shape and shape[-1] not in (1, channels)):
        return None
    value = constant_value(graph, tensor)
    if value is None:
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.float64), (channels,))


def _fold_behind(uses: Rewriter, conv: Node) -> bool:
    graph = uses.graph
    parts = uses.summed(conv)
    if conv.attrs["act"] != "none" or len(parts[-1].inputs) > 1:
        return False
    found = uses.after_reshapes(conv.outputs[0])
    if found is None:
        return False
    tensor, node = found
    channels = uses.shape(conv.outputs[0])[-1]
    if node.op != "binary" or node.attrs["kind"] not in _KINDS or uses.shape(tensor)[-1:] != (channels,):
        return False
    if uses.shape(node.outputs[0]) != uses.shape(tensor):
        return False
    turned = node.inputs[1] == tensor
    values = channel_values(graph, node.inputs[0 if turned else 1], channels)
    kind = str(node.attrs["kind"])
    if values is None or (kind == "div" and (turned or not values.all())):
        return False
    first = panels_of(graph, parts[-1])
    bias = _vector(first.bias.load() if first.bias else None, channels, 0.0)
    factor = np.ones(channels)
    if kind in ("add", "sub"):
        factor = -factor if kind == "sub" and turned else factor
        bias = bias * factor + (values if kind == "add" or turned else -values)
    else:
        factor = values if kind == "mul" else 1 / values
        bias = bias * factor
    first.bias = ArraySource(bias.astype(np.float32))
    for part in parts:
        panels = panels_of(graph, part)
        scale = _vector(panels.scale.load() if panels.scale else None, channels, 1.0) * factor
        if panels.scale or (scale != 1).any():
            panels.scale = ArraySource(scale.astype(np.float32))
            _leave_halves(panels, scale)
    uses.replace(node.outputs[0], tensor)
    uses.remove(node)
    return True


def _fold_before(uses: Rewriter, conv: Node) -> bool:
    graph, x = uses.graph, conv.inputs[0]
    node = uses.producer.get(x)
    if node is None or node.op != "binary" or node.attrs["kind"] != "mul" or node.attrs["act"] != "none":
        return False
    if uses.only_consumer(x) is not conv:
        return False
    for source, other in operands(node):
        shape = uses.shape(x)
        if source == other or uses.shape(source) != shape:
            continue
        values = channel_values(graph, other, shape[-1])
        if values is None:
            continue
        panels = panels_of(graph, conv)
        factor = values.astype(np.float32)
        if panels.is_depthwise or (factor == factor[0]).all():
            factor = factor if panels.is_depthwise else np.full(panels.shape[0], factor[0])
            scale = _vector(panels.scale.load() if panels.scale else None, factor.size, 1.0)
            panels.scale = ArraySource((scale * factor).astype(np.float32))
            _leave_halves(panels, scale * factor)
        elif panels.step is not None:  # they would be multiples of nothing any more
            return False
        else:
            cout, cin_group = panels.shape[:2]
            rows = np.repeat(factor.reshape(panels.group, cin_group), cout // panels.group, axis=0)

            def scaled(v: Array, rows: np.ndarray = rows) -> Array:
                return np.asarray(v * rows[:, :, None, None])

            panels.weight = MappedSource(panels.weight, scaled, f"scaled{ArraySource(rows).key}")
            _leave_halves(panels, rows)
        uses.feed(conv, [source, *conv.inputs[1:]])
        return True
    return False


def _leave_halves(panels: PanelSource, factors: np.ndarray) -> None:
    if panels.wtype == "f16" and not (np.abs(factors) <= HALVES_SCALE_MAX).all():
        panels.wtype = "f32"


def _vector(values: Array | None, count: int, default: float) -> np.ndarray:
    return np.full(count, default) if values is None else values.astype(np.float64)
