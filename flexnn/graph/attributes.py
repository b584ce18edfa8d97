"""Attributes of nodes: what values are legal, and reading them with their type; and numbers and names of files."""

from __future__ import annotations

import math
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


def name_of(value: Any) -> str:
    """Return ``value``, which must be a text of at most NAME_MAX characters. Raises ValueError."""
    if not isinstance(value, str) or len(value) > NAME_MAX:
        raise ValueError("a name is not text, or too long")
    return value
