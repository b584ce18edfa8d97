"""Names of nodes and values in messages, and the types of values as onnx writes them."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from ..stated import GraphError


def where(node: onnx.NodeProto) -> str:
    """Return operator and name of a node, for messages."""
    return f"{node.op_type} node {node.name or ''.join(node.output[:1])!r}"


def node_error(node: onnx.NodeProto, message: str) -> GraphError:
    """The error that says ``message`` of a node."""
    return GraphError(f"{where(node)}: {message}")


def element_text(number: int) -> str | None:
    """Return TensorProto.DataType ``number`` as schemas write it; None where there is none such."""
    if number not in TensorProto.DataType.values() or not number:
        return None
    return str(TensorProto.DataType.Name(number)).lower()


def tensor_text(number: int) -> str | None:
    """Return the type of a tensor of TensorProto.DataType ``number``; None where there is none such."""
    element = element_text(number)
    return element and f"tensor({element})"


def type_text(info: onnx.TypeProto) -> str | None:
    """Return a type as schemas write it, like "seq(tensor(float))"; None where it is not stated whole."""
    kind = info.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        text = tensor_text(getattr(info, kind).elem_type)
        return f"sparse_{text}" if text and kind != "tensor_type" else text
    if kind in ("sequence_type", "optional_type"):
        inner = type_text(getattr(info, kind).elem_type)
        return inner and f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})"
    return None
