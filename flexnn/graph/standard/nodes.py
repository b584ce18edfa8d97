"""Nodes against their schemas: attributes, and counts of inputs and outputs."""

from __future__ import annotations

import onnx
from onnx import AttributeProto

from .names import node_error
from .schemas import Schema

_A = AttributeProto
_FIELDS = {
    "f": _A.FLOAT, "i": _A.INT, "s": _A.STRING, "t": _A.TENSOR, "g": _A.GRAPH, "sparse_tensor": _A.SPARSE_TENSOR,
    "tp": _A.TYPE_PROTO, "floats": _A.FLOATS, "ints": _A.INTS, "strings": _A.STRINGS, "tensors": _A.TENSORS,
    "graphs": _A.GRAPHS, "sparse_tensors": _A.SPARSE_TENSORS, "type_protos": _A.TYPE_PROTOS,
}  # fmt: skip
"""Fields of AttributeProto that hold a value, and the type that each belongs to."""
_FIELD_OF = {number: name for name, number in _FIELDS.items()}
_WHOLE = (_A.TENSOR, _A.GRAPH, _A.SPARSE_TENSOR, _A.TYPE_PROTO)
"""Types whose field cannot be left out: numbers and lists that are not written are 0 and empty."""


def check_attributes(node: onnx.NodeProto) -> None:
    """Check what holds of the attributes of any operator. Raises GraphError."""
    seen = set()
    for attribute in node.attribute:
        name, kind = attribute.name, attribute.type
        if not name:
            raise node_error(node, "an attribute has no name")
        if name in seen:
            raise node_error(node, f"attribute {name} is stated twice")
        seen.add(name)
        if attribute.ref_attr_name:
            raise node_error(node, f"attribute {name} refers to one of a function, and the node is in none")
        if kind not in _FIELD_OF:
            raise node_error(node, f"attribute {name} does not say its type")
        held = [field.name for field, _ in attribute.ListFields() if field.name in _FIELDS]
        others = [field for field in held if field != _FIELD_OF[kind]]
        if others:
            raise node_error(node, f"attribute {name} is of type {_type(kind)}, but holds a value of {others[0]!r}")
        if kind in _WHOLE and not held:
            raise node_error(node, f"attribute {name} of type {_type(kind)} holds no value")


def check_node(node: onnx.NodeProto, schema: Schema) -> None:
    """Check attributes and counts against the schema. Raises GraphError."""
    for attribute in node.attribute:
        if attribute.name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            raise node_error(node, f"attribute {attribute.name} is not supported: the operator has {known}")
        kind = schema.attributes[attribute.name][0]
        if attribute.type != kind:
            found = f"has the wrong type {_type(attribute.type)}; it must be {_type(kind)}"
            raise node_error(node, f"attribute {attribute.name} {found}")
    stated = {attribute.name for attribute in node.attribute}
    for name, (_, is_required) in schema.attributes.items():
        if is_required and name not in stated:
            raise node_error(node, f"attribute {name} is missing")
    _check_count(node, "input", list(node.input), schema.input_counts)
    _check_count(node, "output", list(node.output), schema.output_counts)
    for i, name in enumerate(node.input):
        if not name and i < len(schema.inputs) and schema.inputs[i].is_required:
            raise node_error(node, f"input {i} is missing")
    for i, name in enumerate(node.output):
        if not name and i < len(schema.outputs) and schema.outputs[i].is_required:
            raise node_error(node, f"output {i} has no name")


def _check_count(node: onnx.NodeProto, what: str, names: list[str], counts: tuple[int, int]) -> None:
    least, most = counts
    if not least <= len(names) <= most:
        wanted = f"{least}" if least == most else f"at least {least}" if len(names) < least else f"at most {most}"
        if len(names) < least:
            raise node_error(node, f"{what} {len(names)} is missing: the operator has {wanted}")
        raise node_error(node, f"has {len(names)} {what}{'' if len(names) == 1 else 's'}; the operator has {wanted}")


def _type(number: int) -> str:
    return str(_A.AttributeType.Name(number)) if number in _A.AttributeType.values() else str(number)
