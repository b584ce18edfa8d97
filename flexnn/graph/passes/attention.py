"""Attention as exporters write it, softmax(scale q k' + mask) v, becomes one node whose scores never exist whole.

Runs before layout: the node's transposes then meet those of the model. What it reads may be scaled in q, in k, or after
their product; keys and values that are repeated for several heads (grouped queries) are read where they are.
"""

from __future__ import annotations

from ..attributes import int_attr, ints_attr
from ..build import copy_attrs
from ..ir import Graph, Node
from .rewrite import Rewriter, operands

_SWAP = [0, 1, 3, 2]


def fuse_attention(graph: Graph) -> None:
    """Replaces the pattern where nothing else reads its scores."""
    uses = Rewriter(graph)
    for node in list(graph.nodes):
        if node.op == "matmul" and node.outputs[0] in uses.producer:
            _fuse(uses, node)
    uses.flush()


def _scaled(uses: Rewriter, tensor: int) -> tuple[int, float]:
    """(x, factor) where ``tensor`` is x times a constant factor."""
    node = uses.producer.get(tensor)
    if node is None or node.op != "binary" or node.attrs["act"] != "none" or node.attrs["kind"] not in ("mul", "div"):
        return tensor, 1.0
    for x, other in operands(node):
        value = uses.scalar(other)
        if value is None or uses.shape(x) != uses.shape(tensor):
            continue
        if node.attrs["kind"] == "mul":
            return x, value
        if value and x == node.inputs[0]:
            return x, 1 / value
    return tensor, 1.0


def _only(uses: Rewriter, tensor: int, reader: Node) -> bool:
    return uses.only_consumer(tensor) is reader


def _masked(uses: Rewriter, tensor: int) -> tuple[int, int | None]:
    """(scores, mask) where ``tensor`` is their sum and the mask broadcasts; the mask is None where there is none."""
    node = uses.producer.get(tensor)
    if node is None or node.op != "binary" or node.attrs["kind"] != "add" or node.attrs["act"] != "none":
        return tensor, None
    for scores, mask in operands(node):
        maker = uses.producer.get(_scaled(uses, scores)[0])
        alone = uses.shape(scores) == uses.shape(tensor) and _only(uses, scores, node)
        if alone and maker is not None and maker.op == "matmul":
            return scores, mask
    return tensor, None


def _fuse(uses: Rewriter, last: Node) -> None:
    """``last``: the product with the values."""
    softmax = uses.producer.get(last.inputs[0])
    shape = uses.shape(last.inputs[0])
    if softmax is None or softmax.op != "softmax" or softmax.attrs["log"] or last.attrs["act"] != "none":
        return
    if int_attr(softmax, "axis") != len(shape) - 1 or not _only(uses, last.inputs[0], last) or len(shape) > 4:
        return
    masked = softmax.inputs[0]
    scores, mask = _masked(uses, masked)
    product, scale = _scaled(uses, scores)
    first = uses.producer.get(product)
    if first is None or first.op != "matmul" or first.attrs["act"] != "none" or not _only(uses, masked, softmax):
        return
    if product != scores and not _only(uses, product, uses.producer[scores]):
        return
    (q, factor_q), (k, factor_k) = (_scaled(uses, i) for i in first.inputs)
    v = last.inputs[1]
    if any(uses.shape(i)[:-2] != shape[:-2] for i in (q, k, v)):
        return
    repeated = _repeated(uses, k, v)
    if repeated is None:
        q, k, v = (_four(uses, last, i) for i in (q, k, v))
        k = uses.emit(last, "copy", [k], copy_attrs(4, perm=_SWAP))
    else:
        k, v = (uses.emit(last, "reshape", [i], {"shape": list(s)}) for i, s in repeated)
    inputs = [q, k, v] if mask is None else [q, k, v, mask]
    attrs = {"scale": scale * factor_q * factor_k, "is_causal": 0, "past": 0}
    y = uses.emit(last, "attention", inputs, {**attrs})
    y = uses.emit(last, "copy", [y], copy_attrs(4, perm=[0, 2, 1, 3]))
    if len(shape) < 4:
        y = uses.emit(last, "reshape", [y], {"shape": list(uses.shape(last.outputs[0]))})
    uses.replace(last.outputs[0], y)
    uses.remove(last)


def _four(uses: Rewriter, before: Node, tensor: int) -> int:
    """``tensor`` with four dimensions."""
    shape = uses.shape(tensor)
    if len(shape) == 4:
        return tensor
    return uses.emit(before, "reshape", [tensor], {"shape": [1] * (4 - len(shape)) + list(shape)})


Grouped = tuple[int, tuple[int, ...]]


def _repeated(uses: Rewriter, k: int, v: int) -> tuple[Grouped, Grouped] | None:
    """Keys and values before each was repeated for the heads that share it, with the shapes to give them."""
    swap = uses.producer.get(k)
    if swap is None or swap.op != "copy" or ints_attr(swap, "perm") != _SWAP or any(ints_attr(swap, "expand")):
        return None
    keys, values = (_before_repeat(uses, i) for i in (swap.inputs[0], v))
    return (keys, values) if keys is not None and values is not None and keys[1][:3] == values[1][:3] else None


def _before_repeat(uses: Rewriter, tensor: int) -> Grouped | None:
    """[b,g,n,d] where ``tensor`` is that as [b,g,1,n,d], repeated along the new axis, as [b,heads,n,d]."""
    reshape = uses.producer.get(tensor)
    copy = uses.producer.get(reshape.inputs[0]) if reshape is not None and reshape.op == "reshape" else None
    if copy is None or copy.op != "copy" or ints_attr(copy, "perm") != [0, 1, 2, 3, 4]:
        return None
    b, g, one, n, d = uses.shape(copy.inputs[0])
    repeat = uses.shape(copy.outputs[0])[2]
    fits = (
        one == 1 and uses.shape(copy.outputs[0]) == (b, g, repeat, n, d) and uses.shape(tensor) == (b, g * repeat, n, d)
    )
    return (copy.inputs[0], (b, g, n, d)) if fits else None
