"""Pads of zeros become pads of the convolution or pool that reads them."""

from __future__ import annotations

from ..attributes import float_attr, ints_attr
from ..ir import Graph, Node
from ..operators import OPERATORS
from .rewrite import Rewriter


def fold_padding(graph: Graph) -> None:
    """Fold ``pad`` nodes over height and width into their only reader."""
    uses = Rewriter(graph)
    for node in graph.nodes:
        record = OPERATORS.get(node.op)
        if record is not None and "pads" in record.attrs:
            pad = uses.producer.get(node.inputs[0])
            if pad is not None and pad.op == "pad" and _fits(uses, pad, node):
                before, after, own = ints_attr(pad, "before"), ints_attr(pad, "after"), ints_attr(node, "pads")
                node.attrs["pads"] = [p + q for p, q in zip(own, (*before[1:3], *after[1:3]), strict=True)]
                uses.feed(node, [pad.inputs[0], *node.inputs[1:]])
    uses.flush()


def _fits(uses: Rewriter, pad: Node, node: Node) -> bool:
    before, after = ints_attr(pad, "before"), ints_attr(pad, "after")
    mode = pad.attrs["mode"]
    edge = mode == "edge" and node.attrs.get("kind") == "max"
    if uses.only_consumer(pad.outputs[0]) is None or len(before) != 4 or (mode != "constant" and not edge):
        return False
    if before[0] or after[0] or before[3] or after[3] or any(ints_attr(pad, "interior")):
        return False
    if any(size < 0 for size in (*before, *after)):
        return False
    value, own = float_attr(pad, "value"), ints_attr(node, "pads")
    if node.op != "pool":
        return value == 0
    if node.attrs["ceil_mode"]:
        return False
    if node.attrs["kind"] == "avg":
        if value != 0 or (any(own) and not node.attrs["count_include_pad"]):
            return False
        node.attrs["count_include_pad"] = 1
        return True
    # A maximum does not see its own padding. Nor does it see repeated edges, for the edge is in the same window, nor
    # zeros where nothing is below zero; if no window holds padding only.
    reach = [(k - 1) * d for k, d in zip(ints_attr(node, "kernel"), ints_attr(node, "dilations"), strict=True)]
    sums = [p + q for p, q in zip(own, (*before[1:3], *after[1:3]), strict=True)]
    if node.attrs["dilations"] != [1, 1] or any(sums[i] > reach[i % 2] for i in range(4)):
        return False
    unseen = edge or (value == 0 and _not_negative(uses, pad.inputs[0]))
    return value == -float("inf") or (unseen and not any(own))


def _not_negative(uses: Rewriter, tensor: int) -> bool:
    node = uses.producer.get(tensor)
    if node is None:
        return False
    if node.op == "unary":
        kind, low = node.attrs["kind"], node.attrs["alpha"]
    elif "act" in node.attrs:
        kind, low = node.attrs["act"], node.attrs["alpha"]
    elif node.op in ("pool", "reshape", "slice", "copy"):
        return _not_negative(uses, node.inputs[0])
    else:
        return False
    return kind in ("relu", "sigmoid", "hardsigmoid") or (kind == "clip" and isinstance(low, float) and low >= 0)
