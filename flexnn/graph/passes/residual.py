"""Residual sums: y = act(conv(x) + r) is one convolution that reads r, and may write its result over it.

Of two convolutions that meet in a sum the later one takes it; its node stands where the sum stood, so that r is there.
"""

from __future__ import annotations

from ..ir import Graph, Node
from .rewrite import Rewriter


def fold_residuals(graph: Graph) -> None:
    """Folds ``add`` nodes, and the activation behind them, into a convolution that only they read."""
    uses = Rewriter(graph)
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    moved: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op != "binary" or node.attrs["kind"] != "add" or node.inputs[0] == node.inputs[1]:
            continue
        hosts = [h for h in (_host(uses, node, i) for i in node.inputs) if h is not None]
        if not hosts:
            continue
        host = max(hosts, key=lambda h: position[id(h)])
        a, b = node.inputs
        residual = b if host.outputs[0] == a else a
        host.attrs |= {name: node.attrs[name] for name in ("act", "alpha", "beta")}
        x, y = host.inputs[0], node.outputs[0]
        out = host.outputs[0]
        graph.tensors[out].name = graph.tensors[y].name
        uses.feed(host, [x, residual])
        uses.replace(y, out)
        moved[id(node)] = host
        position[id(host)] = position[id(node)]
        node.inputs = []
    late = {id(host) for host in moved.values()}
    nodes = []
    for node in graph.nodes:
        if id(node) in moved:
            nodes.append(moved[id(node)])
        elif id(node) not in late:
            nodes.append(node)
    graph.nodes = nodes


def _host(uses: Rewriter, add: Node, tensor: int) -> Node | None:
    """The convolution that computes ``tensor`` for this sum alone, if it can take the sum."""
    host = uses.producer.get(tensor)
    if host is None or host.op not in ("conv", "dwconv") or host.attrs["act"] != "none" or len(host.inputs) > 1:
        return None
    same = all(uses.shape(i) == uses.shape(tensor) for i in (*add.inputs, add.outputs[0]))
    return host if same and uses.only_consumer(tensor) is add else None
