"""Products of restored bytes and weights of 8 bits multiply the bytes: the scale comes behind the sums."""

from __future__ import annotations

import numpy as np

from ..build import NO_ACT, add_array, add_tensor, constant_value, panels_of
from ..ir import Graph, Node
from ..sources import ArraySource
from .rewrite import Rewriter

_NARROW = "u8", "i8"
_MOVES = "reshape", "copy"


def multiply_bytes(graph: Graph) -> None:
    """Make convolutions over restored bytes read whole numbers (``sums``: u8)."""
    products = [node for node in graph.nodes if node.op == "conv" and _is_product(graph, node)]
    if not products:
        return
    uses = Rewriter(graph)
    whole: dict[int, int] = {}
    behind: dict[int, list[Node]] = {}
    for node in products:
        found = _restored(uses, node.inputs[0])
        if found is None:
            continue
        restore, moves = found
        scale = restore.inputs[1]
        known = constant_value(graph, scale)
        if known is None:
            behind[id(node)] = _scaled(graph, node, scale)
        else:
            panels = panels_of(graph, node)
            before = panels.scale.load() if panels.scale else np.ones(panels.shape[0], np.float32)
            panels.scale = ArraySource((before * known.reshape(-1)[0]).astype(np.float32))
        uses.feed(node, [_whole(uses, restore, moves, whole, node), *node.inputs[1:]])
        node.attrs["sums"] = "u8"
    uses.flush()
    graph.nodes = [each for node in graph.nodes for each in (node, *behind.get(id(node), ()))]


def _is_product(graph: Graph, node: Node) -> bool:
    """Whether ``node`` multiplies by weights of 8 bits, and Winograd's transforms, which bytes rule out, do not fit."""
    is_plain = node.attrs["group"] == 1 and node.attrs["sums"] == "f32" and node.attrs["act"] == "none"
    is_direct = node.attrs["kernel"] == [1, 1] or node.attrs["strides"] != [1, 1]
    return is_plain and is_direct and len(node.inputs) == 1 and panels_of(graph, node).wtype == "s8"


def _restored(uses: Rewriter, tensor: int) -> tuple[Node, list[Node]] | None:
    """The node that restored ``tensor`` from bytes by one scale and zero point, and what moves them behind it."""
    moves: list[Node] = []
    while (maker := uses.producer.get(tensor)) is not None and maker.op in _MOVES:
        moves.append(maker)
        tensor = maker.inputs[0]
    if maker is None or maker.op != "quantize" or maker.attrs["to"] != "f32":
        return None
    values, *steps = maker.inputs
    if uses.graph.tensors[values].dtype not in _NARROW or any(uses.graph.tensors[i].size != 1 for i in steps):
        return None
    return maker, moves[::-1]


def _whole(uses: Rewriter, restore: Node, moves: list[Node], whole: dict[int, int], node: Node) -> int:
    """The bytes less their zero point as floats, moved as ``node`` reads them. ``whole``: what was made of what."""
    if restore.outputs[0] not in whole:
        values, scale, *zero = restore.inputs
        ones = add_array(uses.graph, f"{restore.name}.ones", np.ones(uses.shape(scale), np.float32))
        whole[restore.outputs[0]] = uses.emit(node, "quantize", [values, ones, *zero], dict(restore.attrs))
    value = whole[restore.outputs[0]]
    for move in moves:
        if move.outputs[0] not in whole:
            whole[move.outputs[0]] = uses.emit(node, move.op, [value], dict(move.attrs))
        value = whole[move.outputs[0]]
    return value


def _scaled(graph: Graph, node: Node, scale: int) -> list[Node]:
    """Nodes that multiply what ``node`` computes by a scale that a run knows, and add its bias."""
    (out,) = node.outputs
    panels, shape = panels_of(graph, node), graph.tensors[out].shape
    bias, panels.bias = panels.bias, None
    node.outputs = [add_tensor(graph, f"{node.name}.sums", shape, "f32")]
    scaled = out if bias is None else add_tensor(graph, f"{node.name}.scaled", shape, "f32")
    nodes = [Node(node.name, "binary", [node.outputs[0], scale], [scaled], {"kind": "mul", **NO_ACT})]
    if bias is not None:
        values = add_array(graph, f"{node.name}.bias", np.asarray(bias.load(), np.float32))
        nodes.append(Node(node.name, "binary", [scaled, values], [out], {"kind": "add", **NO_ACT}))
    return nodes
