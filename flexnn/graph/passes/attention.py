"""Attention as exporters write it, softmax(scale q k' + mask) v, becomes one node whose scores never exist whole.

Runs before layout: the node's transposes then meet those of the model. What it reads may be scaled in q, in k, or after
their product; keys and values that are repeated for several heads (grouped queries) are read where they are. Masks may
be several: added, or chosen by Where; their sum is computed once for all layers that mask alike.
"""

from __future__ import annotations

from ..attributes import int_attr, ints_attr
from ..build import copy_attrs
from ..ir import Attr, Graph, Node
from .masks import Masks, causal_past, masked, product_of
from .rewrite import Rewriter, is_nan, only, scaled

_SWAP = [0, 1, 3, 2]


def fuse_attention(graph: Graph) -> None:
    """Replace the pattern where nothing else reads its scores."""
    uses, masks = Rewriter(graph), Masks()
    for node in list(graph.nodes):
        if node.op == "matmul" and node.outputs[0] in uses.producer:
            _fuse(uses, masks, node)
    uses.flush()


def _shares(uses: Rewriter, last: Node) -> tuple[int, Node] | None:
    """(input of the softmax, softmax) whose result ``last`` multiplies with values, itself or with zeros for the NaN of
    rows that see nothing.
    """
    tensor, reader = last.inputs[0], last
    if not only(uses, tensor, reader):
        return None
    node = uses.producer.get(tensor)
    if node is not None and node.op == "pointwise" and node.attrs["kind"] == "where":
        zero, tensor, condition = node.inputs
        if uses.scalar(zero) != 0 or not is_nan(uses, condition, tensor) or not only(uses, condition, node):
            return None
        if len({id(reader) for reader in uses.consumers[tensor]}) != 2 or tensor in uses.graph.outputs:
            return None
        node = uses.producer.get(tensor)
    if node is None or node.op != "softmax" or node.attrs["log"]:
        return None
    return node.inputs[0], node


def _fuse(uses: Rewriter, masks: Masks, last: Node) -> None:
    """``last``: the product with the values."""
    found, shape = _shares(uses, last), uses.shape(last.inputs[0])
    if found is None or last.attrs["act"] != "none" or len(shape) > 4:
        return
    hidden, softmax = found
    if int_attr(softmax, "axis") != len(shape) - 1:
        return
    scores, over = masked(uses, hidden)
    raw = product_of(uses, scores)
    if raw is None or not only(uses, hidden, softmax):
        return
    first, scale, softcap = raw
    (q, factor_q), (k, factor_k) = (scaled(uses, i) for i in first.inputs)
    v = last.inputs[1]
    if any(uses.shape(i)[:-2] != shape[:-2] for i in (q, k, v)):
        return
    repeated = _repeated(uses, k, v)
    if repeated is None:
        q, k, v = (_four(uses, last, i) for i in (q, k, v))
        k = uses.emit(last, "copy", [k], copy_attrs(4, perm=_SWAP))
    else:
        k, v = (uses.emit(last, "reshape", [i], {"shape": list(s)}) for i, s in repeated)
    past = causal_past(uses, over, *shape[-2:])
    inputs = [q, k, v] if past is not None or not over else [q, k, v, masks.sum(uses, last, over)]
    attrs: dict[str, Attr] = {"scale": scale * factor_q * factor_k, "softcap": softcap}
    attrs |= {"is_causal": int(past is not None), "past": past or 0, "window": 0}
    y = uses.emit(last, "attention", inputs, attrs)
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
