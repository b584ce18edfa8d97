"""Constant folding: ONNX nodes whose inputs are all known, evaluated one at a time by onnx's own reference."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .ir import GraphError
from .lower import Const, array_const
from .model import Constant, ModelNode

FOLDED_BYTES_MAX = 1 << 28
"""Most bytes that one folded node may make or read; beyond, it is an attack or a mistake."""
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
_LAZY = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"}
"""These are lowered even on constants: views of large weights stay in the file."""


def lazily(node: ModelNode, inputs: list[Const | None]) -> bool:
    """Whether a constant node is left to the lowering, which does not load its input."""
    return node.op_type in _LAZY and len(inputs) > 0 and inputs[0] is not None and inputs[0].nbytes > 1 << 20


def fold(node: ModelNode, inputs: list[Const | None], opset: int) -> list[Const]:
    """The outputs of ``node`` for constant inputs. Raises GraphError naming node and operator."""
    if node.op_type in RANDOM:
        raise GraphError(f"{node.where}: random values are not supported")
    if sum(value.nbytes for value in inputs if value) > FOLDED_BYTES_MAX:
        raise GraphError(f"{node.where}: computes from {sum(v.nbytes for v in inputs if v) >> 20} MiB of constants")
    feeds = {n: v.load() for n, v in zip(node.input, inputs, strict=True) if n and v is not None}
    _refuse_growth(node, [None if v is None else v.load() for v in inputs], node.where)
    types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    try:
        attrs: dict[str, Any] = {
            name: numpy_helper.from_array(np.asarray(value.source.load())) if isinstance(value, Constant) else value
            for name, value in node.attrs.items()
        }
        graph = helper.make_graph(
            [helper.make_node(node.op_type, node.input, node.output, **attrs)],
            "fold",
            [helper.make_tensor_value_info(n, types[n], v.shape) for n, v in feeds.items()],
            [onnx.ValueInfoProto(name=n) for n in node.output if n],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # the evaluator raises whatever numpy or its own operators raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise GraphError(f"{node.where}: cannot be evaluated: {reason}") from None
    folded = iter(results)
    return [array_const(name, np.asarray(next(folded))) for name in node.output if name]


def _refuse_growth(node: ModelNode, values: list[np.ndarray | None], where: str) -> None:
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
