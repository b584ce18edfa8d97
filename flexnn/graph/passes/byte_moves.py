"""Moves of bytes in place of moves of floats: restoring sinks behind them, rounding rises before them.

``move(restore(q))`` is ``restore(move(q))``, and ``round(move(x))`` is ``move(round(x))``. So what stands between a
restoring and the rounding behind it is what computes, and a pair with nothing in between vanishes.
"""

from __future__ import annotations

import numpy as np

from ..attributes import float_attr, int_attr, ints_attr
from ..build import MAXIMUM, add_array, constant_value
from ..ir import Attr, Graph, Node
from .byte_values import CODES, CONSTANT_MAX, Bytes, Steps, is_restoring, is_rounding, steps_of
from .cleanup import cleanup

_MOVES = {op: op for op in ("reshape", "copy", "slice", "gather", "pad", "concat")}
_MOVES |= {"pool": "pool_u8", "resize": "resize_u8"}
"""Operators that choose among the numbers they are given, the largest and the nearest among them; names on bytes."""
DEPTH_MAX = 64
"""Most moves before a rounding that it rises over."""


def move_bytes(graph: Graph) -> None:
    """Compute with uint8 in place of int8, and move bytes rather than what is restored from them."""
    if not any(node.op == "quantize" for node in graph.nodes):
        return
    _use_uint8(graph)
    _sink(graph)
    cleanup(graph)
    _rise(graph)
    cleanup(graph)


def _use_uint8(graph: Graph) -> None:
    """Make int8 that floats are rounded to or restored from uint8, 128 more. Whoever reads int8 alone gets it, too."""
    if all(tensor.dtype != "i8" for tensor in graph.tensors):
        return
    uses, flip = Bytes(graph), add_array(graph, "flip", CODES ^ 128)
    unflip = add_array(graph, "unflip", (CODES ^ 128).view(np.int8))
    for tensor in [i for i in graph.inputs if graph.tensors[i].dtype == "i8"]:
        if readers := uses.consumers.get(tensor):
            uses.set_twin(tensor, uses.emit(readers[0], "table_u8", [tensor, flip], {}))
    for node in graph.nodes:
        made, twin = node.outputs[0], uses.twin(node.inputs[0])
        if is_rounding(graph, node) and node.attrs["to"] == "i8" and (steps := steps_of(graph, node)) is not None:
            zero = add_array(graph, f"{node.name}.zero", np.array(steps.zero, np.uint8))
            twin = uses.emit(node, "quantize", [*node.inputs[:2], zero], {"to": "u8", "axis": 0})
            uses.set_twin(made, twin)
            node.op, node.attrs = "table_u8", {}
            uses.feed(node, [twin, unflip])
        elif node.op == "table_u8" and graph.tensors[made].dtype == "i8":
            if uses.is_table(node.inputs[1], CODES ^ 128):
                uses.set_twin(made, node.inputs[0])
        elif node.op == "table_u8" and twin is not None and twin != node.inputs[0]:
            if uses.is_table(node.inputs[1], CODES ^ 128):
                uses.replace(made, twin)
        elif node.op in ("reshape", "copy", "slice") and twin is not None and twin != node.inputs[0]:
            uses.set_twin(made, uses.emit(node, node.op, [twin], dict(node.attrs)))
        elif is_restoring(node) and twin is not None and twin != node.inputs[0] and len(node.inputs) < 4:
            middle = constant_value(graph, node.inputs[2]) if len(node.inputs) == 3 else np.zeros((), np.int8)
            if middle is not None:
                shifted = add_array(graph, f"{node.name}.zero", (middle.view(np.uint8) ^ 128).reshape(middle.shape))
                uses.feed(node, [twin, node.inputs[1], shifted])
    uses.flush()
    cleanup(graph)


