"""Texts of a model as places among names (labels.py): inputs, constants, and what nodes make that only move elements.

Operators that look texts up state all that they know; so these are the names of inputs. Any other text is none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx
from onnx import AttributeProto, TensorProto

from .contrib import Shared
from .ir import GraphError
from .labels import LABEL_MAX, LABELS_MAX, Labels
from .model import ModelNode

_LISTS = ("cats_strings", "classes_strings", "keys_strings", "keys_tensor")
"""Attributes that state the texts which an operator knows."""
_MOVES = {
    "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators that compute nothing with the elements of their first input; of Concat, of any."""


def is_text(info: onnx.ValueInfoProto) -> bool:
    """Return whether a value is declared as a tensor of texts."""
    return bool(info.type.tensor_type.elem_type == TensorProto.STRING)


def words(graph: onnx.GraphProto, name: str) -> Labels:
    """Return what numbers of input ``name`` and others stand for: all texts that operators of the model look up. Raises
    GraphError.
    """
    known = dict.fromkeys(text for node in _nodes(graph) for a in node.attribute for text in _listed(a))
    if not known:
        raise GraphError(f"input {name!r}: data type STRING is not supported where no operator looks texts up")
    return Labels("words", _checked(list(known), "its operators look up"))


def texts_of(tensor: TensorProto) -> list[str]:
    """Return the texts of a tensor. Raises GraphError."""
    if len(tensor.string_data) != prod(tensor.dims) or tensor.data_location == TensorProto.EXTERNAL:
        raise GraphError(f"tensor {tensor.name!r}: {len(tensor.string_data)} texts do not fit {list(tensor.dims)}")
    return _checked([text.decode("utf-8", "replace") for text in tensor.string_data], f"tensor {tensor.name!r} has")


def follow(node: ModelNode, shared: Shared) -> None:
    """Note the texts that a node moves; a Cast of texts to texts becomes an Identity."""
    labels = shared.labels
    found = [labels[name] for name in node.input if name in labels]
    if not found or node.domain:
        return
    if node.op_type == "Cast" and node.attrs.get("to") == TensorProto.STRING and found[0].kind != "mappings":
        node.op_type, node.attrs = "Identity", {}
    data = node.input if node.op_type == "Concat" else node.input[:1]
    is_moved = node.op_type in _MOVES and [labels.get(name) for name in data] == [found[0]] * len(found)
    if is_moved and (found[0].kind != "mappings" or node.op_type == "Identity"):
        labels.update((name, found[0]) for name in node.output if name)
        shared.readers.add(node.output[0])


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _listed(attribute: AttributeProto) -> list[str]:
    if attribute.name not in _LISTS:
        return []
    if attribute.HasField("t"):
        return texts_of(attribute.t) if attribute.t.data_type == TensorProto.STRING else []
    return [text.decode("utf-8", "replace") for text in attribute.strings]


def _checked(texts: list[str], what: str) -> list[str]:
    if len(texts) > LABELS_MAX or any(len(text) > LABEL_MAX for text in texts):
        limits = f"at most {LABELS_MAX} of at most {LABEL_MAX} characters are supported"
        raise GraphError(f"{what} {len(texts)} texts; {limits}")
    return texts
