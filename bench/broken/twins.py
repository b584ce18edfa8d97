"""Twins: small models that keep the standard, one node each. What breaks a rule is made of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NODE = "the node"
"""Name of the node of every twin."""


@dataclass(frozen=True, slots=True)
class Typed:
    """An input that is not of float32."""

    kind: int
    shape: tuple[int, ...]


Input = tuple[int, ...] | Typed | np.ndarray | None
"""Shape of an input of float32, an input of another type, a constant, or an optional one that is left out."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A model of one node."""

    op: str
    inputs: Sequence[Input]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 17
    domain: str = ""

    def model(self, *, is_open: bool = False) -> onnx.ModelProto:
        """The model. ``is_open``: first dimensions have names instead of sizes."""
        names = [f"i{k}" if value is not None else "" for k, value in enumerate(self.inputs)]
        outputs = [f"o{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, name=NODE, domain=self.domain, **self.attrs)
        ports, constants = [], []
        for name, value in zip(names, self.inputs, strict=True):
            if isinstance(value, np.ndarray):
                constants.append(numpy_helper.from_array(value, name))
            elif value is not None:
                kind, shape = (value.kind, value.shape) if isinstance(value, Typed) else (FLOAT, value)
                dims: list[int | str] = [*shape]
                if is_open and len(dims) > 1:
                    dims[0] = "batch"
                ports.append(helper.make_tensor_value_info(name, kind, dims))
        opsets = {"": self.opset, self.domain: 1 if self.domain else self.opset}
        return model_of([node], ports, outputs, constants, opsets)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    constants: Sequence[TensorProto] = (),
    opsets: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model. An output of which only the name is given declares nothing."""
    ports = [onnx.ValueInfoProto(name=port) if isinstance(port, str) else port for port in outputs]
    graph = helper.make_graph(list(nodes), "broken", list(inputs), ports, list(constants))
    imports = [helper.make_opsetid(domain, version) for domain, version in (opsets or {"": 17}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _numbers(*shape: int) -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) / 2).astype(np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


_ONE, _ZERO, _EIGHT = np.array(0.1, np.float32), np.array(3, np.uint8), np.arange(12, dtype=np.uint8).reshape(3, 4)
_PICTURE = (1, 2, 8, 8)

TWINS = (
    Twin("Add", [(2, 3), (2, 3)]),
    Twin("And", [Typed(BOOL, (2, 3)), Typed(BOOL, (2, 3))]),
    Twin("ArgMax", [(2, 3)], {"axis": 1, "keepdims": 0}),
    Twin("AveragePool", [_PICTURE], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Twin("BatchNormalization", [_PICTURE, *([np.abs(_numbers(2))] * 4)], {"epsilon": 1e-3}),
    Twin("Cast", [(2, 3)], {"to": INT64}),
    Twin("Clip", [(2, 3), np.array(0, np.float32), np.array(1, np.float32)]),
    Twin("Concat", [(2, 3), (2, 4)], {"axis": 1}),
    Twin("Conv", [_PICTURE, _numbers(3, 2, 3, 3)], {"pads": [1, 1, 1, 1], "group": 1}),
    Twin("ConvTranspose", [_PICTURE, _numbers(2, 3, 3, 3)], {"strides": [2, 2]}),
    Twin("CumSum", [(2, 3), np.array(1)], {"exclusive": 1}),
    Twin("DepthToSpace", [(1, 8, 4, 4)], {"blocksize": 2, "mode": "CRD"}),
    Twin("DequantizeLinear", [_EIGHT, _ONE, _ZERO]),
    Twin("DynamicQuantizeLinear", [(2, 3)], {}, 3),
    Twin("Einsum", [(2, 3), (3, 4)], {"equation": "ij,jk->ik"}),
    Twin("Elu", [(2, 3)], {"alpha": 0.5}),
    Twin("Equal", [(2, 3), (2, 3)]),
    Twin("Flatten", [(2, 3, 4)], {"axis": 2}),
    Twin("GRU", [(5, 1, 4), _numbers(1, 9, 4), _numbers(1, 9, 3)], {"hidden_size": 3, "linear_before_reset": 1}, 2),
    Twin("Gather", [(4, 3), Typed(INT64, (2,))], {"axis": 0}),
    Twin("Gemm", [(2, 3), _numbers(4, 3), _numbers(4)], {"transB": 1, "alpha": 0.5}),
    Twin("GlobalAveragePool", [_PICTURE]),
    Twin("HardSigmoid", [(2, 3)], {"alpha": 0.3, "beta": 0.4}),
    Twin("InstanceNormalization", [_PICTURE, _numbers(2), _numbers(2)], {"epsilon": 1e-3}),
    Twin("IsNaN", [(2, 3)]),
    Twin("LRN", [_PICTURE], {"size": 3}),
    Twin("LSTM", [(5, 1, 4), _numbers(1, 12, 4), _numbers(1, 12, 3)], {"hidden_size": 3, "direction": "reverse"}, 3),
    Twin("LayerNormalization", [(2, 3), _numbers(3)], {"axis": -1}),
    Twin("MatMul", [(2, 3), (3, 4)]),
    Twin("MaxPool", [_PICTURE], {"kernel_shape": [2, 2], "ceil_mode": 1}),
    Twin("Mod", [Typed(INT64, (2, 3)), Typed(INT64, (2, 3))], {"fmod": 0}),
    Twin("Not", [Typed(BOOL, (2, 3))]),
    Twin("OneHot", [Typed(INT64, (3,)), np.array(4), np.array([0, 1], np.float32)], {"axis": -1}),
    Twin("Pad", [(2, 3), _ints(0, 1, 0, 1)], {"mode": "reflect"}),
    Twin("Pow", [(2, 3), np.array(2, np.float32)]),
    Twin("QuantizeLinear", [(2, 3), _ONE, _ZERO]),
    Twin("RNN", [(5, 1, 4), _numbers(1, 3, 4), _numbers(1, 3, 3)], {"hidden_size": 3}, 2),
    Twin("ReduceMean", [(2, 3)], {"axes": [1], "keepdims": 0}),
    Twin("ReduceSum", [(2, 3), _ints(1)], {"keepdims": 0}),
    Twin("Relu", [(2, 3)]),
    Twin("Reshape", [(2, 6), _ints(3, 4)], {"allowzero": 0}),
    Twin("Resize", [_PICTURE, None, np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest"}),
    Twin("ScatterElements", [(4, 3), Typed(INT64, (1, 3)), (1, 3)], {"axis": 0, "reduction": "add"}),
    Twin("Selu", [(2, 3)]),
    Twin("Shape", [(2, 3)], {"start": 1}),
    Twin("Slice", [(4, 5), _ints(1), _ints(3), _ints(1)]),
    Twin("Softmax", [(2, 3)], {"axis": 1}),
    Twin("SpaceToDepth", [_PICTURE], {"blocksize": 2}),
    Twin("Split", [(4, 6), _ints(2, 4)], {"axis": 1}, 2),
    Twin("Squeeze", [(2, 1, 3), _ints(1)]),
    Twin("TopK", [(2, 5), _ints(2)], {"axis": 1, "largest": 0}, 2),
    Twin("Transpose", [(2, 3)], {"perm": [1, 0]}),
    Twin("Trilu", [(3, 3)], {"upper": 0}),
    Twin("Unsqueeze", [(2, 3), _ints(0)]),
    Twin("Where", [Typed(BOOL, (2, 3)), (2, 3), (2, 3)]),
    Twin("BiasGelu", [(2, 3), _numbers(3)], domain="com.microsoft"),
    Twin("FusedMatMul", [(2, 3), (4, 3)], {"transB": 1, "alpha": 0.5}, domain="com.microsoft"),
    Twin("SkipLayerNormalization", [(1, 2, 3), (1, 2, 3), _numbers(3)], {"epsilon": 1e-3}, domain="com.microsoft"),
    Twin("Scaler", [(2, 3)], {"offset": [0.5], "scale": [2.0]}, domain="ai.onnx.ml"),
)
