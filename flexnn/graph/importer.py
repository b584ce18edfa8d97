"""ONNX protobuf to the model without onnx (graph/model.py): names, attributes, declared inputs; nothing is computed."""

from __future__ import annotations

from collections import ChainMap

import numpy as np
import onnx
from onnx import AttributeProto

from .alike import share_equal
from .contrib import Expansion, Shared, expanded
from .contrib.integers import sign_restored
from .declared import DIM_MAX, declared_port
from .four_bits import TYPES, follow_halves, source_of_halves
from .ir import RANK_MAX, GraphError, WeightSource
from .labels import Labels
from .model import Constant, Model, ModelAttr, ModelGraph, ModelNode
from .onnx_file import Checked, OnnxFile
from .ports import Port
from .single import mark_single
from .sources import ArraySource, ModelSource
from .stated import dtype_name
from .tensors import value_of
from .texts import follow, is_text, texts_of, words
from .tied import mark_tied

_DEFAULT = ("", "ai.onnx")
_VALUES = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
"""Attributes of a Constant node that are no tensor."""


def import_onnx(file: OnnxFile, checked: Checked | None = None) -> Model:
    """The model of an open file, which may have been checked. Raises GraphError, one line."""
    if checked is None:
        from .checked import check_onnx  # what it imports takes as long as reading a small model

        checked = check_onnx(file)
    importer = _Importer(file, checked.opset)
    graph = importer.graph(file.model.graph)
    importer.check_labels(graph)
    sign_restored(graph, importer.count, importer.shared)
    graph.outputs = checked.outputs
    about = file.says()._replace(labels=importer.shared.labels)
    model = Model(graph, checked.opset, about, tuple(sorted(file.externals)))
    share_equal(model)
    mark_tied(model)
    mark_single(model)
    return model


