"""Rotary embedding as exporters write it, x cos + turned(x) sin, where turned puts the negated second half of the last
axis before the first one (Su et al. 2021, "RoFormer", eq. 34, by halves), becomes one node.

Runs before layout, on heads as [batch, heads, tokens, dim].
"""

from __future__ import annotations

from ..attributes import int_attr, ints_attr
from ..ir import Graph, Node
from ..strided import broadcast
from .rewrite import Rewriter, operands


def fuse_rotary(graph: Graph) -> None:
    """Replace the pattern where nothing else reads its parts."""
    uses = Rewriter(graph)
    for node in list(graph.nodes):
        found = _rotary(uses, node) if node.outputs[0] in uses.producer else None
        if found is not None:
            attrs = {"turned": uses.shape(found[0])[3], "is_interleaved": 0}
            uses.replace(node.outputs[0], uses.emit(node, "rotary", list(found), {**attrs}))
            uses.remove(node)
    uses.flush()


def _plain(node: Node | None, kind: str) -> bool:
    return node is not None and node.op == "binary" and node.attrs["kind"] == kind and node.attrs["act"] == "none"


def _rotary(uses: Rewriter, node: Node) -> tuple[int, int, int] | None:
    """(x, cosines, sines) where ``node`` is the sum."""
    shape = uses.shape(node.outputs[0])
    if not _plain(node, "add") or len(shape) != 4 or len(set(node.inputs)) != 2:
        return None
    for first, second in operands(node):
        left, right = uses.producer.get(first), uses.producer.get(second)
        if left is None or right is None or not _plain(left, "mul") or not _plain(right, "mul"):
            continue
        if uses.only_consumer(first) is not node or uses.only_consumer(second) is not node:
            continue
        for turned, sines in operands(right):
            x = _turned(uses, turned)
            if x is None or x not in left.inputs or uses.only_consumer(turned) is not right:
                continue
            cosines = left.inputs[1 - left.inputs.index(x)]
            if uses.shape(x) == shape and _angles(uses, cosines, sines, shape):
                return x, cosines, sines
    return None


def _angles(uses: Rewriter, cosines: int, sines: int, shape: tuple[int, ...]) -> bool:
    angles = uses.shape(cosines)
    whole = angles == uses.shape(sines) and len(angles) == 4 and angles[3] == shape[3]
    return whole and broadcast(angles, shape) == shape


def _turned(uses: Rewriter, tensor: int) -> int | None:
    """X, where ``tensor`` is (-x[..., half:], x[..., :half])."""
    joined = uses.producer.get(tensor)
    shape = uses.shape(tensor)
    if joined is None or joined.op != "concat" or len(joined.inputs) != 2 or int_attr(joined, "axis") != len(shape) - 1:
        return None
    negated, front = (uses.producer.get(i) for i in joined.inputs)
    if negated is None or negated.op != "unary" or negated.attrs["kind"] != "neg":
        return None
    back, half = uses.producer.get(negated.inputs[0]), shape[-1] // 2
    halves = [(back, half), (front, 0)]
    if shape[-1] % 2 or not all(part is not None and _is_half(part, start, half, shape) for part, start in halves):
        return None
    assert back is not None
    assert front is not None
    return back.inputs[0] if back.inputs[0] == front.inputs[0] else None


def _is_half(part: Node, start: int, half: int, shape: tuple[int, ...]) -> bool:
    if part.op != "slice":
        return False
    starts, sizes, steps = (ints_attr(part, name) for name in ("starts", "sizes", "steps"))
    return starts == [0] * (len(shape) - 1) + [start] and sizes == [*shape[:-1], half] and set(steps) == {1}
