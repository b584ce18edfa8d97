"""Folding of constants that are made of sizes (graph/sizes.py): the operators with which models compute shapes.

The results are those of graph/evaluate. Other operators get the numbers themselves, which are conditions then.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .build import add_tensor
from .evaluate import evaluate
from .evaluate.of_node import evaluate_node
from .ir import Array, Graph, GraphError, Shape
from .late import KEPT_BYTES, Late, LateConstant, LateFold
from .lower import LOWERINGS, OPERAND_BYTES, Const, Context, Value, array_const, depends, is_sizes, sizes_const
from .lower.constant import same_number
from .model import Constant, ModelNode
from .sizes import Size, least, most
from .sources import ArraySource, KeptSource, ModelSource, SizesSource
from .stated import dtype_name

MOVES = {
    "Concat": 99, "Expand": 1, "Flatten": 1, "Gather": 1, "Identity": 1, "Reshape": 1, "Slice": 1, "Split": 1,
    "Squeeze": 1, "Transpose": 1, "Unsqueeze": 1,
}  # fmt: skip
"""Operators that move numbers and do not look at them, and how many of their inputs hold such numbers."""
SLICED_MAX = 256
"""Most numbers of a constant of which a Slice is looked at for ends that lie behind all of it."""
_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
}
_COMPUTES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Max": most,
    "Min": least,
    "Mul": operator.mul,
    "Sub": operator.sub,
}
_REDUCES = {"ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Mul", "ReduceSum": "Add"}
"""The operator that combines the numbers along some axes."""
_REDUCED = dict.fromkeys(("ReduceMax", "ReduceMin"), ("i64", "i32", "f32"))
"""Types of the numbers, where floats may be among them: sums of those depend on their order."""


def fold_sizes(node: ModelNode, inputs: Sequence[Const | None], opset: int) -> list[Const] | None:
    """Return the outputs of ``node`` for constants of which some are made of sizes; None where the operator needs the
    numbers themselves.
    """
    values = [value for value in inputs if value is not None]
    try:
        found = None if any(map(is_late, values)) else _folded(node, inputs, values, opset)
        return found or fold_late(node, inputs, opset)
    except GraphError:  # with the numbers themselves it goes, or says what is wrong
        return None


def _folded(node: ModelNode, inputs: Sequence[Const | None], values: Sequence[Const], opset: int) -> list[Const] | None:
    if node.op_type in MOVES:
        return _moved(node, _ends_within(inputs) if node.op_type == "Slice" else inputs, opset)
    if node.op_type == "Cast" and isinstance(to := node.attrs.get("to"), int):
        found = _cast(values[0], dtype_name(to, node.where))
    elif len({v.dtype for v in values}) > 1 and node.op_type != "Where" and node.op_type not in _REDUCES:
        return None
    elif node.op_type in _COMPARES and len(values) == 2:
        decided = _each(_COMPARES[node.op_type], *map(_numbers, values))
        found = array_const("", decided.astype(bool))
    elif node.op_type in _COMPUTES and len(values) == 2:
        found = _computed(_COMPUTES[node.op_type], values)
    elif node.op_type in _REDUCES and values[0].dtype in _REDUCED.get(node.op_type, ("i64", "i32")):
        found = _reduced(node, values)
    elif node.op_type in ("Div", "Mod") and len(values) == 2:
        found = _divided(node, values)
    elif node.op_type == "Reciprocal" and values[0].dtype == "f32" and all(v > 0 for v in _numbers(values[0]).flat):
        found = _const(_each(lambda v: _rounded(1.0 / v), _numbers(values[0])), "f32")
    elif node.op_type == "Where" and not is_sizes(values[0]) and values[1].dtype == values[2].dtype:
        picked = np.where(values[0].load(), _numbers(values[1]), _numbers(values[2]))
        found = _const(picked, values[1].dtype)
    elif node.op_type == "Neg" and values[0].dtype in ("i64", "i32"):
        found = _const(_each(operator.neg, _numbers(values[0])), values[0].dtype)
    elif node.op_type in ("Floor", "Ceil") and values[0].dtype == "f32":
        function = math.floor if node.op_type == "Floor" else math.ceil
        found = _const(_each(lambda v: _rounded(function(v)), _numbers(values[0])), "f32")
    else:
        return None
    if found is None:
        return None
    found.name = node.output[0]
    return [found]


@quick_dataclass(frozen=True, slots=True, eq=False)
class LateSource:
    """A constant whose numbers depend on sizes: it is folded once they are known."""

    node: ModelNode
    inputs: tuple[Const | None, ...]
    opset: int
    output: int
    """Which of the node's outputs it is."""

    @property
    def key(self) -> str:
        """A digest of the numbers. The sizes are conditions from now on."""
        return ArraySource(self.load()).key

    @property
    def same(self) -> int | None:
        """The number, maybe a size, that all are, where the operator says so."""
        first = self.inputs[0] if self.inputs else None
        return same_number(first) if self.node.op_type == "Expand" and first is not None else None

    def load(self) -> Array:
        """The numbers. The sizes are conditions from now on."""
        inputs = [None if value is None else value.load() for value in self.inputs]
        return evaluate_node(self.node, inputs, self.opset)[self.output]

    def late(self, indices: Callable[[Array], Array]) -> Late:
        """Maker of the numbers of a template's, as of a SizesSource."""
        return LateFold(self.node, [_late_or_known(value, indices) for value in self.inputs], self.opset, self.output)


