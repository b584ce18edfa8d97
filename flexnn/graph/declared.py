"""Outputs of graphs as a model declares them and as onnx infers them: what is known of them before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from .ports import Dim, Port
from .stated import RANK_MAX, GraphError, dtype_name

DIM_MAX = 1 << 40
NODES_AT_ONCE = 4096
"""Most nodes that onnx infers in one call, which takes 10 µs for each."""
_HIDDEN = "flexnn.hidden"
"""Domain that nodes have while onnx infers, so that it leaves them out."""
_CRASHING = ("EyeLike", "RegexFullMatch")
"""Operators at which onnx 1.23 reads types that nobody may know, and the process dies; so do some of ai.onnx.ml."""


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
    hidden = [(i, node.domain) for i, node in enumerate(_nodes(model.graph)) if _may_crash(node)]
    try:
        _name_domains(model, dict.fromkeys([i for i, _ in hidden], _HIDDEN))
        model.opset_import.add(domain=_HIDDEN, version=1)
        inferred = _inferred(model, names)
    except Exception:  # what inference refuses may run all the same
        return model, declared
    finally:
        _name_domains(model, dict(hidden))
    _name_domains(inferred, dict(hidden))
    found = [declared_port(info) for info in inferred.graph.output]
    return inferred, [_merged(mine, theirs, names) for mine, theirs in zip(declared, found, strict=True)]


def _inferred(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """Return the model with what onnx infers. It infers some nodes at a time, as Ctrl-C waits meanwhile."""
    from onnx import shape_inference  # models that say all do without

    nodes = list(model.graph.node)
    if len(nodes) <= NODES_AT_ONCE:
        return shape_inference.infer_shapes(model)  # not data_prop: it computes numbers, however many
    inferred, own = _without_graph(model), model.graph
    inferred.graph.input.extend(own.input)
    inferred.graph.initializer.extend(own.initializer)
    known = {info.name: info for info in own.input}
    declared = {info.name: info for info in (*own.value_info, *own.output)}
    constants = {tensor.name: tensor for tensor in own.initializer}
    for first in range(0, len(nodes), NODES_AT_ONCE):
        part = _without_graph(model)
        part.graph.node.extend(nodes[first : first + NODES_AT_ONCE])
        given = dict.fromkeys(name for node in _nodes(part.graph) for name in node.input)
        made = dict.fromkeys(name for node in part.graph.node for name in node.output)
        part.graph.input.extend(known[name] for name in given if name in known and name not in made)
        part.graph.initializer.extend(constants[name] for name in given if name in constants)
        part.graph.value_info.extend(declared[name] for name in made if name in declared)
        done = shape_inference.infer_shapes(part).graph
        for info in done.value_info:
            _forget_names(info, names)
            known[info.name] = info
        constants.update(_constants(done))
        inferred.graph.node.extend(done.node)
    inputs = {info.name for info in own.input}
    inferred.graph.output.extend(info if info.name in inputs else known.get(info.name, info) for info in own.output)
    return inferred


def _without_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    made.graph.name = model.graph.name
    return made


def _forget_names(info: onnx.ValueInfoProto, names: set[str]) -> None:
    """Take the names of dimensions from a value that onnx made up, but for the model's: others may get them, too."""
    for dim in info.type.tensor_type.shape.dim:
        if dim.dim_param not in names:
            dim.ClearField("dim_param")


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the tensors of Constant nodes, which inference looks at in later nodes, by name."""
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and node.output:
                tensor = onnx.TensorProto()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                yield tensor.name, tensor


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of all graphs inside, always in the same order."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _nodes(inner)


def _may_crash(node: onnx.NodeProto) -> bool:
    """Return whether onnx's inference could end the process at a node, as it does at what the standard forbids, too."""
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    if node.domain not in ("", "ai.onnx"):
        return str(node.domain) == "ai.onnx.ml"
    if node.op_type == "Split":
        return bool(numbers.get("num_outputs", len(node.output)) != len(node.output))
    return node.op_type in _CRASHING or bool(node.op_type == "GatherND" and numbers.get("batch_dims", 0) < 0)


def _name_domains(model: onnx.ModelProto, domains: dict[int, str]) -> None:
    """Give nodes, by their numbers, other domains; the model knows that of hidden ones no more."""
    kept = [opset for opset in model.opset_import if opset.domain != _HIDDEN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    for i, node in enumerate(_nodes(model.graph)) if domains else ():
        if i in domains:
            node.domain = domains[i]


def declared_port(info: onnx.ValueInfoProto) -> Port:
    """Return an output of a graph as it is declared; nothing of it is refused."""
    kind = info.type.tensor_type
    dtype: str | None = None
    try:
        dtype = dtype_name(kind.elem_type, "")
    except GraphError:
        if kind.elem_type != onnx.TensorProto.STRING:  # whose numbers have its shape
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
