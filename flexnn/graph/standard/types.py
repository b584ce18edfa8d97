"""Types of values: those that schemas allow, and what each node makes of the types that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto

from .names import node_error, tensor_text, type_text
from .schemas import Formal, Schema

Type = str | None
"""A type as schemas write it; None where it is not known."""

_STATED = {
    "Bernoulli": ("dtype", None),
    "BlackmanWindow": ("output_datatype", TensorProto.FLOAT),
    "Cast": ("to", None),
    "EyeLike": ("dtype", None),
    "HammingWindow": ("output_datatype", TensorProto.FLOAT),
    "HannWindow": ("output_datatype", TensorProto.FLOAT),
    "MelWeightMatrix": ("output_datatype", TensorProto.FLOAT),
    "Multinomial": ("dtype", TensorProto.INT32),
    "RandomNormal": ("dtype", TensorProto.FLOAT),
    "RandomNormalLike": ("dtype", None),
    "RandomUniform": ("dtype", TensorProto.FLOAT),
    "RandomUniformLike": ("dtype", None),
    "SequenceEmpty": ("dtype", TensorProto.FLOAT),
}
"""Operators whose attribute states the type of their output, and the type where it is left out; None: the input's, or
there is no such case.
"""
_VALUES = {
    "value_float": "float", "value_floats": "float", "value_int": "int64", "value_ints": "int64",
    "value_string": "string", "value_strings": "string",
}  # fmt: skip


def check_types(node: onnx.NodeProto, schema: Schema, types: Mapping[str, Type]) -> list[Type]:
    """Check the types of a node's inputs; return those of its outputs. Raises GraphError."""
    bound: dict[str, tuple[str, str]] = {}
    """Types by their variable, each with the name of the input that has it."""
    for i, name in enumerate(node.input):
        formal = _formal(schema.inputs, i)
        found = types.get(name) if name else None
        if found is None or formal is None:
            continue
        if found not in formal.types:
            raise node_error(node, f"input {i} {name!r} is {found}; the operator takes {_listed(formal.types)}")
        if not formal.variable:
            continue
        before, first = bound.setdefault(formal.variable, (found, name))
        if before != found:
            raise node_error(node, f"input {i} {name!r} is {found}, but {first!r} is {before}: they must be the same")
    stated = _stated(node, types)
    results = []
    for i, name in enumerate(node.output):
        formal = _formal(schema.outputs, i)
        made = (stated if i == 0 else None) or _made(formal, bound)
        if made and formal and i == 0 and stated and made not in formal.types:
            raise node_error(node, f"makes {made}, of which the operator is not capable: {_listed(formal.types)}")
        results.append(made if name else None)
    return results


def _formal(formals: Sequence[Formal], index: int) -> Formal | None:
    return formals[min(index, len(formals) - 1)] if formals else None


def _made(formal: Formal | None, bound: Mapping[str, tuple[str, str]]) -> Type:
    if formal is None:
        return None
    if formal.variable in bound:
        return bound[formal.variable][0]
    return next(iter(formal.types)) if len(formal.types) == 1 else None


def _stated(node: onnx.NodeProto, types: Mapping[str, Type]) -> Type:
    """Return the type of the first output where an attribute, or the like of an input, decides it.

    Raises GraphError for an attribute that names no type.
    """
    attributes = {attribute.name: attribute for attribute in node.attribute}
    op = node.op_type
    if op in _STATED:
        name, default = _STATED[op]
        if name in attributes:
            found = tensor_text(attributes[name].i)
            if found is None:
                raise node_error(node, f"attribute {name} is {attributes[name].i}, which is no type")
        else:
            found = tensor_text(default) if default else types.get(node.input[0]) if node.input else None
        return f"seq({found})" if found and op == "SequenceEmpty" else found
    if op == "ConstantOfShape":
        return tensor_text(attributes["value"].t.data_type if "value" in attributes else TensorProto.FLOAT)
    if op == "CastLike" and len(node.input) > 1:
        return types.get(node.input[1])
    if op == "QuantizeLinear" and (len(node.input) < 3 or not node.input[2]):
        number = attributes["output_dtype"].i if "output_dtype" in attributes else 0
        return tensor_text(number or TensorProto.UINT8)
    if op == "DequantizeLinear" and "output_dtype" in attributes and attributes["output_dtype"].i:
        return tensor_text(attributes["output_dtype"].i)
    return _constant(attributes) if op == "Constant" else None


def _constant(attributes: Mapping[str, onnx.AttributeProto]) -> Type:
    if "value" in attributes:
        return tensor_text(attributes["value"].t.data_type)
    return next((f"tensor({kind})" for name, kind in _VALUES.items() if name in attributes), None)


def declared(infos: Sequence[onnx.ValueInfoProto]) -> dict[str, Type]:
    """Return the types that a graph declares, by the name of the value."""
    return {info.name: type_text(info.type) for info in infos}


def _listed(types: frozenset[str]) -> str:
    return ", ".join(sorted(types)) if len(types) < 5 else f"{', '.join(sorted(types)[:4])} and others"
