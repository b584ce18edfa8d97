"""ONNX to the internal graph: shapes bound, constants folded, every operator lowered, in one walk.

Nothing that a file declares about shapes is believed, except of its inputs: each tensor's shape is what its operator
makes of the shapes before it. After this stage a graph has NCHW tensors with transposes around its channels-last
operators, and view operators (graph/build.py); the passes take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx

from .build import add_tensor
from .fold import constant_node, fold, lazily
from .ir import DTYPES, Graph, GraphError
from .lower import LOWERINGS, Const, Context, Value, array_const
from .onnx_file import OnnxFile, dtype_name

OPSET_MIN, OPSET_MAX = 6, 25
RANK_MAX = 8


def import_onnx(file: OnnxFile, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """The graph of an open model, its inputs bound to ``shapes`` where given. Raises GraphError, one line."""
    return _Importer(file, shapes).run()


class _Importer:
    def __init__(self, file: OnnxFile, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.file = file
        self.shapes = shapes
        self.graph = Graph()
        self.values: dict[str, Value] = {}
        self.opsets = list(file.model.opset_import)
        self.opset = max((o.version for o in self.opsets if o.domain in ("", "ai.onnx")), default=1)
        if not OPSET_MIN <= self.opset <= OPSET_MAX:
            raise GraphError(f"{file.path}: opset {self.opset}; opsets {OPSET_MIN} to {OPSET_MAX} are supported")

    def run(self) -> Graph:
        proto = self.file.model.graph
        if proto.sparse_initializer:
            raise GraphError("sparse initializers are not supported")
        for tensor in proto.initializer:
            self.values[tensor.name] = self._constant(tensor.name, tensor)
        unknown = set(self.shapes) - {i.name for i in proto.input}
        if unknown:
            inputs = ", ".join(i.name for i in proto.input if i.name not in self.values)
            raise GraphError(f"no input {sorted(unknown)[0]!r}: the model's inputs are {inputs}")
        for info in proto.input:
            if info.name not in self.values:
                self._input(info)
        for node in proto.node:
            self._node(node)
        self._outputs([info.name for info in proto.output])
        return self.graph

    def _constant(self, name: str, tensor: onnx.TensorProto) -> Const:
        shape, dtype, source = self.file.source(tensor)
        if len(shape) > RANK_MAX:
            raise GraphError(f"tensor {name!r}: {len(shape)} dimensions, {RANK_MAX} at most are supported")
        return Const(name, shape, dtype, source)

    def _input(self, info: onnx.ValueInfoProto) -> None:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise GraphError(f"input {info.name!r}: is not a tensor")
        declared = info.type.tensor_type
        dtype = dtype_name(declared.elem_type, f"input {info.name!r}")
        dims = list(declared.shape.dim) if declared.HasField("shape") else None
        given = self.shapes.get(info.name)
        if given is None:
            if dims is None or not all(d.HasField("dim_value") and d.dim_value > 0 for d in dims):
                raise GraphError(f"input {info.name!r}: {_hint(info.name, dims)}")
            given = tuple(d.dim_value for d in dims)
        elif dims is not None and len(dims) != len(given):
            raise GraphError(f"input {info.name!r}: has {len(dims)} dimensions, shape {given} has {len(given)}")
        if any(d < 1 for d in given) or len(given) > RANK_MAX or prod(given) * DTYPES[dtype].itemsize > 1 << 36:
            raise GraphError(f"input {info.name!r}: shape {given} is not supported")
        self.values[info.name] = add_tensor(self.graph, info.name, given, dtype)
        self.graph.inputs.append(len(self.graph.tensors) - 1)

    def _node(self, node: onnx.NodeProto) -> None:
        where = f"{node.op_type} node {node.name or ''.join(node.output[:1])!r}"
        if node.domain not in ("", "ai.onnx"):
            raise GraphError(f"{where}: operator of domain {node.domain!r} is not supported")
        inputs: list[Value | None] = []
        for name in node.input:
            if name and name not in self.values:
                raise GraphError(f"{where}: input {name!r} is computed nowhere before")
            inputs.append(self.values[name] if name else None)
        try:
            results = self._results(node, inputs, where)
        except GraphError as error:
            text = str(error)
            raise GraphError(text if node.op_type in text else f"{where}: {text}") from None
        names = list(node.output)
        if len(results) < len(names) and any(names[len(results) :]):
            self._refuse_used(names[len(results) :], where)
        for name, value in zip(names, results, strict=False):
            if name:
                self._name(value, name)
                self.values[name] = value

    def _results(self, node: onnx.NodeProto, inputs: list[Value | None], where: str) -> list[Value]:
        if node.op_type == "Constant":
            value = constant_node(node)
            name = node.output[0]
            return [self._constant(name, value) if isinstance(value, onnx.TensorProto) else array_const(name, value)]
        if node.op_type in ("Shape", "Size") and isinstance(inputs[0] if inputs else None, int):
            return [self._shape(node, inputs[0])]
        constants = [v for v in inputs if v is None or isinstance(v, Const)]
        graphs = [a.name for a in node.attribute if a.HasField("g") or a.graphs]
        if len(constants) == len(inputs) and not graphs and not lazily(node, constants):
            return list(fold(node, constants, self.opsets))
        lowering = LOWERINGS.get(node.op_type)
        if lowering is None:
            known = "control flow" if graphs else "the operator"
            raise GraphError(f"{where}: {known} is not supported")
        ctx = Context(self.graph, node, self.opset, inputs)
        results = lowering(ctx)
        unread = [a.name for a in node.attribute if a.name not in ctx.read]
        if unread:
            raise GraphError(f"{where}: attribute {unread[0]} is not supported")
        return results

    def _shape(self, node: onnx.NodeProto, value: Value | None) -> Const:
        assert isinstance(value, int)
        shape = self.graph.tensors[value].shape
        if node.op_type == "Size":
            return array_const(node.output[0], np.array(prod(shape), np.int64))
        bounds = {a.name: a.i for a in node.attribute}
        return array_const(node.output[0], np.array(shape[bounds.get("start", 0) : bounds.get("end")], np.int64))

    def _name(self, value: Value, name: str) -> None:
        """Gives a computed tensor its ONNX name, unless it has one already (Identity)."""
        if isinstance(value, int) and value not in self.graph.inputs:
            self.graph.tensors[value].name = name

    def _refuse_used(self, names: list[str], where: str) -> None:
        """Refuses outputs that no lowering makes, if anything reads them."""
        proto = self.file.model.graph
        read = {n for node in proto.node for n in node.input} | {info.name for info in proto.output}
        for name in names:
            if name in read:
                raise GraphError(f"{where}: its output {name!r} is not supported")

    def _outputs(self, names: list[str]) -> None:
        """Graph outputs get their names; one that is an input, a constant or another output is copied by a pass."""
        if not names:
            raise GraphError("the model has no outputs")
        for name in names:
            value = self.values.get(name)
            if value is None:
                raise GraphError(f"output {name!r} is computed nowhere")
            ctx = Context(self.graph, onnx.NodeProto(op_type="Output", name=name), self.opset, [value])
            tensor = ctx.tensor(value)
            if tensor in self.graph.inputs or tensor in self.graph.outputs or isinstance(value, Const):
                rank = len(ctx.shape(value))
                tensor = ctx.emit("copy", [tensor], {"perm": list(range(rank)), "expand": [0] * rank})
            self.graph.tensors[tensor].name = name
            self.graph.outputs.append(tensor)


def _hint(name: str, dims: list[onnx.TensorShapeProto.Dimension] | None) -> str:
    """What to say of an input whose shape is open."""
    if dims is None:
        return f"its shape is not known; give one, for example --shape {name}=1,3,224,224"
    sizes = [d.dim_value if d.dim_value > 0 else 0 for d in dims]
    usual = [1, 3, 224, 224] if len(sizes) == 4 else [1] * len(sizes)
    filled = ",".join(str(size or u) for size, u in zip(sizes, usual, strict=True))
    shown = ",".join(str(d.dim_value) if d.dim_value > 0 else (d.dim_param or "?") for d in dims)
    return f"dimensions [{shown}] are not all known; give them, for example --shape {name}={filled}"