def _sink(graph: Graph) -> None:
    """Move bytes where what they are restored to was moved."""
    uses = Bytes(graph)
    for node in graph.nodes:
        if node.op not in _MOVES or graph.tensors[node.outputs[0]].dtype != "f32":
            continue
        data = node.inputs if node.op == "concat" else node.inputs[:1]
        sources = [source for i in data if (source := uses.restored_by_one(i)) is not None]
        attrs = _moved_attrs(node, [uses.restored(i) for i in data])
        if len(sources) != len(data) or attrs is None:
            continue
        inputs = sources + node.inputs[len(data) :]
        moved = uses.emit(node, _MOVES[node.op], inputs, attrs)
        restoring = uses.producer[node.inputs[0]]
        node.op, node.attrs = "quantize", {"to": "f32", "axis": 0}
        uses.feed(node, [moved, *restoring.inputs[1:]])
    uses.flush()


def _moved_attrs(node: Node, found: list[tuple[int, Steps] | None]) -> dict[str, Attr] | None:
    """Attributes of a move of bytes, ``found`` with their steps where these are constants; None where bytes do not do,
    or would be restored more often than now.
    """
    steps = [None if each is None else each[1] for each in found]
    if node.op == "copy" and any(ints_attr(node, "expand")):
        return None
    if node.op == "pool":
        return node.attrs | MAXIMUM if node.attrs["kind"] == "max" else None
    if node.op == "resize" and node.attrs["mode"] != "nearest":
        return None
    if node.op == "concat" and (steps[0] is None or any(s != steps[0] for s in steps)):
        return None
    if node.op != "pad" or node.attrs["mode"] != "constant":
        return dict(node.attrs)
    if int_attr(node, "value_int") or steps[0] is None:
        return None
    value = np.array(float_attr(node, "value"), np.float32)
    code = steps[0].rounded(value)
    if steps[0].restored(code) != value:
        return None
    return node.attrs | {"value": 0.0, "value_int": int(code)}


def _rise(graph: Graph) -> None:
    """Round before moves, and not at all what is restored from bytes in the same steps."""
    uses = Bytes(graph)
    for node in graph.nodes:
        if not is_rounding(graph, node) or node.attrs["to"] != "u8" or (steps := steps_of(graph, node)) is None:
            continue
        found = _rounded(uses, node, node.inputs[0], steps, DEPTH_MAX)
        settled = found in graph.outputs or found not in uses.producer
        if found is not None and not (settled and node.outputs[0] in graph.outputs):
            uses.replace(node.outputs[0], found)
            uses.remove(node)
    uses.flush()


def _rounded(uses: Bytes, node: Node, tensor: int, steps: Steps, depth: int) -> int | None:
    """``tensor`` in the steps of the rounding ``node``; None where nothing but that node makes it."""
    found = uses.restored(tensor)
    if found is not None:
        source, own = found
        return uses.table(node, source, steps.rounded(own.restored(CODES)))
    value = _small_constant(uses, tensor)
    if value is not None:
        return add_array(uses.graph, f"{node.name}.rounded", steps.rounded(value))
    move = uses.producer.get(tensor)
    if move is None or move.op not in ("reshape", "copy", "concat") or uses.only_consumer(tensor) is None or not depth:
        return None
    if move.op == "copy" and any(ints_attr(move, "expand")):
        return None
    parts = [_rounded(uses, node, i, steps, depth - 1) for i in move.inputs]
    if move.op == "concat" and all(p is None for p in parts):
        return None
    parts = [
        uses.emit(node, "quantize", [i, *node.inputs[1:]], dict(node.attrs)) if p is None else p
        for p, i in zip(parts, move.inputs, strict=True)
    ]
    return uses.emit(node, move.op, [p for p in parts if p is not None], dict(move.attrs))


def _small_constant(uses: Bytes, tensor: int) -> np.ndarray | None:
    if uses.graph.tensors[tensor].weight < 0 or uses.graph.tensors[tensor].size > CONSTANT_MAX:
        return None
    return constant_value(uses.graph, tensor)
