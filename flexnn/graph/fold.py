"""Constant folding: ONNX nodes whose inputs are all known, evaluated one at a time in numpy (graph/evaluate)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .evaluate import BYTES_MAX, EVALUATORS
from .evaluate.of_node import evaluate_node
from .evaluate.shape import range_count
from .ir import GraphError, Shape
from .lower import Const, array_const
from .model import Constant, ModelNode
from .sources import MadeSource

_VIEWS = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"}
_LAZY_BYTES = 1 << 20
MADE_BYTES_MAX = 8 << 30
"""Most bytes of all constants that one graph's nodes make out of little; beyond, it is an attack or a mistake."""
_DRAWN = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""Operators that make other numbers at each run."""
_NARROW = {"Cast", "DequantizeLinear", "Mul", *_VIEWS}
_NARROW_BYTES = 1 << 10
_INTEGERS = "i8", "u8"


def folds(node: ModelNode) -> bool:
    """Whether numpy computes the node's operator, once for all runs."""
    return node.op_type in EVALUATORS and node.op_type not in _DRAWN


def is_lazy(node: ModelNode, inputs: Sequence[Const | None]) -> bool:
    """Whether a node of constants is lowered rather than folded, where that makes constants again: large ones stay in
    the file until they are packed, and integers of 8 bits can be stored as they are.
    """
    large = len(inputs) > 0 and inputs[0] is not None and inputs[0].nbytes > _LAZY_BYTES
    if large and node.op_type in _VIEWS:
        return True
    if node.op_type == "DequantizeLinear" and inputs[0] is not None:
        return inputs[0].dtype in _INTEGERS  # however few: they may meet bytes
    return node.op_type in _NARROW and any(_is_narrow(value) for value in inputs if value)


def _is_narrow(value: Const) -> bool:
    return value.narrow is not None or (value.dtype in _INTEGERS and value.nbytes > _NARROW_BYTES)


def fold(node: ModelNode, inputs: Sequence[Const | None], opset: int, budget_bytes: int = BYTES_MAX) -> list[Const]:
    """The outputs of ``node`` for constant inputs: what it reads takes at most BYTES_MAX bytes, the evaluation
    ``budget_bytes``. Raises GraphError naming node and operator, MemoryNeededError before it takes more.
    """
    read = sum(value.nbytes for value in inputs if value)
    if read > BYTES_MAX:
        raise GraphError(f"{node.where}: reads {read >> 20} MiB of constants; at most {BYTES_MAX >> 20} MiB are folded")
    values = evaluate_node(node, [None if v is None else v.load() for v in inputs], opset, budget_bytes)
    return [array_const(name, value) for name, value in zip(node.output, values, strict=False)]


def made(node: ModelNode, inputs: Sequence[Const | None]) -> Const | None:
    """The output of a node that makes a large constant out of little: its numbers are made when they are read.

    None: the node is no such, or its output is small, or wrong, which evaluating it says.
    """
    given = [value for value in inputs if value is not None]
    if node.op_type not in _MAKERS or len(given) != len(inputs) or any(v.nbytes > _LAZY_BYTES for v in given[1:]):
        return None
    try:
        shape, dtype, make = _MAKERS[node.op_type](node, given)
    except (ValueError, TypeError, IndexError):
        return None
    attributes = [f"{v.shape}{v.dtype}{v.source.key}" for v in node.attrs.values() if isinstance(v, Constant)]
    label = f"{node.op_type}{','.join([*attributes, *(f'{v.shape}{v.dtype}{v.source.key}' for v in given)])}"
    value = Const(node.output[0], shape, dtype, MadeSource(label, make))
    is_large = all(shape) and value.nbytes > max(_LAZY_BYTES, given[0].nbytes)
    return value if is_large else None


_Maker = Callable[[ModelNode, list[Const]], tuple[Shape, str, Callable[[], np.ndarray]]]


def _filled(node: ModelNode, given: list[Const]) -> tuple[Shape, str, Callable[[], np.ndarray]]:
    shape = tuple(int(d) for d in given[0].load().reshape(-1))
    value = node.attrs.get("value")
    if not isinstance(value, Constant):
        return shape, "f32", lambda: np.broadcast_to(np.zeros((), np.float32), shape)
    number = np.asarray(value.source.load()).reshape(-1)[0]
    return shape, value.dtype, lambda: np.broadcast_to(number, shape)


def _expanded(node: ModelNode, given: list[Const]) -> tuple[Shape, str, Callable[[], np.ndarray]]:
    x, target = given
    shape = np.broadcast_shapes(x.shape, tuple(int(d) for d in target.load().reshape(-1)))
    return shape, x.dtype, lambda: np.broadcast_to(x.load(), shape)


def _tiled(node: ModelNode, given: list[Const]) -> tuple[Shape, str, Callable[[], np.ndarray]]:
    x, repeats = given[0], [int(r) for r in given[1].load().reshape(-1)]
    shape = tuple(d * r for d, r in zip(x.shape, repeats, strict=True))
    return shape, x.dtype, lambda: np.tile(x.load(), repeats)


def _counted(node: ModelNode, given: list[Const]) -> tuple[Shape, str, Callable[[], np.ndarray]]:
    start, limit, delta = (value.load().reshape(()) for value in given)
    count = range_count(start, limit, delta) if delta else None
    if count is None:
        raise ValueError
    return (
        (count,),
        given[0].dtype,
        lambda: np.asarray(start + np.arange(count).astype(start.dtype) * delta, start.dtype),
    )


_MAKERS: dict[str, _Maker] = {"ConstantOfShape": _filled, "Expand": _expanded, "Tile": _tiled, "Range": _counted}