class _Importer:
    def __init__(self, file: OnnxFile, opset: int) -> None:
        self.file = file
        self.counted = 0
        self.constants: ChainMap[str, Constant] = ChainMap()
        """Constants of the graphs around the one that is imported."""
        self.shared = Shared(opset)
        self.words: Labels | None = None
        """Texts that inputs may be."""
        self.halves: set[str] = set()
        """Values of 4 bits."""

    def graph(self, proto: onnx.GraphProto, nested: bool = False) -> ModelGraph:
        if proto.sparse_initializer:
            raise GraphError("sparse initializers are not supported")
        graph = ModelGraph()
        for tensor in proto.initializer:
            graph.constants[tensor.name] = self._constant(tensor, tensor.name)
        graph.inputs = [self._input(info, proto, nested) for info in proto.input if info.name not in graph.constants]
        graph.outputs = [declared_port(info) for info in proto.output]
        made = {port.name for port in graph.inputs} | set(graph.constants)
        self.constants = self.constants.new_child(graph.constants)
        for node in proto.node:
            for name in node.output:
                if name and name in made:
                    raise GraphError(f"{node.op_type} node {node.name or name!r}: computes {name!r} a second time")
                made.add(name)
            if node.op_type == "Constant" and node.domain in _DEFAULT and node.output:
                graph.constants[node.output[0]] = self._constant_node(node)
            else:
                graph.nodes += self._expanded(self._node(node), graph)
        for port in graph.outputs:
            self._require_tensor(port.name, f"output {port.name!r}")
        self.constants = self.constants.parents
        return graph

    def _expanded(self, node: ModelNode, graph: ModelGraph) -> list[ModelNode]:
        """The nodes that stand for one of another domain; else the node."""
        follow_halves(node, self.halves)
        if node.op_type in expanded(node.domain):
            return Expansion(node, graph, self.constants, self.count, self.shared).run()
        if node.op_type == "Identity" and not node.domain and node.input[:1] and node.input[0] in self.shared.sequences:
            self.shared.sequences[node.output[0]] = self.shared.sequences[node.input[0]]
            return []
        follow(node, self.shared)
        for name in node.input:
            self._require_tensor(name, f"{node.where}: its input {name!r}")
        return [node]

    def check_labels(self, graph: ModelGraph) -> None:
        """Keep the labels of inputs and outputs. Raises GraphError if other nodes read them as numbers."""
        labels = self.shared.labels
        for inner in graph.walk():
            for node in inner.nodes:
                read = [name for name in node.input if name in labels]
                if read and self.shared.readers.isdisjoint(node.output[:1]):
                    raise GraphError(f"{node.where}: its input {read[0]!r} has labels, which only callers may read")
        for port in graph.outputs:
            if port.name in labels and labels[port.name].kind == "words":
                raise GraphError(f"output {port.name!r} has texts of an input, which may be any")
        kept = {port.name for port in (*graph.inputs, *graph.outputs)}
        self.shared.labels = {name: labels[name] for name in labels if name in kept}

    def _require_tensor(self, name: str, what: str) -> None:
        if name in self.shared.sequences:
            raise GraphError(f"{what} is not a tensor: sequences are supported between nodes of one graph")

    def _input(self, info: onnx.ValueInfoProto, proto: onnx.GraphProto, nested: bool) -> Port:
        """An input; one of texts has the type of the numbers that stand for them."""
        if not is_text(info) or nested:
            return _port(info, nested)
        self.words = self.words or words(proto, info.name)
        self.shared.labels[info.name] = self.words
        numbers = onnx.ValueInfoProto()
        numbers.CopyFrom(info)
        numbers.type.tensor_type.elem_type = onnx.TensorProto.INT64
        return _port(numbers, nested)

    def _constant(self, tensor: onnx.TensorProto, name: str) -> Constant:
        if tensor.data_type == onnx.TensorProto.STRING:
            texts = texts_of(tensor)
            self.shared.labels[name] = Labels("texts", texts)
            return self.count(name, tuple(tensor.dims), "i64", ArraySource(_places(tensor, len(texts))))
        self.halves.discard(name)
        if tensor.data_type in TYPES:
            shape, dtype, source = source_of_halves(self.file, tensor)
            self.halves.add(name)
        else:
            shape, dtype, source = self.file.source(tensor)
        if len(shape) > RANK_MAX:
            raise GraphError(f"tensor {name!r}: {len(shape)} dimensions; at most {RANK_MAX} are supported")
        return self.count(name, shape, dtype, source)

    def count(self, name: str, shape: tuple[int, ...], dtype: str, source: WeightSource) -> Constant:
        self.counted += 1
        return Constant(name, shape, dtype, ModelSource(self.counted - 1, source))

    def _constant_node(self, node: onnx.NodeProto) -> Constant:
        name = node.output[0]
        for attribute in node.attribute:
            if attribute.name == "value":
                return self._constant(attribute.t, name)
            if attribute.name in _VALUES:
                values = np.array(value_of(attribute), _VALUES[attribute.name])
                dtype = "f32" if values.dtype == np.float32 else "i64"
                return self.count(name, values.shape, dtype, ArraySource(values))
        given = node.attribute[0].name if node.attribute else "value"
        raise GraphError(f"Constant node {node.name or name!r}: attribute {given} is not supported")

    def _node(self, node: onnx.NodeProto) -> ModelNode:
        domain = "" if node.domain == "ai.onnx" else node.domain
        result = ModelNode(node.op_type, node.name, list(node.input), list(node.output), domain=domain)
        if "." in node.op_type:  # parts of operators (contrib/selection.py) are no model's
            raise GraphError(f"{result.where}: the operator is not supported")
        for attribute in node.attribute:
            result.attrs[attribute.name] = self._attribute(attribute, result)
        return result

    def _attribute(self, attribute: onnx.AttributeProto, node: ModelNode) -> ModelAttr:
        name, kind = attribute.name, attribute.type
        if kind == AttributeProto.TENSOR and attribute.t.data_type == onnx.TensorProto.STRING:
            return texts_of(attribute.t)
        if kind == AttributeProto.TENSOR:
            dtype_name(attribute.t.data_type, f"{node.where}: attribute {name}")
            return self._constant(attribute.t, attribute.t.name or name)
        if kind == AttributeProto.GRAPH:
            return self.graph(attribute.g, nested=True)
        if kind in (AttributeProto.STRING, AttributeProto.STRINGS):
            value = value_of(attribute)
            texts = [v.decode("utf-8", "replace") for v in (value if isinstance(value, list) else [value])]
            return texts if isinstance(value, list) else texts[0]
        if kind in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOATS):
            number: ModelAttr = value_of(attribute)
            return number
        if kind == AttributeProto.FLOAT:
            return float(attribute.f)
        if kind == AttributeProto.TYPE_PROTO:  # of an optional value that holds nothing
            return ""
        raise GraphError(f"{node.where}: attribute {name} has a type that is not supported")


def _places(tensor: onnx.TensorProto, count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64).reshape(tensor.dims)


def _port(info: onnx.ValueInfoProto, nested: bool) -> Port:
    kind = info.type.WhichOneof("value")
    if kind is None and nested:
        return Port(info.name, None, None)
    if kind != "tensor_type":
        raise GraphError(f"input {info.name!r} is not a tensor")
    declared = info.type.tensor_type
    if nested and not declared.elem_type:
        return Port(info.name, None, None)
    dtype = dtype_name(declared.elem_type, f"input {info.name!r}")
    if not declared.HasField("shape"):
        return Port(info.name, dtype, None)
    dims = [
        d.dim_value if d.HasField("dim_value") and 0 < d.dim_value <= DIM_MAX else d.dim_param or None
        for d in declared.shape.dim
    ]
    return Port(info.name, dtype, tuple(dims))
