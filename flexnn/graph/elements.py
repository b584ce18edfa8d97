"""Elements: what binding knows of the numbers of small values that only a run has, such as the turn of a loop.

Each element is a number plus a whole number that a run finds out (its base), within bounds. So the difference of two
may be known where neither is, and with it how many elements a Slice picks. Comparisons know what they imply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count
from math import prod
from typing import Any

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .element import Bounds, Element, Truth
from .evaluate import evaluate
from .ir import DTYPES, Array, Graph, GraphError
from .lower import Const, Value, array_const, depends, is_sizes, sizes_const
from .model import ModelNode
from .size_fold import MOVES
from .stated import dtype_name

FEW = 64
"""Most elements of a value that are followed."""
WHOLE = {"i64": (-(2**63), 2**63 - 1), "i32": (-(2**31), 2**31 - 1), "f32": (-(2**24), 2**24), "bool": (0, 1)}
"""Types of followed values, and the least and the most between which their whole numbers are exact."""


class Elements:
    """Elements of the values of one binding."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[int, Array] = {}
        self._bases = count(1)

    def __bool__(self) -> bool:
        return bool(self._found)

    def bound(self, tensor: int, bounds: Bounds) -> None:
        """Follow a value whose elements lie within these bounds."""
        shape = self._graph.tensors[tensor].shape
        found = np.empty(len(bounds), object)
        found[:] = [self.between(least, most) for least, most in bounds]
        self._found[tensor] = found.reshape(shape)

    def of(self, value: Value | None) -> Array | None:
        """Return the elements of a value, of which some may be None; None where nothing is known."""
        if not isinstance(value, Const):
            return None if value is None else self._found.get(value)
        if value.dtype not in WHOLE or (depends(value) and not is_sizes(value)) or prod(value.shape) > FEW:
            return None
        numbers = value.source.numbers if is_sizes(value) else value.load()  # type: ignore[attr-defined]
        return _each(_constant, np.asarray(numbers).reshape(value.shape))

    def follow(self, node: ModelNode, inputs: Sequence[Value | None], results: list[Value], opset: int) -> list[Value]:
        """Return the results of a node; those of which all elements are known, as constants."""
        if not self._found and node.op_type not in _BOUNDED:
            return results
        if all(isinstance(value, Const) for value in results):  # what is looked at is a condition
            return results
        rule = _RULES.get(node.op_type) or (_moved if node.op_type in MOVES else None)
        if rule is None or not all(self._is_small(value) for value in results):
            return results
        try:
            found = rule(_Followed(self, node, inputs, opset, results))
        except (GraphError, ValueError, TypeError, IndexError):
            return results
        return [self._kept(v, e) for v, e in zip(results, found, strict=False)] + results[len(found) :]

    def _is_small(self, value: Value) -> bool:
        return self.dtype(value) in WHOLE and is_few(self.shape(value))

    def shape(self, value: Value | None) -> Any:
        """Return the shape of a value."""
        return value.shape if isinstance(value, Const) else self._graph.tensors[value or 0].shape

    def dtype(self, value: Value | None) -> str:
        """Return the type of a value."""
        return value.dtype if isinstance(value, Const) else self._graph.tensors[value or 0].dtype

    def _kept(self, value: Value, elements: Array | None) -> Value:
        if elements is None or isinstance(value, Const):
            return value
        tensor = self._graph.tensors[value]
        if elements.shape != tensor.shape:
            return value
        least, most = WHOLE[tensor.dtype]
        is_float = tensor.dtype == "f32"

        def is_held(e: Any) -> bool:
            return isinstance(e, Truth) or _is_within(e, least, most) or (is_float and _is_single(e))

        elements = _each(lambda e: e if is_held(e) else None, elements)
        known = [e for e in elements.reshape(-1) if isinstance(e, Element) and not e.base]
        if len(known) < elements.size:
            if any(e is not None for e in elements.reshape(-1)):
                self._found[value] = elements
            return value
        return offsets_const("", [e.offset for e in known], elements.shape, tensor.dtype)

    def _unknown(self, least: Any, most: Any) -> Element:
        return Element(next(self._bases), 0, least, most)

    def between(self, least: Any, most: Any) -> Element:
        """Return an element of which only the bounds are known."""
        if least is most or (type(least) is int and type(most) is int and least == most):
            return Element(0, least, least, least)
        return self._unknown(least, most)


