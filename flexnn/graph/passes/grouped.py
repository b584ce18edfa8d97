"""A grouped convolution that was exported as one convolution for each group becomes one node again.

split along channels -> a convolution for each part -> concat in the same order: one convolution with groups, whose
weights are those of the parts one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from ..attributes import int_attr, ints_attr
from ..build import NO_ACT, add_panels, panels_of
from ..ir import Array, Graph, Node, WeightSource
from ..lower.convolution import conv_op
from ..pack import PanelSource
from ..panels import is_narrow
from ..sources import ArraySource
from .rewrite import Rewriter

_SAME = ("kernel", "strides", "dilations", "pads", "sums")


@quick_dataclass(frozen=True, slots=True)
class StackedSource:
    """Several float32 sources of one shape as one, along the first dimension."""

    parts: list[WeightSource]
    shape: tuple[int, ...]
    """Shape of each part."""

    @property
    def key(self) -> str:
        """The parts' keys."""
        return f"stacked({','.join(part.key for part in self.parts)})"

    def load(self) -> Array:
        """The parts, each loaded into its place and dropped."""
        whole = np.empty((len(self.parts), *self.shape), np.float32)
        for part, place in zip(self.parts, whole, strict=True):
            place[...] = part.load()
        return whole.reshape(-1, *self.shape[1:])


def merge_groups(graph: Graph) -> None:
    """Merge convolutions of the parts of a tensor, concatenated in order, into one with groups."""
    uses = Rewriter(graph)
    for node in graph.nodes:
        if node.op != "concat" or len(node.inputs) < 2:
            continue
        parts = [uses.producer.get(i) for i in node.inputs]
        convolutions = [p for p in parts if p is not None and p.op == "conv" and _alone(uses, p, node)]
        if len(convolutions) != len(parts):
            continue
        source = _split_of(uses, convolutions)
        if source is None or int_attr(node, "axis") != len(uses.shape(node.outputs[0])) - 1:
            continue
        panels = _panels(graph, convolutions)
        if panels is None:
            continue
        attrs = {name: convolutions[0].attrs[name] for name in _SAME} | NO_ACT | panels.attrs
        node.op, node.attrs, node.weight = panels.op, attrs, add_panels(graph, node.name, panels)
        uses.feed(node, [source])
    uses.flush()


def _alone(uses: Rewriter, conv: Node, concat: Node) -> bool:
    plain = conv.attrs["act"] == "none" and len(conv.inputs) == 1 and conv.attrs["group"] == 1
    return plain and uses.only_consumer(conv.outputs[0]) is concat


def _split_of(uses: Rewriter, convolutions: Sequence[Node]) -> int | None:
    """The tensor whose channels the convolutions read, each its part, in order and all of them."""
    slices = [uses.producer.get(conv.inputs[0]) for conv in convolutions]
    source, at = -1, 0
    for cut in slices:
        if cut is None or cut.op != "slice" or (source >= 0 and cut.inputs[0] != source):
            return None
        source = cut.inputs[0]
        shape, sizes = uses.shape(source), ints_attr(cut, "sizes")
        if ints_attr(cut, "starts") != [0] * (len(shape) - 1) + [at] or set(ints_attr(cut, "steps")) != {1}:
            return None
        if sizes[:-1] != list(shape[:-1]):
            return None
        at += sizes[-1]
    return source if at == uses.shape(source)[-1] else None


def _panels(graph: Graph, convolutions: Sequence[Node]) -> PanelSource | None:
    """The panels of the convolutions as groups of one; None unless they are alike."""
    each = [panels_of(graph, conv) for conv in convolutions]
    first = each[0]
    if any(p.shape != first.shape or p.scale or p.slope or p.wtype != first.wtype or p.least for p in each):
        return None
    steps = [p.step for p in each if p.step]
    if len(steps) not in (0, len(each)) or (steps and first.form.block):
        return None
    if any(conv.attrs[name] != convolutions[0].attrs[name] for conv in convolutions for name in _SAME):
        return None
    group = len(each)
    cout, cin_group, kh, kw = first.shape
    none: WeightSource = ArraySource(np.zeros(cout, np.float32))
    bias = StackedSource([p.bias or none for p in each], (cout,)) if any(p.bias for p in each) else None
    shape = (cout * group, cin_group, kh, kw)
    op = conv_op(cin_group, cout * group, group)
    if convolutions[0].attrs["sums"] == "i32" and (op == "dwconv" or is_narrow(cout * group, cin_group, group)):
        return None  # their kernels cut no sum into parts
    weight = StackedSource([p.weight for p in each], first.shape)
    step = StackedSource(steps, (cout,)) if steps else None
    return PanelSource(op, shape, group, weight, bias, wtype=first.wtype, step=step)
