"""Constant folding: ONNX nodes whose inputs are all known, evaluated one at a time by onnx's own reference."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .ir import GraphError
from .lower import Const, array_const

FOLDED_BYTES_MAX = 1 << 28
"""Most bytes that one folded node may make or read; beyond, it is an attack or a mistake."""
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
_LAZY = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"}
"""These are lowered even on constants: views of large weights stay in the file."""


def lazily(node: onnx.NodeProto, inputs: list[Const | None]) -> bool:
    """Whether a constant node is left to the lowering, which does not load its input."""
    return node.op_type in _LAZY and len(inputs) > 0 and inputs[0] is not None and inputs[0].nbytes > 1 << 20


def fold(node: onnx.NodeProto, inputs: list[Const | None], opsets: list[onnx.OperatorSetIdProto]) -> list[Const]:
    """The outputs of ``node`` for constant inputs. Raises GraphError naming node and operator."""
    where = f"{node.op_type} node {node.name or node.output[0]!r}"
    if node.op_type in RANDOM:
        raise GraphError(f"{where}: random values are not supported")
    if sum(value.nbytes for value in inputs if value) > FOLDED_BYTES_MAX:
        raise GraphError(f"{where}: computes from {sum(v.nbytes for v in inputs if v) >> 20} MiB of constants")
    feeds = {n: v.load() for n, v in zip(node.input, inputs, strict=True) if n and v is not None}
    _refuse_growth(node, [None if v is None else v.load() for v in inputs], where)
    types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    graph = helper.make_graph(
        [node],
        "fold",
        [helper.make_tensor_value_info(n, types[n], v.shape) for n, v in feeds.items()],
        [onnx.ValueInfoProto(name=n) for n in node.output if n],
    )
    model = helper.make_model(graph, opset_imports=list(opsets))
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # the evaluator raises whatever numpy or its own operators raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise GraphError(f"{where}: cannot be evaluated: {reason}") from None
    folded = iter(results)
    out: list[Const] = []
    for name in node.output:
        if not name:
            continue
        values = np.asarray(next(folded))
        out.append(array_const(name, values))
    return out


def _refuse_growth(node: onnx.NodeProto, values: list[np.ndarray | None], where: str) -> None:
    """Refuses a node whose output could be huge although its inputs are not, before it is made."""
    size: float = 0
    first = values[0] if values else None
    if node.op_type == "ConstantOfShape" and first is not None:
        size = prod(float(abs(v)) for v in first.reshape(-1))
    elif node.op_type in ("Expand", "Tile") and first is not None and len(values) > 1 and values[1] is not None:
        size = max(first.size, 1) * prod(float(max(abs(v), 1)) for v in values[1].reshape(-1))
    elif node.op_type == "Range" and len(values) == 3 and all(v is not None and v.size == 1 for v in values):
        start, limit, delta = (float(v.item()) for v in values if v is not None)
        size = abs(limit - start) / abs(delta) if delta else 0
    elif node.op_type in ("Resize", "Upsample", "Pad", "OneHot"):
        amounts = [abs(v).astype(np.float64) for v in values[1:] if v is not None and v.dtype.kind in "iuf"]
        reach = [float(a.max()) if a.size else 0.0 for a in amounts]
        size = (max(first.size, 1) if first is not None else 1) * max([1.0, *reach])
    if not size * 8 <= FOLDED_BYTES_MAX:
        raise GraphError(f"{where}: makes a constant of more than {FOLDED_BYTES_MAX >> 20} MiB")


def constant_node(node: onnx.NodeProto) -> np.ndarray | onnx.TensorProto:
    """The value of a Constant node: an array, or a tensor that may lie in the file. Raises GraphError."""
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor: onnx.TensorProto = attribute.t
            return tensor
        if attribute.name == "value_float":
            return np.array(attribute.f, np.float32)
        if attribute.name == "value_int":
            return np.array(attribute.i, np.int64)
        if attribute.name == "value_floats":
            return np.array(attribute.floats, np.float32)
        if attribute.name == "value_ints":
            return np.array(attribute.ints, np.int64)
    given = node.attribute[0].name if node.attribute else "value"
    raise GraphError(f"Constant node {node.name or node.output[0]!r}: attribute {given} is not supported")
