"""A float32 model as float16: weights, activations, inputs and outputs, for what has no float16 model to be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_KEEP = {"Resize": (1, 2), "Upsample": (1,), "QuantizeLinear": (1,), "DequantizeLinear": (1,)}
"""Inputs that stay float32 whatever the data are, by operator."""


def as_half(source: Path, target: Path) -> None:
    """Writes the model ``source`` as float16 to ``target``."""
    model = onnx.load(source)
    _convert(model.graph)
    onnx.save(model, target)


def _convert(graph: onnx.GraphProto) -> None:
    kept = {n.input[i] for n in graph.node for i in _KEEP.get(n.op_type, ()) if i < len(n.input) and n.input[i]}
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _narrow(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and not kept.intersection(node.output):
                _narrow(attribute.t)
            if attribute.HasField("g"):
                _convert(attribute.g)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    del graph.value_info[:]


def _narrow(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
