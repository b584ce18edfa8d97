"""Residual sums: y = act(conv(x) + r) is one convolution that reads r, and may write its result over it.

Of two convolutions that meet in a sum the later one takes it; its node stands where the sum stood, so that r is there.
Between the convolution and the sum there may be a reshape (of rows to tokens): it moves behind, and r gets one. A
convolution that is a sum of several (lower/volumes.py) reads r with its first one.
"""

from __future__ import annotations

from ..ir import Graph, Node
from ..operators import has_panels
from .rewrite import Rewriter


def fold_residuals(graph: Graph) -> None:
    """Fold ``add`` nodes, and the activation behind them, into a convolution that only they read."""
    uses = Rewriter(graph)
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    moved: dict[int, list[Node]] = {}
    """Nodes that take the place of a sum, by its id."""
    for node in graph.nodes:
        if node.op != "binary" or node.attrs["kind"] != "add" or node.inputs[0] == node.inputs[1]:
            continue
        found = [(conv, i) for conv, i in ((_conv_of(uses, node, i), i) for i in node.inputs) if conv is not None]
        if not found:
            continue
        conv, tensor = max(found, key=lambda pair: position[id(pair[0])])
        a, b = node.inputs
        residual = b if tensor == a else a
        conv.attrs |= {name: node.attrs[name] for name in ("act", "alpha", "beta")}
        y, out = node.outputs[0], conv.outputs[0]
        place = uses.summed(conv)[::-1]
        first = place[0]
        if tensor != out:
            back = uses.producer[tensor]
            residual = uses.emit(node, "reshape", [residual], {"shape": list(uses.shape(out))})
            place = [uses.producer[residual], *place, back]
        graph.tensors[tensor].name = graph.tensors[y].name
        uses.feed(first, [first.inputs[0], residual])
        uses.replace(y, tensor)
        moved[id(node)] = place
        for moving in place:
            position[id(moving)] = position[id(node)]
        node.inputs = []
    late = {id(node) for place in moved.values() for node in place}
    nodes = []
    for node in graph.nodes:
        if id(node) in moved:
            nodes += moved[id(node)]
        elif id(node) not in late:
            nodes.append(node)
    graph.nodes = nodes


def _conv_of(uses: Rewriter, add: Node, tensor: int) -> Node | None:
    """The convolution that computes ``tensor`` for this sum alone, perhaps through a reshape, if it takes the sum."""
    conv, reader, out = uses.producer.get(tensor), add, tensor
    if conv is not None and conv.op == "reshape":
        reader, out = conv, conv.inputs[0]
        conv = uses.producer.get(out)
    if conv is None or not has_panels(conv) or conv.attrs["act"] != "none":
        return None
    if len(uses.summed(conv)[-1].inputs) > 1:
        return None
    if uses.only_consumer(tensor) is not add or uses.only_consumer(out) is not reader:
        return None
    same = all(uses.shape(i) == uses.shape(tensor) for i in (*add.inputs, add.outputs[0]))
    return conv if same else None