def _late_or_known(value: Const | None, indices: Callable[[Array], Array]) -> Late | Array | None:
    """Return what makes the numbers of a constant, or the numbers where they depend on no sizes."""
    source = value.source if value is not None else None
    source = source.base if isinstance(source, KeptSource) else source
    if value is not None and isinstance(source, ModelSource) and value.nbytes > KEPT_BYTES:
        return LateConstant(source, value.shape)
    if value is None or not depends(value):
        return None if value is None else value.load()
    return value.source.late(indices)  # type: ignore[no-any-return, attr-defined]


def is_late(value: Const | None) -> bool:
    """Return whether the numbers of a constant depend on sizes, of which it is not made."""
    return depends(value) and not is_sizes(value)


def fold_late(node: ModelNode, inputs: Sequence[Const | None], opset: int) -> list[Const] | None:
    """Return the outputs of ``node``, of which the shapes are known and the numbers depend on sizes; None where the
    shapes depend on more.
    """
    for value in inputs:
        if value is not None and not depends(value):
            value.load()  # raises AbsentError, and tells a compiler that the numbers are needed
    found = _made(node, inputs) or _lowered(node, inputs, opset)
    if found is None:
        return None
    return [
        Const(name, shape, dtype, LateSource(node, tuple(inputs), opset, i))
        for i, (name, (shape, dtype)) in enumerate(zip(node.output, found, strict=False))
    ]


