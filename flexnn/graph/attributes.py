"""Attributes of nodes: what values are legal, and reading them with their type; and numbers and names of files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from flexnn.quick_dataclass import quick_dataclass

from .ir import RANK_MAX, Attr, GraphError, Node

INT_MAX = 2**31 - 1
NAME_MAX = 4096
FLOAT_MAX = 3.4028234663852886e38
INTEGERS: set[type] = {int}
"""Types of integers: a size of a trail is one, too (graph/sizes.py)."""
FLOATS: set[type] = {float}
"""Types of floats."""


class Int(NamedTuple):
    """An integer in [low, high]."""

    low: int = 0
    high: int = INT_MAX

    def accepts(self, value: Attr) -> bool:
        """Whether ``value`` is legal."""
        return type(value) in INTEGERS and self.low <= value <= self.high  # type: ignore[operator]


@quick_dataclass(frozen=True, slots=True, eq=False)
class Ints:
    """A list of integers in [low, high]; ``count`` of them, or at most RANK_MAX."""

    count: int = -1
    low: int = 0
    high: int = INT_MAX

    def accepts(self, value: Attr) -> bool:
        """Whether ``value`` is legal."""
        if type(value) is not list or (len(value) != self.count if self.count >= 0 else len(value) > RANK_MAX):
            return False
        return all(type(v) in INTEGERS and self.low <= v <= self.high for v in value)


class Float(NamedTuple):
    """A number that float32 can hold; infinities too, but no NaN."""

    def accepts(self, value: Attr) -> bool:
        """Whether ``value`` is legal."""
        return type(value) in FLOATS and (abs(value) <= FLOAT_MAX or abs(value) == math.inf)  # type: ignore[arg-type]


class Enum(NamedTuple):
    """One of the names of an enumeration of params.h."""

    names: tuple[str, ...]

    def accepts(self, value: Attr) -> bool:
        """Whether ``value`` is legal."""
        return type(value) is str and value in self.names


Spec = Int | Ints | Float | Enum


def node_error(node: Node, message: str) -> GraphError:
    """The error that says ``message`` of a node."""
    return GraphError(f"node {node.name!r} ({node.op}): {message}")


def ints_attr(node: Node, name: str) -> list[int]:
    """An attribute that ``check`` knows to be a list of integers."""
    value = node.attrs[name]
    assert isinstance(value, list)
    return value


def int_attr(node: Node, name: str) -> int:
    """An attribute that ``check`` knows to be an integer."""
    value = node.attrs[name]
    assert type(value) in INTEGERS
    return value  # type: ignore[return-value]


def float_attr(node: Node, name: str) -> float:
    """An attribute that ``check`` knows to be a float."""
    value = node.attrs[name]
    assert type(value) in FLOATS
    return value  # type: ignore[return-value]


def row_of(row: Any, fields: tuple[str, ...]) -> list[Any]:
    """Return ``row``, which must be a list of these fields. Raises ValueError."""
    if not isinstance(row, list) or len(row) != len(fields):
        raise ValueError(f"the row must have the fields {', '.join(fields)}")
    return row


def int_in(value: Any, low: int, high: int) -> int:
    """Return ``value``, which must be an integer in [low, high]. Raises ValueError."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError("a number is missing or out of range")
    return value


def ints_in(values: Any, low: int, high: int, most: int) -> list[int]:
    """Return ``values``, which must be a list of at most ``most`` integers in [low, high]. Raises ValueError."""
    if not isinstance(values, list) or len(values) > most:
        raise ValueError("not a list, or too long")
    for value in values:
        if type(value) is not int or not low <= value <= high:
            raise ValueError("a number is missing or out of range")
    return list(values)


def columns_of(rows: Any, fields: Sequence[str], most: int) -> list[tuple[Any, ...]]:
    """Return the columns of ``rows``, which must be a list of at most ``most`` lists of these fields. Raises
    ValueError.

    What a file has many of is checked by columns: in a fifth of the time that it takes one by one.
    """
    if not isinstance(rows, list) or len(rows) > most:
        raise ValueError("not a list, or too long")
    if not {*map(type, rows)} <= {list} or not {*map(len, rows)} <= {len(fields)}:
        raise ValueError(f"a row must have the fields {', '.join(fields)}")
    return list(zip(*rows, strict=True)) or [()] * len(fields)


def check_ints(values: Sequence[Any], low: int, high: int) -> None:
    """Check that all are integers in [low, high]. Raises ValueError."""
    if values and ({*map(type, values)} != {int} or not low <= min(values) <= max(values) <= high):
        raise ValueError("a number is missing or out of range")


def check_lists(values: Sequence[Any], low: int, high: int, most: int) -> list[int]:
    """Check that all are lists of at most ``most`` integers in [low, high]; return all integers. Raises ValueError."""
    if not {*map(type, values)} <= {list} or max(map(len, values), default=0) > most:
        raise ValueError("not a list, or too long")
    flat = list(chain.from_iterable(values))
    check_ints(flat, low, high)
    return flat


def check_names(values: Sequence[Any]) -> None:
    """Check that all are texts of at most NAME_MAX characters. Raises ValueError."""
    if not {*map(type, values)} <= {str} or max(map(len, values), default=0) > NAME_MAX:
        raise ValueError("a name is not text, or too long")


def name_of(value: Any) -> str:
    """Return ``value``, which must be a text of at most NAME_MAX characters. Raises ValueError."""
    if not isinstance(value, str) or len(value) > NAME_MAX:
        raise ValueError("a name is not text, or too long")
    return value
