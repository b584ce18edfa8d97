"""A GGUF file as an ONNX file of the same weights in float32, for runtimes that read no GGUF.

Nodes that read constants alone are computed, so that weights are what the file's types say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from flexnn.graph.evaluate.of_node import evaluate_node
from flexnn.graph.model import Model, ModelNode
from flexnn.graph.ports import Port
from flexnn.llm.decoder import load_gguf

OPSET = 23
_TYPES = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64}


def as_onnx(path: Path, target: Path) -> Path:
    """Write the model; return its path. It is made once."""
    if not target.exists():
        made = _converted(load_gguf(str(path), "f32"))
        onnx.save(made, target, save_as_external_data=True, location=target.name + ".data")
    return target


def _converted(model: Model) -> onnx.ModelProto:
    graph, known = model.graph, dict[str, np.ndarray]()

    def value(name: str) -> np.ndarray[Any, Any] | None:
        constant = graph.constants.get(name)
        if name not in known and constant is not None:
            known[name] = np.asarray(constant.source.load()).reshape(constant.shape)
        return known.get(name)

    nodes: list[onnx.NodeProto] = []
    read: set[str] = set()
    for node in graph.nodes:
        values = [value(name) if name else None for name in node.input]
        if all(v is not None for v, name in zip(values, node.input, strict=True) if name):
            known[node.output[0]] = evaluate_node(node, values, model.opset, None)[0]
            continue
        nodes += _nodes(node)
        read.update(node.input)
    weights = [numpy_helper.from_array(np.ascontiguousarray(known[name]), name) for name in sorted(read & known.keys())]
    ports = [[_port(port) for port in side] for side in (graph.inputs, graph.outputs)]
    made = helper.make_graph(nodes, "decoder", *ports, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _nodes(node: ModelNode) -> list[onnx.NodeProto]:
    if node.op_type == "Swish":  # younger than OPSET
        name = f"{node.output[0]}.sigmoid"
        return [
            helper.make_node("Sigmoid", node.input, [name]),
            helper.make_node("Mul", [node.input[0], name], node.output),
        ]
    return [helper.make_node(node.op_type, node.input, node.output, node.name, **node.attrs)]


def _port(port: Port) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(port.name, _TYPES[str(port.dtype)], list(port.dims or ()))
