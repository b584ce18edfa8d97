"""Checking an open ONNX file: its nodes in order, the standard kept, and its outputs, before anything is made of it."""

from __future__ import annotations

from .declared import infer_outputs
from .node_order import sort_nodes
from .onnx_file import Checked, OnnxFile
from .standard import check_standard
from .standard.versions import opset_of
from .stated import GraphError


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