def _made(node: ModelNode, inputs: Sequence[Const | None]) -> list[tuple[Shape, str]] | None:
    """Return shape and type of the output of an operator that makes numbers of nothing but sizes."""
    values = [value for value in inputs if value is not None]
    if node.op_type == "ConstantOfShape" and is_sizes(values[0]):
        value = node.attrs.get("value")
        return [(tuple(_numbers(values[0]).tolist()), value.dtype if isinstance(value, Constant) else "f32")]
    if node.op_type == "Range" and len(values) == 3 and not any(map(is_late, values)):
        start, limit, step = (_numbers(value).item() for value in values)
        if not isinstance(step, Size) and step and {v.dtype for v in values} <= {"i64", "i32", "f32"}:
            whole = values[0].dtype != "f32"
            count = -((limit - start) // -step) if whole else math.ceil((limit - start) / step)
            return [((count if count > 0 else 0,), values[0].dtype)]
    return None


def _lowered(node: ModelNode, inputs: Sequence[Const | None], opset: int) -> list[tuple[Shape, str]] | None:
    """Return shapes and types of the outputs as lowering finds them for inputs that are computed at run time."""
    lowering = LOWERINGS.get(node.op_type)
    if lowering is None:
        return None
    graph = Graph()
    values: list[Value | None] = []
    try:
        for value in inputs:
            known = value is None or is_sizes(value) or (not depends(value) and value.nbytes <= OPERAND_BYTES)
            if value is None:
                values.append(None)
            elif known:  # a copy: the constant's tensor is one of another graph
                values.append(Const(value.name, value.shape, value.dtype, value.source))
            else:
                values.append(add_tensor(graph, value.name, value.shape, value.dtype))
        if not any(isinstance(value, int) for value in values):
            values[0] = add_tensor(graph, "", inputs[0].shape, inputs[0].dtype) if inputs[0] else None
        results = lowering(Context(graph, node, opset, values))
    except GraphError:
        return None
    shaped = [graph.tensors[v] if isinstance(v, int) else v for v in results]
    return [(tensor.shape, tensor.dtype) for tensor in shaped]


def _const(numbers: Array, dtype: str) -> Const:
    return sizes_const("", numbers, dtype)


def _numbers(value: Const) -> Array:
    if isinstance(value.source, SizesSource):
        return value.source.numbers
    return value.load().astype(object)


def _each(function: Callable[..., Any], *arrays: Array) -> Array:
    found = np.frompyfunc(function, len(arrays), 1)(*arrays)
    result = np.empty(np.shape(found), object)
    result[...] = found
    return result


def _moved(node: ModelNode, inputs: Sequence[Const | None], opset: int) -> list[Const] | None:
    moving = MOVES[node.op_type]
    if any(is_sizes(value) for value in inputs[moving:]) or not inputs[0]:
        return None
    values = [None if v is None else _numbers(v) if i < moving else v.load() for i, v in enumerate(inputs)]
    results = evaluate(node.op_type, dict(node.attrs), values, opset, len(node.output))
    dtype = inputs[0].dtype
    return [sizes_const(name, value.astype(object), dtype) for name, value in zip(node.output, results, strict=False)]


def _ends_within(inputs: Sequence[Const | None]) -> Sequence[Const | None]:
    """Return the inputs of a Slice, where starts and ends that lie behind all dimensions are the same always."""
    first = inputs[0]
    if first is None or any(isinstance(d, Size) for d in first.shape) or math.prod(first.shape) > SLICED_MAX:
        return inputs
    behind = max(first.shape, default=0)
    found = list(inputs)
    for i, value in enumerate(inputs[1:3], 1):
        if value is not None and is_sizes(value):
            numbers = _each(lambda v: behind if isinstance(v, Size) and v >= behind else v, _numbers(value))
            if not any(isinstance(v, Size) for v in numbers.flat):
                found[i] = array_const(value.name, numbers.astype(np.int64))
    return found


def _rounded(value: Any) -> Any:
    """Return a number as float32."""
    if isinstance(value, Size):
        return value.as_single()
    return float(np.float32(value))


def _computed(function: Callable[[Any, Any], Any], values: Sequence[Const]) -> Const | None:
    dtype = values[0].dtype
    if dtype in ("i64", "i32"):
        return _const(_each(function, *map(_numbers, values)), dtype)
    if dtype == "f32":
        return _const(_each(lambda a, b: _rounded(function(a, b)), *map(_numbers, values)), dtype)
    return None


def _reduced(node: ModelNode, values: Sequence[Const]) -> Const | None:
    """Return numbers combined along the axes that an attribute or the second input names."""
    numbers, own = _numbers(values[0]), node.attrs.get("axes")
    axes: list[int] = [int(a) for a in own] if isinstance(own, list) else []
    if len(values) > 1 and not depends(values[1]):
        axes = values[1].load().reshape(-1).tolist()
    elif len(values) > 1:
        return None
    if not axes and node.attrs.get("noop_with_empty_axes"):
        return None
    if not numbers.size or not all(-numbers.ndim <= a < numbers.ndim for a in axes):
        return None
    along = {a % numbers.ndim for a in axes} or set(range(numbers.ndim))
    shape = [1 if i in along else d for i, d in enumerate(numbers.shape)]
    if not node.attrs.get("keepdims", 1):
        shape = [d for i, d in enumerate(numbers.shape) if i not in along]
    combined = np.frompyfunc(_COMPUTES[_REDUCES[node.op_type]], 2, 1)
    for axis in along:
        numbers = combined.reduce(numbers, axis, keepdims=True)
    return _const(numbers.reshape(shape), values[0].dtype)


def _divided(node: ModelNode, values: Sequence[Const]) -> Const | None:
    """Return a quotient, or a remainder, of integers that are not negative."""
    a, b = map(_numbers, values)
    dtype = values[0].dtype
    if dtype == "f32" and node.op_type == "Div" and all(v > 0 for v in b.reshape(-1)):
        return _const(_each(lambda x, y: _rounded(x / y), a, b), dtype)
    if dtype not in ("i64", "i32") or node.attrs.get("fmod"):
        return None
    if any(v < 0 for v in a.reshape(-1)) or any(v <= 0 for v in b.reshape(-1)):
        return None
    return _const(_each(operator.floordiv if node.op_type == "Div" else operator.mod, a, b), dtype)


def _cast(value: Const, dtype: str) -> Const | None:
    numbers = _numbers(value)
    if dtype == value.dtype:
        return _const(numbers, dtype)
    if value.dtype in ("i64", "i32") and dtype in ("i64", "i32"):
        fits = dtype == "i64" or all(-(2**31) <= v < 2**31 for v in numbers.reshape(-1))
        return _const(numbers, dtype) if fits else None
    if value.dtype in ("i64", "i32") and dtype == "f32":
        return _const(_each(_rounded, numbers), dtype)
    if value.dtype == "f32" and dtype in ("i64", "i32") and all(0 <= v < 2**31 for v in numbers.reshape(-1)):
        return _const(_each(math.floor, numbers), dtype)
    return None
