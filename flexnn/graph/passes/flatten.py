"""A Gemm over a flattened image is a convolution whose kernel is the image: its weights already lie in that order.

[n,h,w,c] -> transpose to [n,c,h,w] -> reshape to n rows -> 1x1 convolution becomes one h x w convolution with one
output pixel, and neither transpose nor permuted weights are needed (VGG's first fully connected layer).
"""

from __future__ import annotations

from ..attributes import ints_attr
from ..build import panels_of
from ..ir import Graph, Node
from ..pack import PanelSource
from ..sources import MappedSource
from .rewrite import Rewriter

_TO_FIRST = [0, 3, 1, 2]


def fold_flatten(graph: Graph) -> None:
    """Fold flattening transposes into the 1x1 convolutions over rows that read them."""
    uses = Rewriter(graph)
    added: list[tuple[Node, Node]] = []
    for node in graph.nodes:
        reshape = uses.producer.get(node.inputs[0]) if node.op == "conv" else None
        copy = uses.producer.get(reshape.inputs[0]) if reshape is not None and reshape.op == "reshape" else None
        if copy is None or copy.op != "copy" or ints_attr(copy, "perm") != _TO_FIRST or any(ints_attr(copy, "expand")):
            continue
        n, h, w, c = uses.shape(copy.inputs[0])
        panels = panels_of(graph, node)
        rows = uses.shape(node.inputs[0])
        if rows != (1, n, 1, c * h * w) or panels.shape[1:] != (c * h * w, 1, 1) or panels.group != 1:
            continue
        if ints_attr(node, "strides") != [1, 1] or any(ints_attr(node, "pads")):
            continue
        if panels.step is not None and panels.form.block:  # blocks of channels in their order here
            continue
        shape = (panels.shape[0], c, h, w)
        label = f"reshape{shape}"
        source = MappedSource(panels.weight, lambda v, shape=shape: v.reshape(shape), label, is_view=True)  # type: ignore[misc]
        packed = PanelSource(
            "conv", shape, 1, source, panels.bias, panels.scale, panels.slope, panels.wtype, panels.step
        )
        graph.weights[node.weight].panels = packed
        node.attrs |= {"kernel": [h, w], "cin_block": packed.cin_block}
        uses.feed(node, [copy.inputs[0]])
        y = node.outputs[0]
        tensor = graph.tensors[y]
        graph.tensors.append(type(tensor)(tensor.name, (n, 1, 1, shape[0]), tensor.dtype))
        node.outputs = [len(graph.tensors) - 1]
        added.append((node, Node(node.name, "reshape", list(node.outputs), [y], {"shape": list(tensor.shape)})))
    uses.flush()
    for node, back in added:
        graph.nodes.insert(next(i for i, n in enumerate(graph.nodes) if n is node) + 1, back)
