"""Large concatenations that become bytes by steps that a run computes: the range of each part is found by itself, and
each part becomes bytes by itself, so that the floats are never together.
"""

from __future__ import annotations

from ..attributes import int_attr
from ..ir import Graph, Node
from ..sizes import preferring
from .byte_operators import become
from .byte_values import Bytes, is_rounding

LARGE = 1 << 20
"""Numbers of a concatenation from which on its bytes matter more than the nodes that this adds."""
PARTS_MAX = 8
"""Most parts of a concatenation, each of which adds two nodes."""


def measure_parts(graph: Graph) -> None:
    """Find the ranges of the parts of large concatenations, and make bytes of the parts, where nothing else reads them
    together.
    """
    measuring = [node for node in graph.nodes if node.op == "byte_steps" and node.attrs["part"] == "all"]
    if not measuring:
        return
    uses = Bytes(graph)
    for node in measuring:
        _measure(uses, node)
    uses.flush()


def _measure(uses: Bytes, node: Node) -> None:
    whole, steps = node.inputs[0], node.outputs[0]
    joined, readers = uses.producer.get(whole), [other for other in uses.consumers[whole] if other is not node]
    if (
        joined is None
        or joined.op != "concat"
        or not 2 <= len(joined.inputs) <= PARTS_MAX
        or len(uses.shape(whole)) < 3
    ):
        return
    if whole in uses.graph.outputs or any(
        not is_rounding(uses.graph, other) or other.inputs != [whole, steps] for other in readers
    ):
        return
    size = uses.graph.tensors[whole].size
    with preferring((size,)):
        if size < LARGE:
            return
    parts, axis = list(joined.inputs), int_attr(joined, "axis")
    for other in readers:
        made = [uses.emit(other, "quantize", [part, steps], dict(other.attrs)) for part in parts]
        become(uses, other, "concat", made, {"axis": axis})
    ranges = [uses.emit(node, "byte_steps", [part], {"part": "rows"}) for part in parts]
    every = uses.emit(node, "concat", ranges, {"axis": min(axis, 1)})
    become(uses, node, "byte_steps", [every], {"part": "ranges"})
