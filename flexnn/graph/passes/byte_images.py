"""Products of bytes over the map that their tokens are: onnxruntime's preparation for its quantiser makes rows of the
pixels before each product, and a map again behind it. With the map between them, bands of rows go through all of it.
"""

from __future__ import annotations

from ..attributes import int_attr, ints_attr
from ..ir import Attr, Node, Shape
from .byte_values import Bytes

IMAGE_AXES = 4
"""Axes of a map: images, rows, pixels, channels."""


def read_images(uses: Bytes) -> None:
    """Have steps, bytes and products of 1×1 read the map of which they see tokens, and make tokens of theirs; so have
    picks of channels, and channels that are appended for wide weights (``contrib/integers.py``).
    """
    for node in uses.graph.nodes:
        if node.op in ("slice", "gather", "concat"):
            _choose_channels(uses, node)
            continue
        if not _is_by_pixels(uses, node):
            continue
        image = _image(uses, node.inputs[0])
        if image is None:
            continue
        if node.op == "byte_steps":
            uses.feed(node, [image])
            continue
        _compute(uses, node, [image, *node.inputs[1:]], node.attrs)


def _compute(uses: Bytes, node: Node, inputs: list[int], attrs: dict[str, Attr]) -> None:
    """Compute a node's tokens as a map of ``inputs``."""
    shape: Shape = uses.shape(node.outputs[0])
    made = uses.emit(node, node.op, inputs, attrs, node.weight)
    node.op, node.attrs, node.weight = "reshape", {"shape": list(shape)}, -1
    uses.feed(node, [made])


def _choose_channels(uses: Bytes, node: Node) -> None:
    """Choose or join the channels of maps where a node does those of their tokens, which are bytes."""
    shape = uses.shape(node.outputs[0])
    read = node.inputs if node.op == "concat" else node.inputs[:1]
    images = [_image(uses, tensor) for tensor in read]
    found = [image for image in images if image is not None]
    if uses.graph.tensors[node.outputs[0]].dtype != "u8" or not found or len(found) < len(images):
        return
    whole = uses.shape(found[0])
    if any(uses.shape(image)[:-1] != whole[:-1] for image in found):
        return
    if node.op == "slice":
        starts, sizes, steps = (ints_attr(node, name) for name in ("starts", "sizes", "steps"))
        if tuple(sizes[:-1]) != uses.shape(read[0])[:-1]:
            return
        ones = [1] * (IMAGE_AXES - 1)
        attrs: dict[str, Attr] = {"starts": [*(0 for _ in ones), starts[-1]], "sizes": [*whole[:-1], sizes[-1]]}
        _compute(uses, node, found, attrs | {"steps": [*ones, steps[-1]]})
    elif int_attr(node, "axis") == len(shape) - 1:
        _compute(uses, node, [*found, *node.inputs[len(read) :]], {"axis": IMAGE_AXES - 1})


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
