"""Printing for people: all text of the command line, which may name what is in a model, goes through here."""

from __future__ import annotations

import sys
from typing import TextIO

from flexnn.errors import printable


def escaped(text: str) -> str:
    """Return lines in which nothing acts on a terminal."""
    return "\n".join(map(printable, text.split("\n")))


def say(text: str, file: TextIO | None = None) -> None:
    """Print lines to ``file``; None: to standard output."""
    print(escaped(text), file=file or sys.stdout)


def write(text: str) -> None:
    """Write lines to standard output as they are, but for what acts on a terminal."""
    sys.stdout.write(escaped(text))
