"""Products of bytes whose steps a run computes, as dynamic quantisation writes them: one convolution of the bytes, that
is given the step and the zero point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..build import add_array, add_panels, constant_value
from ..ir import Array, Graph, Node
from .affine import channel_values
from .byte_images import read_images
from .byte_operators import become, float_clamp
from .byte_values import Bytes, Steps, is_restoring
from .byte_weights import NAMES, byte_attrs, fits_bytes, float_panels
from .cleanup import cleanup
from .rewrite import operands


class _Behind(NamedTuple):
    """Nodes behind the sums of integers: the last one, and what the sums are multiplied by and get added."""

    last: Node
    step: int
    factors: Array | None
    offset: Array | None
    bias: Array | None
    """int32, in steps of the sums."""


def multiply_dynamically(graph: Graph) -> None:
    """Make convolutions of whole numbers, and of what bytes were restored to by steps of a run, read the bytes."""
    if not any(is_restoring(node) for node in graph.nodes):
        return
    uses = Bytes(graph)
    for node in graph.nodes:
        if node.op in NAMES:
            _multiply(uses, node)
    uses.flush()
    read_images(uses)
    uses.flush()
    fold_sums(uses)
    uses.flush()
    cleanup(graph)


def _multiply(uses: Bytes, conv: Node) -> None:
    source, restoring = uses.restored_by_one(conv.inputs[0]), uses.producer.get(conv.inputs[0])
    if source is None or restoring is None or not fits_bytes(uses.graph, conv):
        return
    zero = restoring.inputs[2] if len(restoring.inputs) > 2 else add_array(uses.graph, conv.name, np.zeros(1, np.uint8))
    if conv.attrs["sums"] == "f32":
        found: _Behind | None = _Behind(conv, restoring.inputs[1], None, None, None)
    else:
        found = _behind(uses, conv) if uses.scalar(restoring.inputs[1]) == 1 else None
    if found is None:
        return
    panels = float_panels(uses.graph, conv, Steps(1.0, 0), found.factors, found.offset, found.bias)
    attrs = byte_attrs(conv, panels, float_clamp(uses, found.last.outputs[0]))
    measured = _measured(uses, found.step, zero)
    inputs = [source, found.step, zero] if measured is None else [source, measured]
    weight = add_panels(uses.graph, conv.name, panels)
    if found.last is conv:
        become(uses, conv, NAMES[conv.op], inputs, attrs, weight)
        return
    made = uses.emit(found.last, NAMES[conv.op], inputs, attrs, weight)
    become(uses, found.last, "reshape", [made], {"shape": list(uses.shape(found.last.outputs[0]))})


def fold_sums(uses: Bytes) -> None:
    """Make sums, and the relu or clip behind them, part of the convolution that makes one operand for them alone: of
    two the later one, so that the other operand is there.
    """
    position = {id(node): i for i, node in enumerate(uses.graph.nodes)}
    for node in uses.graph.nodes:
        if node.op != "binary" or not _is_plain(node, "add"):
            continue
        found = [(conv, *pair) for pair in operands(node) if (conv := _adding(uses, node, pair[0])) is not None]
        if not found:
            continue
        conv, operand, other = max(found, key=lambda entry: position[id(entry[0])])
        out = conv.outputs[0]
        if operand != out:
            other = uses.emit(node, "reshape", [other], {"shape": list(uses.shape(out))})
        clamp = float_clamp(uses, node.outputs[0])
        attrs = conv.attrs | {"sum_lo": clamp["lo"], "sum_hi": clamp["hi"]}
        inputs, weight = [*conv.inputs, other], conv.weight
        position[id(node)] = position[id(conv)]
        if operand == out:
            become(uses, node, conv.op, inputs, attrs, weight)
            continue
        made = uses.emit(node, conv.op, inputs, attrs, weight)
        become(uses, node, "reshape", [made], {"shape": list(uses.shape(node.outputs[0]))})


def _adding(uses: Bytes, add: Node, tensor: int) -> Node | None:
    """The convolution with steps that a run has measured whose sums this one alone reads, perhaps through reshapes."""
    if any(uses.shape(i) != uses.shape(add.outputs[0]) for i in add.inputs) or add.inputs[0] == add.inputs[1]:
        return None
    maker = uses.producer.get(tensor)
    while maker is not None and maker.op == "reshape":
        maker = uses.producer.get(maker.inputs[0])
    if maker is None or maker.op != "conv_u8" or len(maker.inputs) != 2 or maker.attrs["to"] != "f32":
        return None
    found = uses.after_reshapes(maker.outputs[0])
    if found is None or found[1] is not add:
        return None
    return maker if uses.graph.tensors[maker.inputs[1]].dtype == "f32" else None


def _measured(uses: Bytes, step: int, zero: int) -> int | None:
    """Return what a step and a zero point are both taken from; None where they are not."""
    cast = uses.producer.get(zero)
    if cast is None or cast.op != "cast":
        return None
    found = [_taken(uses, tensor) for tensor in (step, cast.inputs[0])]
    measured = found[0][0]
    maker = uses.producer.get(measured)
    is_both = found == [(measured, [0]), (measured, [1])] and maker is not None and maker.op == "byte_steps"
    return measured if is_both else None


def _taken(uses: Bytes, tensor: int) -> tuple[int, object]:
    """Return what a number is a slice of, and where that begins."""
    node = uses.producer.get(tensor)
    while node is not None and node.op == "reshape":
        node = uses.producer.get(node.inputs[0])
    return (node.inputs[0], node.attrs["starts"]) if node is not None and node.op == "slice" else (tensor, None)


def _behind(uses: Bytes, conv: Node) -> _Behind | None:
    """The sum with whole numbers, the conversion to floats, their product with steps, and the sum with a bias."""
    channels, whole = uses.shape(conv.outputs[0])[-1], None
    cast = uses.after_reshapes(conv.outputs[0])
    if cast is not None and cast[1].op == "pointwise" and cast[1].attrs["kind"] == "add":
        whole = _beside(uses, *cast, channels)
        if whole is None:
            return None
        cast = uses.after_reshapes(cast[1].outputs[0])
    if cast is None or cast[1].op != "cast" or cast[1].attrs["to"] != "f32":
        return None
    found = uses.after_reshapes(cast[1].outputs[0])
    if found is None or not _is_plain(found[1], "mul") or uses.shape(found[0])[-1:] != (channels,):
        return None
    tensor, product = found
    other = product.inputs[1] if product.inputs[0] == tensor else product.inputs[0]
    if product.inputs[0] == product.inputs[1] or uses.shape(product.outputs[0]) != uses.shape(tensor):
        return None
    steps = _steps(uses, other, channels)
    if steps is None:
        return None
    found = uses.after_reshapes(product.outputs[0])
    if found is not None and _is_plain(found[1], "add"):
        offset = _beside(uses, *found, channels)
        if offset is not None:
            return _Behind(found[1], *steps, offset, whole)
    return _Behind(product, *steps, None, whole)


def _beside(uses: Bytes, tensor: int, node: Node, channels: int) -> Array | None:
    """The constants, one for each channel, that a node of two operands takes beside ``tensor``; it has its shape."""
    if uses.shape(tensor) != uses.shape(node.outputs[0]) or uses.shape(tensor)[-1:] != (channels,):
        return None
    other = node.inputs[1] if node.inputs[0] == tensor else node.inputs[0]
    return channel_values(uses.graph, other, channels)


def _is_plain(node: Node, kind: str) -> bool:
    return node.op == "binary" and node.attrs["kind"] == kind and node.attrs["act"] == "none"


def _steps(uses: Bytes, tensor: int, channels: int) -> tuple[int, Array | None] | None:
    """A step that a run computes, and factors of the channels, whose product is ``tensor``, the same for all rows."""
    while (maker := uses.producer.get(tensor)) is not None and maker.op == "reshape":
        if any(d != 1 for d in uses.shape(tensor)[:-1]):
            return None
        tensor = maker.inputs[0]
    if any(d != 1 for d in uses.shape(tensor)[:-1]):
        return None
    if (known := constant_value(uses.graph, tensor)) is not None:
        return add_array(uses.graph, "one", np.ones(1, np.float32)), _vector(known, channels)
    if uses.graph.tensors[tensor].size == 1 and (maker is None or not _is_plain(maker, "mul")):
        return tensor, None
    if maker is not None and _is_plain(maker, "mul"):
        for step, other in operands(maker):
            factors = constant_value(uses.graph, other)
            if factors is not None and uses.graph.tensors[step].size == 1 and factors.size in (1, channels):
                return step, _vector(factors, channels)
    return (tensor, None) if uses.graph.tensors[tensor].size == 1 else None


def _vector(values: Array, channels: int) -> Array:
    return np.broadcast_to(values.reshape(-1), (channels,)).astype(np.float32)
