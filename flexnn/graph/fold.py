"""Constant folding: ONNX nodes whose inputs are all known, evaluated one at a time in numpy (graph/evaluate)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .evaluate import BYTES_MAX, EVALUATORS, MemoryNeededError, evaluate
from .ir import ALL_DTYPES, GraphError
from .lower import Const, array_const
from .model import Constant, ModelNode

_VIEWS = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"}
_LAZY_BYTES = 1 << 20
_NARROW = {"Cast", "DequantizeLinear", "Mul", *_VIEWS}
_NARROW_BYTES = 1 << 10


def folds(node: ModelNode) -> bool:
    """Whether numpy computes the node's operator, once for all runs."""
    return node.op_type in EVALUATORS and node.op_type != "RandomNormalLike"


def is_lazy(node: ModelNode, inputs: Sequence[Const | None]) -> bool:
    """Whether a node of constants is lowered rather than folded, where that makes constants again: large ones stay in
    the file until they are packed, and integers of 8 bits can be stored as they are.
    """
    large = len(inputs) > 0 and inputs[0] is not None and inputs[0].nbytes > _LAZY_BYTES
    if large and node.op_type in _VIEWS:
        return True
    return node.op_type in _NARROW and any(_is_narrow(value) for value in inputs if value)


def _is_narrow(value: Const) -> bool:
    return value.narrow is not None or (value.dtype in ("i8", "u8") and value.nbytes > _NARROW_BYTES)


def fold(node: ModelNode, inputs: Sequence[Const | None], opset: int) -> list[Const]:
    """The outputs of ``node`` for constant inputs: what it reads takes at most BYTES_MAX bytes, and so does the
    evaluation. Raises GraphError naming node and operator.
    """
    read = sum(value.nbytes for value in inputs if value)
    if read > BYTES_MAX:
        raise GraphError(f"{node.where}: reads {read >> 20} MiB of constants; at most {BYTES_MAX >> 20} MiB are folded")
    values = evaluate_node(node, [None if v is None else v.load() for v in inputs], opset)
    return [array_const(name, value) for name, value in zip(node.output, values, strict=False)]


def evaluate_node(
    node: ModelNode, inputs: Sequence[np.ndarray | None], opset: int, budget_bytes: int | None = BYTES_MAX
) -> list[np.ndarray]:
    """The outputs of ``node``, computed in numpy in at most ``budget_bytes``, attributes that are loaded among them
    (None: without a limit). Raises MemoryNeededError before it takes more, and GraphError naming the node.
    """
    read = sum(prod(v.shape) * ALL_DTYPES[v.dtype].itemsize for v in node.attrs.values() if isinstance(v, Constant))
    if budget_bytes is not None and read > budget_bytes:
        raise MemoryNeededError(f"{node.where}: its attributes take {read} bytes; {budget_bytes} are left", read)
    attrs: dict[str, object] = dict(node.attrs)
    for name, value in node.attrs.items():
        if isinstance(value, Constant):
            attrs[name] = np.asarray(value.source.load()).reshape(value.shape)
    left = None if budget_bytes is None else budget_bytes - read
    try:
        return evaluate(node.op_type, attrs, inputs, opset, len(node.output), left)
    except GraphError as error:
        message = f"{node.where}: {str(error).removeprefix(f'{node.op_type}: ')}"
        if isinstance(error, MemoryNeededError):
            raise MemoryNeededError(message, error.needed + read) from None
        raise GraphError(message) from None