def is_few(shape: Any) -> bool:
    """Return whether a value has few elements at all sizes."""
    return all(type(d) is int for d in shape) and prod(shape) <= FEW


def offsets_const(name: str, numbers: list[Any], shape: tuple[int, ...], dtype: str) -> Const:
    """Return a constant of numbers of which some may be sizes."""
    values = np.empty(len(numbers), object)
    values[:] = numbers
    if all(type(v) in (int, bool) for v in numbers):
        return array_const(name, values.astype(DTYPES[dtype]).reshape(shape))
    return sizes_const(name, values.reshape(shape), dtype)


@quick_dataclass(frozen=True, slots=True)
class _Followed:
    """A node whose inputs' elements are asked for."""

    elements: Elements
    node: ModelNode
    inputs: Sequence[Value | None]
    opset: int
    results: Sequence[Value]

    def of(self, i: int) -> Array:
        """Return the elements of an input. Raises GraphError where nothing is known."""
        found = self.elements.of(self.inputs[i] if i < len(self.inputs) else None)
        if found is None:
            raise GraphError("nothing is known")
        return found

    def of_any(self, i: int) -> Array:
        """Return the elements of an input, any integers where nothing is known. Raises GraphError for others."""
        value = self.inputs[i]
        if self.dtype(i) not in ("i64", "i32") or not is_few(self.elements.shape(value)):
            return self.of(i)
        found = self.elements.of(value)
        if found is None:
            found = np.empty(self.elements.shape(value), object)
        least, most = WHOLE[self.dtype(i)]
        return _each(lambda e: e if isinstance(e, Element) else self.elements.between(least, most), found)

    def all(self) -> list[Array]:
        """Return the elements of all inputs, as of_any does."""
        return [self.of_any(i) for i in range(len(self.inputs))]

    def dtype(self, i: int) -> str:
        """Return the type of an input."""
        return self.elements.dtype(self.inputs[i])


Rule = Callable[[_Followed], list[Array | None]]
_BOUNDED = frozenset(("ArgMax", "ArgMin", "Mod", "Clip", "Max", "Min"))
"""Operators whose outputs have bounds though nothing may be known of their inputs."""


def _each(function: Callable[..., Any], *arrays: Array) -> Array:
    found = np.frompyfunc(function, len(arrays), 1)(*arrays)
    result = np.empty(np.shape(found), object)
    result[...] = found
    return result


def _constant(number: Any) -> Element | None:
    if isinstance(number, bool | np.bool_):
        number = int(number)
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, float):
        if not number.is_integer():
            return None
        number = int(number)
    return Element(0, number, number, number)


def _is_within(e: Any, least: int, most: int) -> bool:
    return isinstance(e, Element) and bool(least <= e.least) and bool(e.most <= most)


def _is_single(e: Any) -> bool:
    """Return whether an element is a known number that float32 has, though not all beside it."""
    return isinstance(e, Element) and not e.base and type(e.offset) is int and float(np.float32(e.offset)) == e.offset


def _added(f: _Followed) -> Callable[[Any, Any], Any]:
    def add(a: Any, b: Any) -> Any:
        if isinstance(a, Truth) or isinstance(b, Truth):
            truth, other = (a, b) if isinstance(a, Truth) else (b, a)
            return truth if isinstance(other, Element) and not other.base and other.offset == 0 else None
        if a is None or b is None:
            return None
        if not b.base:
            return a.plus(b.offset)
        if not a.base:
            return b.plus(a.offset)
        return f.elements.between(a.least + b.least, a.most + b.most)

    return add


def _subtracted(f: _Followed) -> Callable[[Any, Any], Any]:
    def subtract(a: Any, b: Any) -> Any:
        if not isinstance(a, Element) or not isinstance(b, Element):
            return None
        if a.base == b.base:
            return _constant(a.offset - b.offset)
        return f.elements.between(a.least - b.most, a.most - b.least) if b.base else a.plus(-b.offset)

    return subtract


