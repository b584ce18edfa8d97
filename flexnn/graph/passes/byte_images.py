"""Products of bytes over the map that their tokens are: onnxruntime's preparation for its quantiser makes rows of the
pixels before each product, and a map again behind it. With the map between them, bands of rows go through all of it.
"""

from __future__ import annotations

from ..attributes import ints_attr
from ..ir import Node, Shape
from .byte_values import Bytes

IMAGE_AXES = 4
"""Axes of a map: images, rows, pixels, channels."""


def read_images(uses: Bytes) -> None:
    """Have steps, bytes and products of 1×1 read the map of which they see tokens, and make tokens of theirs."""
    for node in uses.graph.nodes:
        if not _is_by_pixels(uses, node):
            continue
        tensor = node.inputs[0]
        image = _image(uses, tensor)
        if image is None:
            continue
        if node.op == "byte_steps":
            uses.feed(node, [image])
            continue
        inputs, out = [image, *node.inputs[1:]], node.outputs[0]
        shape: Shape = uses.shape(out)
        made = uses.emit(node, node.op, inputs, node.attrs, node.weight)
        node.op, node.attrs, node.weight = "reshape", {"shape": list(shape)}, -1
        uses.feed(node, [made])


def _is_by_pixels(uses: Bytes, node: Node) -> bool:
    """Whether a node computes each pixel alone, or something of all numbers, by steps that a run has measured."""
    if node.op == "byte_steps":
        return node.attrs["part"] == "all"
    if node.op not in ("quantize", "conv_u8") or len(node.inputs) != 2 or uses.graph.tensors[node.inputs[1]].size != 2:
        return False
    if uses.graph.tensors[node.inputs[1]].dtype != "f32":
        return False
    if node.op == "quantize":
        return node.attrs["to"] == "u8"
    plain = ints_attr(node, "kernel") == [1, 1] and ints_attr(node, "strides") == [1, 1]
    return plain and not any(ints_attr(node, "pads"))


def _image(uses: Bytes, tensor: int) -> int | None:
    """Return the map that reshapes make tokens of; None where there is none."""
    channels, node = uses.shape(tensor)[-1:], uses.producer.get(tensor)
    while node is not None and node.op == "reshape":
        tensor = node.inputs[0]
        shape = uses.shape(tensor)
        if len(shape) == IMAGE_AXES and shape[3:] == channels and min(shape[1:3]) > 1:
            return tensor
        node = uses.producer.get(tensor)
    return None
