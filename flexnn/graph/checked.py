"""Checking an open ONNX file: its nodes in order, the standard kept, and its outputs, before anything is made of it."""

from __future__ import annotations

from typing import NamedTuple

from .declared import infer_outputs
from .ir import GraphError
from .node_order import sort_nodes
from .onnx_file import OnnxFile
from .ports import Port
from .standard import check_standard
from .standard.versions import opset_of


class Checked(NamedTuple):
    """Facts of a model that was checked."""

    opset: int
    """Version of the default domain."""
    outputs: list[Port]


def check_onnx(file: OnnxFile) -> Checked:
    """Refuse a model that breaks the standard; sort its nodes, and infer what it leaves open. Raises GraphError, one
    line.
    """
    try:
        opset = opset_of(file.model)
        sort_nodes(file.model.graph)
        check_standard(file.model)
    except GraphError as error:
        raise GraphError(f"{file.path}: {error}") from None
    file.model, outputs = infer_outputs(file.model)
    return Checked(opset, outputs)