def _multiplied(f: _Followed) -> Callable[[Any, Any], Any]:
    def multiply(a: Any, b: Any) -> Any:
        if not isinstance(a, Element) or not isinstance(b, Element) or (a.base and b.base):
            return None
        a, b = (b, a) if b.base else (a, b)
        if b.offset == 1 or not a.base:
            return a if b.offset == 1 else _constant(a.offset * b.offset)
        ends = (a.least * b.offset, a.most * b.offset)
        return f.elements.between(*(ends if b.offset >= 0 else ends[::-1]))

    return multiply


def _lesser(f: _Followed) -> Callable[[Any, Any], Any]:
    def lesser(a: Any, b: Any) -> Any:
        if not isinstance(a, Element) or not isinstance(b, Element):
            return None
        if a.most <= b.least or (a.base == b.base and a.offset <= b.offset):
            return a
        if b.most <= a.least or a.base == b.base:
            return b
        least = a.least if a.least <= b.least else b.least
        return f.elements.between(least, a.most if a.most <= b.most else b.most)

    return lesser


def _larger(f: _Followed) -> Callable[[Any, Any], Any]:
    def larger(a: Any, b: Any) -> Any:
        if not isinstance(a, Element) or not isinstance(b, Element):
            return None
        if a.least >= b.most or (a.base == b.base and a.offset >= b.offset):
            return a
        if b.least >= a.most or a.base == b.base:
            return b
        least = a.least if a.least >= b.least else b.least
        return f.elements.between(least, a.most if a.most >= b.most else b.most)

    return larger


