"""What may stand behind an option: a function for each kind, ArgumentTypeError for what is not of it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

from flexnn import units
from flexnn.session import THREADS_MAX


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return convert


size = _argument(units.parse_bytes)
size_per_second = _argument(lambda text: units.parse_bytes(text.removesuffix("/s")))
shape = _argument(units.parse_shape)
groups = _argument(units.parse_groups)


def positive(text: str) -> int:
    """1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def count(text: str) -> int:
    """0 or more."""
    return 0 if text == "0" else positive(text)


def threads(text: str) -> int:
    """1 to THREADS_MAX."""
    if positive(text) > THREADS_MAX:
        raise ArgumentTypeError(f"{text} threads are more than {THREADS_MAX}")
    return int(text)


def share(text: str) -> float:
    """0 to 10, where 1 is the whole."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 10:
        raise ArgumentTypeError(f"{text!r} is not a share like 0.1")
    return number
