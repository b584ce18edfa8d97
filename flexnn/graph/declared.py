"""Outputs of graphs as a model declares them and as onnx infers them: what is known of them before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import shape_inference

from .ir import RANK_MAX, GraphError
from .model import dtype_name
from .ports import Dim, Port

DIM_MAX = 1 << 40


def infer_outputs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Port]]:
    """Return the model with what onnx infers, and its outputs. Names of dimensions are the model's own.

    A declared size is believed unless inference finds another: then neither is.
    """
    declared = [declared_port(info) for info in model.graph.output]
    if _is_known(model.graph, declared):
        return model, declared
    names = {d.dim_param for info in _infos(model.graph) for d in info.type.tensor_type.shape.dim} - {""}
    for info in model.graph.output:
        if info.type.WhichOneof("value") == "tensor_type":
            info.type.tensor_type.ClearField("shape")
    try:
        inferred = shape_inference.infer_shapes(model)  # not data_prop: it computes numbers, however many
    except Exception:  # what inference refuses may run all the same
        return model, declared
    found = [declared_port(info) for info in inferred.graph.output]
    return inferred, [_merged(mine, theirs, names) for mine, theirs in zip(declared, found, strict=True)]


def declared_port(info: onnx.ValueInfoProto) -> Port:
    """Return an output of a graph as it is declared; nothing of it is refused."""
    kind = info.type.tensor_type
    dtype: str | None = None
    try:
        dtype = dtype_name(kind.elem_type, "")
    except GraphError:
        return Port(info.name, None, None)
    if not kind.HasField("shape") or len(kind.shape.dim) > RANK_MAX:
        return Port(info.name, dtype, None)
    return Port(info.name, dtype, tuple(_dim(d) for d in kind.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value if 0 <= dim.dim_value <= DIM_MAX else None
    return dim.dim_param or None


def _is_known(graph: onnx.GraphProto, outputs: list[Port]) -> bool:
    """Return whether nothing is left to infer. Converters declare scalars, too, where they know nothing."""
    has_graphs = any(a.HasField("g") for node in graph.node for a in node.attribute)
    known = all(port.dims and all(isinstance(d, int) for d in port.dims) for port in outputs)
    return known and not has_graphs


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.output, *graph.value_info)


def _merged(declared: Port, inferred: Port, names: set[str]) -> Port:
    dtype = declared.dtype or inferred.dtype
    if inferred.dims is None:
        return Port(declared.name, dtype, declared.dims or None)
    own = declared.dims if declared.dims is not None and len(declared.dims) == len(inferred.dims) else None
    dims = [_agreed(a, b, names) for a, b in zip(own or [None] * len(inferred.dims), inferred.dims, strict=True)]
    return Port(declared.name, dtype, tuple(dims))


def _agreed(declared: Dim, inferred: Dim, names: set[str]) -> Dim:
    """Return what is known of a dimension; onnx makes up names, which say nothing."""
    if isinstance(declared, int) and isinstance(inferred, int) and declared != inferred:
        return None
    if isinstance(inferred, int) or declared is None:
        return inferred if isinstance(inferred, int) or inferred in names else None
    return declared
