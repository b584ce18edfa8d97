"""Sizes that are numbers and expressions at once: what one binding does to them is written down and done again.

A trail has numbers that are given, such as the dimensions of inputs. Each stands for any other number: what is computed
of it is an operation of the trail, and what is decided by it a condition. Binding (graph/bind.py) and the passes work
on such sizes as on integers. With other numbers they would do the same as long as all conditions have the same
outcome, so the operations alone give the sizes that they would find.

A size is no ``int``: whatever looks at its number must ask, and then the number itself is a condition. So nothing can
depend on a size without the trail knowing.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from flexnn import _core

from . import attributes
from .ir import Array
from .replay import Number, Replay

Function = Callable[[Any, Any], Any]


class SizeError(ValueError):
    """A size is used where it means nothing any more."""


class Trail:
    """Operations on numbers that are given, and the conditions under which they hold for other numbers."""

    def __init__(self) -> None:
        self.values: list[Number] = []
        """The numbers: those given, constants, and results of operations."""
        self.operations: list[tuple[Function, int, int, int]] = []
        """(function, operands, result), the last three as indices of numbers."""
        self.conditions: dict[tuple[Function, int, int], bool] = {}
        """Outcomes of comparisons of two numbers."""
        self.preferences: dict[tuple[Function, int, int], bool] = {}
        """Outcomes of those that decide which of several right ways is the best one."""
        self.idle: dict[tuple[Function, int, int], bool] = {}
        """Outcomes of those that decide nothing, since all that follows is right and no way is better."""
        self.is_preferring = False
        """Whether such comparisons are made now."""
        self.matters = True
        """Whether one of these ways is better than others."""
        self.givens: list[int] = []
        """Indices of the numbers that are given, in order."""
        self.is_closed = False
        """Whether nothing may be computed or decided any more."""
        self.known: dict[tuple[Function, int, int], Any] = {}
        """Results of functions of a number, by index, and an integer."""
        self._constants: dict[tuple[type, Number], int] = {}
        self._results: dict[tuple[Function, int, int], Size] = {}

    def given(self, value: int) -> Any:
        """Return a number that may be another one."""
        self.givens.append(len(self.values))
        return self._new(value)

    def _new(self, value: Number) -> Size:
        self.values.append(value)
        return Size(self, len(self.values) - 1, value)

    def index(self, value: Any) -> int:
        """Return the index of a size, or of a number that is the same always."""
        if type(value) is Size:
            if value.trail is not self:
                raise SizeError("sizes of two trails meet")
            return value.index
        key = type(value), value
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = len(self.values)
            self.values.append(value)
        return found

    def indices(self, numbers: Array) -> Array:
        """Return the index of each number."""
        return np.array([self.index(v) for v in numbers.reshape(-1)], np.int64).reshape(numbers.shape)

    def computed(self, function: Function, a: Any, b: Any) -> Any:
        """Return the size that ``function`` makes of two numbers."""
        key = function, self.index(a), self.index(b)
        found = self._results.get(key)
        if found is None:
            a, b = self.values[key[1]], self.values[key[2]]
            if function in _OF_INTEGERS and (type(a) is float or type(b) is float):
                raise SizeError("a float is divided without rest")
            value = function(a, b)
            found = self._results[key] = self._new(value)
            self.operations.append((*key, found.index))
        return found

    def decided(self, function: Function, a: Any, b: Any) -> bool:
        """Return the outcome of a comparison, a condition or a preference from now on."""
        key = function, self.index(a), self.index(b)
        outcome = self.conditions.get(key)
        if outcome is None:
            if self.is_closed:
                raise SizeError("a size is used after its trail was closed")
            outcome = bool(function(self.values[key[1]], self.values[key[2]]))
            if not self.is_preferring:
                self.conditions[key] = outcome
            else:
                (self.preferences if self.matters else self.idle)[key] = outcome
        return outcome

    def forget(self) -> None:
        """Drop what was found before: sizes know their trail, and would be garbage in circles with it."""
        self.known.clear()
        self.idle.clear()
        self._results.clear()

    def replay(self) -> Replay:
        """Close the trail; return what it leaves. Raises SizeError where 64 bits do not hold a number."""
        self.is_closed = True
        numbers = {function: _core.TRAIL_FUNCTIONS.index(name) for name, function in _FUNCTIONS.items()}
        at_a, at_b = _core.TRAIL_FLOATS
        is_float = [type(value) is float for value in self.values]

        def row(function: Function, a: int, b: int, last: int) -> tuple[int, int, int, int]:
            return numbers[function] | at_a * is_float[a] | at_b * is_float[b], a, b, last

        operations = [row(*found) for found in self.operations]
        conditions = [row(*found, outcome) for found, outcome in self.conditions.items()]
        preferred = ((k, outcome) for k, outcome in self.preferences.items() if k not in self.conditions)
        preferences = [row(*found, outcome) for found, outcome in preferred]
        made = {result for *_, result in self.operations}
        words = np.zeros(len(self.values), np.int64)
        try:
            for i, value in enumerate(self.values):
                if i not in made:
                    words[i] = np.float64(value).view(np.int64) if is_float[i] else value
        except OverflowError:
            raise SizeError("a number is too large") from None
        return Replay(
            np.array(operations, np.int32).reshape(-1, 4),
            np.array(conditions, np.int32).reshape(-1, 4),
            np.array(preferences, np.int32).reshape(-1, 4),
            words,
            np.flatnonzero(is_float).astype(np.int32),
            np.array(self.givens, np.int32),
        )


def _floor(a: Number, _: Number) -> int:
    return math.floor(a)


def _ceil(a: Number, _: Number) -> int:
    return math.ceil(a)


def _single(a: Number, _: Number) -> float:
    return float(np.float32(a))


def _below(a: Number, b: Number) -> int:
    return int(a < b)


def computed_of_arrays(function: Function, a: Any, b: Any) -> Any:
    """Return what an operation of a trail makes of arrays of numbers; what is divided by 0 becomes any number."""
    return _OF_ARRAYS.get(function, function)(a, b)


_OF_ARRAYS: dict[Function, Function] = {
    _floor: lambda a, _: np.floor(a).astype(np.int64),
    _ceil: lambda a, _: np.ceil(a).astype(np.int64),
    _single: lambda a, _: np.float64(np.float32(a)),
    _below: lambda a, b: np.less(a, b).astype(np.int64),
}
"""Functions that take arrays, where others than these do."""

_FUNCTIONS: dict[str, Function] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "truediv": operator.truediv, "floor": _floor, "ceil": _ceil, "single": _single, "below": _below, "eq": operator.eq,
    "lt": operator.lt, "le": operator.le,
}  # fmt: skip
"""Functions by the names that C gives them."""
_OF_INTEGERS = (operator.floordiv, operator.mod)
_NUMBERS = (int, float, bool)


def is_size(value: object) -> bool:
    """Return whether a number is a size."""
    return type(value) is Size


@contextlib.contextmanager
def preferring(numbers: Iterable[object], *, matters: bool = True) -> Iterator[None]:
    """Let comparisons of sizes like ``numbers`` be preferences: whatever their outcome is, what follows is right. Not
    even that where no outcome is better than another, so that it does not matter.
    """
    trail = next((number.trail for number in numbers if type(number) is Size), None)
    if trail is None:
        yield
        return
    before = trail.is_preferring, trail.matters
    trail.is_preferring, trail.matters = True, matters
    try:
        yield
    finally:
        trail.is_preferring, trail.matters = before


def is_same(a: int, b: int, *, matters: bool = True) -> bool:
    """Return whether two sizes are the same, where all that follows if they are not is right if they are, too: only
    that they are is a condition. ``matters``: that they are not is a preference.
    """
    with preferring((a, b), matters=matters):
        if a != b:
            return False
    return a == b


def least(a: Any, b: Any) -> Any:
    """Return the lesser of two numbers; with a size among them without a condition, whichever it is."""
    return _chosen(a, b, a, b)


def most(a: Any, b: Any) -> Any:
    """Return the larger of two numbers, as ``least`` does."""
    return _chosen(a, b, b, a)


def _chosen(a: Any, b: Any, below: Any, other: Any) -> Any:
    """Return ``below`` where ``a`` is less than ``b``, else ``other``."""
    sizes = [number for number in (a, b) if type(number) is Size]
    if not sizes or (len(sizes) > 1 and a.index == b.index):
        return below if a < b else other
    is_less = sizes[0].trail.computed(_below, a, b)
    return below * is_less + other * (1 - is_less)  # exact, as one part is 0


def _plain(value: object) -> object:
    """Return a number of numpy as one of Python."""
    return value.item() if isinstance(value, (np.integer, np.floating, np.bool_)) else value


class Size:
    """A number of a trail. Operators make others, comparisons conditions; any other use makes its value one."""

    __slots__ = ("index", "trail", "value")

    def __init__(self, trail: Trail, index: int, value: Number) -> None:
        self.trail, self.index, self.value = trail, index, value

    @property
    def pinned(self) -> Number:
        """The number itself, which is the condition from now on."""
        self.trail.decided(operator.eq, self, self.value)
        return self.value

    # ---- what makes other sizes ----

    def _with(self, function: Function, other: Any, *, swapped: bool = False) -> Any:
        kind = type(other)
        if kind is Size:
            a, b = (other, self) if swapped else (self, other)
            return self.trail.computed(function, a, b)
        if kind is int and not swapped:
            known = self.trail.known
            found = known.get((function, self.index, other))
            if found is None:
                found = known[function, self.index, other] = self.trail.computed(function, self, other)
            return found
        other = _plain(other)
        if type(other) not in _NUMBERS:
            return NotImplemented
        if type(other) is bool:
            other = int(other)
        a, b = (other, self) if swapped else (self, other)
        return self.trail.computed(function, a, b)

    def __add__(self, other: object) -> Any:
        return self if type(other) is int and not other else self._with(operator.add, other)

    __radd__ = __add__

    def __mul__(self, other: object) -> Any:
        if type(other) is int and other == 1:
            return self
        return 0 if type(other) is int and not other and type(self.value) is int else self._with(operator.mul, other)

    __rmul__ = __mul__

    def __sub__(self, other: object) -> Any:
        if type(other) is Size and other.index == self.index and type(self.value) is int:
            return 0
        return self if type(other) is int and not other else self._with(operator.sub, other)

    def __rsub__(self, other: object) -> Any:
        return self._with(operator.sub, other, swapped=True)

    def __floordiv__(self, other: object) -> Any:
        if type(other) is int and other == 1 and type(self.value) is int:
            return self
        return self._with(operator.floordiv, other)

    def __rfloordiv__(self, other: object) -> Any:
        return self._with(operator.floordiv, other, swapped=True)

    def __mod__(self, other: object) -> Any:
        return self._with(operator.mod, other)

    def __rmod__(self, other: object) -> Any:
        return self._with(operator.mod, other, swapped=True)

    def __truediv__(self, other: object) -> Any:
        return self._with(operator.truediv, other)

    def __rtruediv__(self, other: object) -> Any:
        return self._with(operator.truediv, other, swapped=True)

    def __neg__(self) -> Any:
        return self._with(operator.sub, 0, swapped=True)

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __floor__(self) -> Any:
        return self if type(self.value) is int else self._with(_floor, 0)

    def __ceil__(self) -> Any:
        return self if type(self.value) is int else self._with(_ceil, 0)

    def below(self, limit: int) -> Any:
        """Return 1 where the number is less than ``limit``, else 0."""
        return self._with(_below, limit)

    def as_single(self) -> Any:
        """Return the number as float32 holds it."""
        return self._with(_single, 0)

    # ---- what decides ----

    def _decides(self, function: Function, other: Any) -> Any:
        kind = type(other)
        if kind is int:
            if self.trail.is_preferring:
                return self.trail.decided(function, self, other)
            known = self.trail.known
            found = known.get((function, self.index, other))
            if found is None:
                found = known[function, self.index, other] = self.trail.decided(function, self, other)
            return found
        if kind is Size:
            if other.index == self.index:
                return function is not operator.lt
            return self.trail.decided(function, self, other)
        other = _plain(other)
        if type(other) not in _NUMBERS:
            return NotImplemented
        return self.trail.decided(function, self, other)

    def __eq__(self, other: object) -> Any:
        return self._decides(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        equal = self._decides(operator.eq, other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: object) -> Any:
        return self._decides(operator.lt, other)

    def __le__(self, other: object) -> Any:
        return self._decides(operator.le, other)

    def __gt__(self, other: object) -> Any:
        less = self._decides(operator.le, other)
        return less if less is NotImplemented else not less

    def __ge__(self, other: object) -> Any:
        less = self._decides(operator.lt, other)
        return less if less is NotImplemented else not less

    def __bool__(self) -> bool:
        return not self.trail.decided(operator.eq, self, 0)

    # ---- what needs the number itself ----

    def __index__(self) -> int:
        if type(self.value) is not int:
            raise TypeError("a float is no index")
        return int(self.pinned)

    def __int__(self) -> int:
        return int(self.pinned)

    def __float__(self) -> float:
        return float(self.pinned)

    def __hash__(self) -> int:
        return hash(self.pinned)

    def __repr__(self) -> str:
        return repr(self.pinned)

    def __format__(self, spec: str) -> str:
        return format(self.pinned, spec)

    def __reduce__(self) -> Any:
        raise TypeError("a size cannot leave its trail")


attributes.INTEGERS.add(Size)
attributes.FLOATS.add(Size)
