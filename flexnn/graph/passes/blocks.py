"""Products, sums and activations behind blocks of pixels compute on the channels that these are made of.

So they become part of the convolutions that compute a transposed one, as they do behind any other.
"""

from __future__ import annotations

import numpy as np

from ..build import add_array
from ..ir import Graph, Node
from .affine import channel_values
from .rewrite import Rewriter

_KINDS = ("add", "sub", "mul", "div")


def compute_before_blocks(graph: Graph) -> None:
    """Have unary nodes, and binary ones with constants for each channel, compute before a ``depth_to_space`` whose only
    readers they are, and before the concatenation of its channels.
    """
    uses = Rewriter(graph)
    for node in [node for node in graph.nodes if node.op == "depth_to_space"]:
        while _rise(uses, node):
            pass
    uses.flush()


def _rise(uses: Rewriter, blocks: Node) -> bool:
    """Move the node behind before the blocks."""
    y = blocks.outputs[0]
    node = uses.only_consumer(y)
    if node is None or uses.shape(node.outputs[0]) != uses.shape(y):
        return False
    values: np.ndarray | None = None
    is_real = uses.graph.tensors[y].dtype == "f32"
    if node.op == "binary" and is_real and node.attrs["kind"] in _KINDS and node.inputs.count(y) == 1:
        values = channel_values(uses.graph, node.inputs[1 - node.inputs.index(y)], uses.shape(y)[-1])
    if node.op != "unary" and values is None:
        return False
    x = blocks.inputs[0]
    joined = uses.producer.get(x)
    if joined is None or joined.op != "concat" or uses.only_consumer(x) is not blocks:
        joined = None
    made, first = [], 0
    for part in joined.inputs if joined else [x]:
        made.append(_emit(uses, blocks, node, part, values, first))
        first += uses.shape(part)[-1]
    before = uses.emit(blocks, "concat", made, joined.attrs) if joined else made[0]
    uses.feed(blocks, [before])
    uses.replace(node.outputs[0], y)
    uses.remove(node)
    return True


def _emit(uses: Rewriter, blocks: Node, node: Node, part: int, values: np.ndarray | None, first: int) -> int:
    """Add what ``node`` computes of some of the channels, from ``first`` on: maybe not of whole pixels."""
    if values is None:
        return uses.emit(blocks, "unary", [part], dict(node.attrs))
    constant = np.take(values.astype(np.float32), np.arange(first, first + uses.shape(part)[-1]), mode="wrap")
    other = add_array(uses.graph, f"{node.name}.channels", constant)
    inputs = [part, other] if node.inputs[0] == blocks.outputs[0] else [other, part]
    return uses.emit(blocks, "binary", inputs, dict(node.attrs))
