"""The angle of a complex number as PyTorch's exporters write atan2(y, x): atan(y / x), moved by pi where x < 0, up or
down as y > 0 says.

Where both are 0, y / x is no number, and with it all that a network makes of it; PyTorch's own atan2 is 0 there. The
spectrum of a constant signal has such zeros, which rounding hides in other runtimes. So y stands for y / x where y is
0: that is the same number everywhere else (docs/decisions/0104-angles-of-zero.md).
"""

from __future__ import annotations

import numpy as np

from ..build import add_array
from ..ir import Graph, Node
from .rewrite import Rewriter


def keep_angles_of_zero(graph: Graph) -> None:
    """Put y in place of y / x where y is 0, in that pattern alone."""
    angles = [node for node in graph.nodes if node.op == "pointwise" and node.attrs["kind"] == "atan"]
    if not angles:
        return
    uses = Rewriter(graph)
    for node in angles:
        division = uses.producer.get(node.inputs[0])
        if division is None or division.op != "binary" or division.attrs["kind"] != "div":
            continue
        y, x = division.inputs
        if division.attrs["act"] != "none" or not (_is_compared(uses, y, 1) and _is_compared(uses, x, 0)):
            continue
        zero = add_array(graph, f"{node.name}.zero", np.zeros((), np.float32))
        is_zero = uses.emit(node, "pointwise", [y, zero], {"kind": "equal"})
        uses.feed(node, [uses.emit(node, "pointwise", [y, division.outputs[0], is_zero], {"kind": "where"})])
    uses.flush()


def _is_compared(uses: Rewriter, tensor: int, place: int) -> bool:
    """Whether a node asks for a < b, where ``tensor`` is a (``place`` 0) or b (1) and the other one is 0."""
    return any(_asks(uses, node, tensor, place) for node in uses.consumers.get(tensor, []))


def _asks(uses: Rewriter, node: Node, tensor: int, place: int) -> bool:
    is_less = node.op == "pointwise" and node.attrs["kind"] == "less" and node.inputs[place] == tensor
    return is_less and uses.scalar(node.inputs[1 - place]) == 0