def _divided(f: _Followed) -> Callable[[Any, Any], Any]:
    def divide(a: Any, b: Any) -> Any:
        if not isinstance(a, Element) or not isinstance(b, Element) or b.base or not b.offset > 0 or not a.least >= 0:
            return None
        return a if b.offset == 1 else f.elements.between(a.least // b.offset, a.most // b.offset)

    return divide


def _remainder(f: _Followed) -> Callable[[Any, Any], Any]:
    def remain(a: Any, b: Any) -> Any:
        if not isinstance(a, Element) or not isinstance(b, Element) or b.base or not b.offset > 0:
            return None
        return a if a.least >= 0 and a.most < b.offset else f.elements.between(0, b.offset - 1)

    return remain


def _less(a: Any, b: Any) -> Any:
    """Compare a < b."""
    if not isinstance(a, Element) or not isinstance(b, Element):
        return None
    if a.most < b.least or (a.base == b.base and a.offset < b.offset):
        return _constant(1)
    if a.least >= b.most or a.base == b.base:
        return _constant(0)
    bounds = []
    if a.base:
        bounds.append((a.base, None, b.most - 1 - a.offset))
    if b.base:
        bounds.append((b.base, a.least + 1 - b.offset, None))
    return Truth(tuple(bounds))


def _at_most(a: Any, b: Any) -> Any:
    return _less(a, b.plus(1)) if isinstance(b, Element) else None


def _both(a: Any, b: Any) -> Any:
    known = [e.offset for e in (a, b) if isinstance(e, Element) and not e.base]
    if 0 in known:
        return _constant(0)
    if len(known) == 2:
        return _constant(1)
    return Truth(tuple(bound for e in (a, b) if isinstance(e, Truth) for bound in e.bounds))


_RULES: dict[str, Rule] = {
    "Add": lambda f: [_each(_added(f), f.of(0), f.of(1))],
    "Sub": lambda f: [_each(_subtracted(f), f.of(0), f.of(1))],
    "Mul": lambda f: [_each(_multiplied(f), f.of(0), f.of(1))],
    "Min": lambda f: [reduce(lambda a, b: _each(_lesser(f), a, b), f.all())],
    "Max": lambda f: [reduce(lambda a, b: _each(_larger(f), a, b), f.all())],
    "Less": lambda f: [_each(_less, f.of(0), f.of(1))],
    "Greater": lambda f: [_each(_less, f.of(1), f.of(0))],
    "LessOrEqual": lambda f: [_each(_at_most, f.of(0), f.of(1))],
    "GreaterOrEqual": lambda f: [_each(_at_most, f.of(1), f.of(0))],
    "Floor": lambda f: [f.of(0)],
    "Ceil": lambda f: [f.of(0)],
    "Round": lambda f: [f.of(0)],
}


def _rule(*operators: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(operators, rule))
        return rule

    return register


@_rule("And")
def _and(f: _Followed) -> list[Array | None]:
    sides = [f.elements.of(f.inputs[i]) for i in (0, 1)]
    given = [np.array(None, object) if side is None else side for side in sides]
    return [_each(_both, *given)]


@_rule("Where")
def _where(f: _Followed) -> list[Array | None]:
    def pick(truth: Any, a: Any, b: Any) -> Any:
        if isinstance(truth, Element) and not truth.base:
            return a if truth.offset else b
        if not isinstance(a, Element) or not isinstance(b, Element):
            return None
        return f.elements.between(a.least if a.least <= b.least else b.least, a.most if a.most >= b.most else b.most)

    condition, *sides = (f.elements.of(value) for value in f.inputs)
    if all(side is None for side in sides):
        return []
    return [_each(pick, *(np.array(None, object) if value is None else value for value in (condition, *sides)))]


@_rule("Div")
def _div(f: _Followed) -> list[Array | None]:
    return [_each(_divided(f), f.of(0), f.of(1))] if f.dtype(0) in ("i64", "i32") else []


@_rule("Mod")
def _mod(f: _Followed) -> list[Array | None]:
    if f.node.attrs.get("fmod") or f.dtype(0) not in ("i64", "i32"):
        return []
    return [_each(_remainder(f), f.of_any(0), f.of(1))]


@_rule("Clip")
def _clip(f: _Followed) -> list[Array | None]:
    if f.opset < 11:
        return []
    found = f.of_any(0)
    for i, rule in ((1, _larger(f)), (2, _lesser(f))):
        if i < len(f.inputs) and f.inputs[i] is not None:
            found = _each(rule, found, f.of_any(i))
    return [found]


@_rule("Neg")
def _neg(f: _Followed) -> list[Array | None]:
    subtract = _subtracted(f)
    return [_each(lambda e: subtract(_constant(0), e), f.of(0))]


@_rule("Cast")
def _cast(f: _Followed) -> list[Array | None]:
    """Whole numbers stay what they are; a comparison may be a number in between."""
    to = f.node.attrs.get("to")
    dtype = dtype_name(to, "") if isinstance(to, int) else ""
    if dtype not in WHOLE or f.dtype(0) not in WHOLE:
        return []
    return [_each(_truth, f.of(0))] if dtype == "bool" else [f.of(0)]


def _truth(e: Any) -> Any:
    if isinstance(e, Element):
        return None if e.base else _constant(bool(e.offset))
    return e


@_rule("ArgMax", "ArgMin")
def _index(f: _Followed) -> list[Array | None]:
    axis = f.node.attrs.get("axis", 0)
    assert isinstance(axis, int)
    most = f.elements.shape(f.inputs[0])[axis] - 1
    return [_each(lambda _: f.elements.between(0, most), np.zeros(f.elements.shape(f.results[0])))]


@_rule("Range")
def _range(f: _Followed) -> list[Array | None]:
    start, step = f.of(0).item(), f.of(2).item()
    if not isinstance(start, Element) or not isinstance(step, Element) or step.base:
        return []
    (count_,) = f.elements.shape(f.results[0])
    found = np.empty(count_, object)
    found[:] = [start.plus(step.offset * i) for i in range(count_)]
    return [found]


def _moved(f: _Followed) -> list[Array | None]:
    """Move elements as the node does."""
    moving = MOVES[f.node.op_type]
    values: list[Array | None] = []
    for i, value in enumerate(f.inputs):
        if value is None:
            values.append(None)
        elif i < moving:
            found = f.elements.of(value)
            values.append(_nothing(f.elements.shape(value)) if found is None else found)
        elif isinstance(value, Const) and not depends(value):
            values.append(value.load())
        else:
            return []
    if not any(e is not None for value in values[:moving] if value is not None for e in value.reshape(-1)):
        return []
    return list(evaluate(f.node.op_type, dict(f.node.attrs), values, f.opset, len(f.results)))


FOLLOWED = frozenset(_RULES) - {"ArgMax", "ArgMin"} | MOVES.keys() | {"Shape", "Size"}
"""Operators that make followed values of others."""


def _nothing(shape: Any) -> Array:
    if not is_few(shape):
        raise GraphError("there may be many elements")
    return np.empty(shape, object)
