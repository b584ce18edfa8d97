"""Values of options: a parser for each kind, which raises ArgumentTypeError for text that is not of it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

from flexnn import _core, units

NUMBER_MAX = 10**9
KV_HELP = "type of keys and values in the state: f16 (default), f32, or s8, which takes about half and is less exact"


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return convert


def _memory(text: str) -> str | int:
    if not units.asks_system(text):
        return units.parse_bytes(text)
    from flexnn.system.asked import asked

    asked(text)
    return text


size = _argument(units.parse_bytes)
memory = _argument(_memory)
size_per_second = _argument(lambda text: units.parse_bytes(text.removesuffix("/s")))
shape = _argument(units.parse_shape)
groups = _argument(units.parse_groups)


def _reduction(text: str) -> tuple[str, str]:
    from flexnn.graph.reductions import parse_named

    return parse_named(text)


reduction = _argument(_reduction)


def _setting(text: str) -> tuple[str, list[float]]:
    name, equals, given = text.rpartition("=")
    words = {"true": 1, "false": 0}
    try:
        if not equals or not name:
            raise ValueError
        parts = [part.strip().lower() for part in given.split(",")]
        return name, [words[part] if part in words else _number(part) for part in parts]
    except ValueError:
        raise ValueError(f"not an input: {text!r}; write NAME=NUMBER, or NAME=NUMBER,NUMBER,…") from None


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


setting = _argument(_setting)


def positive(text: str) -> int:
    """Parse a number from 1."""
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        raise ArgumentTypeError(f"{text[:40]!r} is not a positive number")
    if len(text.lstrip("0")) > len(str(NUMBER_MAX)) or int(text) > NUMBER_MAX:
        raise ArgumentTypeError(f"{text[:40]} is too many; at most {NUMBER_MAX} are possible")
    return int(text)


def count(text: str) -> int:
    """Parse a number from 0."""
    return 0 if text == "0" else positive(text)


def threads(text: str) -> int:
    """Parse a number from 1 to the most that the engine takes."""
    if positive(text) > _core.MAX_THREADS:
        raise ArgumentTypeError(f"{text} is too many; at most {_core.MAX_THREADS} threads are possible")
    return int(text)


def fraction(text: str) -> float:
    """Parse a fraction from 0 to 10."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 10:
        raise ArgumentTypeError(f"{text!r} is not a fraction like 0.1")
    return number
