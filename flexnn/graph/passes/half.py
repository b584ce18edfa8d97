"""Activations of 16 bits, where that was asked for: maps between convolutions and what stands between them.

Values that some operators only move (concat, reshape, a transposition) have one type throughout. A value has 16 bits
where all that makes, moves or reads it knows them. Others stay float32: operators that know 16 bits take and make
either type, so a conversion stands only where a value of a concatenation meets one that does not. Sums are float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attributes import float_attr, int_attr
from ..ir import Graph, Node, Tensor

HALF = {
    "conv": "conv_f16",
    "dwconv": "dwconv_f16",
    "pool": "pool_f16",
    "unary": "unary_f16",
    "binary": "binary_f16",
    "resize": "resize_f16",
    "reduce": "reduce_f16",
}
"""Operators of float32, and those that take 16 bits, too."""
_MOVES = ("reshape", "slice", "concat", "copy", "pad", "gather", "depth_to_space")
_CONVERTED = ".wide"
_MAPS = ("conv", "dwconv", "pool")
_REDUCTIONS = ("sum", "mean", "max", "min")
ELEMENTS_MIN = 1024
"""Fewest elements of the largest of the values that have one type: fewer are not worth their rounding."""


def halve(graph: Graph) -> None:
    """Give activations 16 bits."""
    groups = _groups_of(graph)
    conversions = _convert_joined(graph, groups)
    groups = _groups_of(graph)
    wide = _settled(graph, groups)
    for node in graph.nodes:
        wide |= {groups.of(i) for i in _unknown(node)}
    taken = _large(graph, groups, _near_maps(graph, groups, wide))
    half = [groups.of(i) in taken for i in range(len(graph.tensors))]
    for i, tensor in enumerate(graph.tensors):
        tensor.dtype = "f16" if half[i] else tensor.dtype
    for node in graph.nodes:
        if any(half[i] for i in (*node.inputs, *node.outputs)):
            _know(node, graph.tensors[node.outputs[0]].dtype)
    _drop(graph, [node for node in conversions if node.op not in HALF.values()])


def _large(graph: Graph, groups: _Groups, near: set[int]) -> set[int]:
    """Return those groups of ``near`` that have a large value. Where shapes are open that is a condition, so that the
    same values have 16 bits as where they are known: of the largest value alone, where that is large.
    """
    sizes: dict[int, list[Any]] = {group: [] for group in near}
    for i, tensor in enumerate(graph.tensors):
        if (group := groups.of(i)) in near:
            sizes[group].append(tensor.size)
    for found in sizes.values():
        found.sort(key=lambda size: getattr(size, "value", size), reverse=True)
    return {group for group, found in sizes.items() if any(size >= ELEMENTS_MIN for size in found)}


def _know(node: Node, dtype: str) -> None:
    """Have a node that touches 16 bits know them."""
    if node.op in HALF:
        node.op, node.attrs = HALF[node.op], {**node.attrs, "to": dtype}
    elif node.op == "pad" and not int_attr(node, "value_int"):
        value = int(np.array(float_attr(node, "value"), np.float16).view(np.uint16))
        node.attrs = {**node.attrs, "value": 0.0, "value_int": value}


def _groups_of(graph: Graph) -> _Groups:
    groups = _Groups(len(graph.tensors))
    for node in graph.nodes:
        if node.op in _MOVES:
            for tensor in _moved(node):
                groups.join(tensor, node.outputs[0])
    return groups


def _settled(graph: Graph, groups: _Groups) -> set[int]:
    """Groups that cannot have 16 bits, whatever computes with them."""
    wide = {groups.of(i) for i in (*graph.inputs, *graph.outputs)}
    return wide | {groups.of(i) for i, t in enumerate(graph.tensors) if t.weight >= 0 or t.dtype != "f32"}


def _convert_joined(graph: Graph, groups: _Groups) -> list[Node]:
    """Convert between values of a concatenation and operators that know float32 only, so that one such does not keep
    all of them from having 16 bits. Return the conversions.
    """
    joined = {groups.of(node.outputs[0]) for node in graph.nodes if node.op == "concat"} - _settled(graph, groups)
    nodes: list[Node] = []
    conversions: list[Node] = []

    def conversion(node: Node, x: int, y: int) -> Node:
        made = Node(node.name + _CONVERTED, "unary", [x], [y], {"kind": "none", "alpha": 0.0, "beta": 0.0})
        conversions.append(made)
        return made

    def copied(i: int) -> int:
        graph.tensors.append(Tensor(graph.tensors[i].name, graph.tensors[i].shape))
        return len(graph.tensors) - 1

    for node in graph.nodes:
        lacking = {i for i in _unknown(node) if groups.of(i) in joined}
        made = {i: copied(i) for i in lacking}
        nodes += [conversion(node, i, made[i]) for i in lacking if i in node.inputs]
        after = [conversion(node, made[i], i) for i in lacking if i in node.outputs]
        node.inputs = [made.get(i, i) for i in node.inputs]
        node.outputs = [made.get(i, i) for i in node.outputs]
        nodes += [node, *after]
    graph.nodes = nodes
    return conversions


def _drop(graph: Graph, conversions: list[Node]) -> None:
    """Remove conversions between values that are both float32."""
    source = {node.outputs[0]: node.inputs[0] for node in conversions}
    graph.nodes = [node for node in graph.nodes if not node.outputs or node.outputs[0] not in source]

    def origin(tensor: int) -> int:
        while tensor in source:  # of a conversion of a conversion
            tensor = source[tensor]
        return tensor

    for node in graph.nodes:
        node.inputs = [origin(tensor) for tensor in node.inputs]


def _near_maps(graph: Graph, groups: _Groups, wide: set[int]) -> set[int]:
    """The groups that maps are of, and those that are computed of them or make them, as far as 16 bits are known."""
    touched = [
        {groups.of(i) for i in (*node.inputs, *node.outputs)} - wide
        for node in graph.nodes
        if node.op in HALF or node.op in _MOVES
    ]
    near: set[int] = set()
    for node in graph.nodes:
        if node.op in _MAPS:
            near |= {groups.of(i) for i in (*node.inputs, *node.outputs)} - wide
    meeting: dict[int, list[set[int]]] = {}
    for met in touched:
        for group in met:
            meeting.setdefault(group, []).append(met)
    left = list(near)
    while left:
        for met in meeting.pop(left.pop(), ()):
            left += met - near
            near |= met
    return near


def _moved(node: Node) -> list[int]:
    """Inputs whose numbers the output of a moving node has."""
    return node.inputs if node.op == "concat" else node.inputs[:1]


def _unknown(node: Node) -> list[int]:
    """Values that a node makes or reads in float32 only."""
    everything = [*node.inputs, *node.outputs]
    if node.op in _MOVES:
        return [i for i in node.inputs if i not in _moved(node)]
    if node.op == "reduce":
        return node.outputs if node.attrs["kind"] in _REDUCTIONS else everything
    return [] if node.op in HALF and node.attrs.get("sums", "f32") == "f32" else everything


class _Groups:
    """Values that have one type."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def of(self, i: int) -> int:
        """The one that stands for the values that have the type of value ``i``."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def join(self, a: int, b: int) -> None:
        """Say that two values have one type."""
        self._parent[self.of(a)] = self.of(b)
