"""Lines on standard error about what FlexNN does otherwise than onnxruntime: each once, above the logger's severity."""

from __future__ import annotations

import os
import sys

from flexnn.errors import printable

WARNING, ERROR = 2, 3
"""Numbers of onnxruntime's severities."""
_least = WARNING
_said: set[str] = set()


def say(line: str, severity: int = WARNING) -> None:
    """Print a line, once in a process."""
    if severity >= _least and line not in _said and sys.stderr is not None:
        _said.add(line)
        print(f"flexnn.ort: {printable(line)}", file=sys.stderr)


def set_default_logger_severity(severity: int) -> None:
    """Print lines from this severity on: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    global _least
    if not 0 <= severity <= 4:
        raise ValueError(f"Invalid default logger severity {severity}. Valid values: 0..4")
    _least = severity


def set_default_logger_verbosity(_: int) -> None:
    """Take a verbosity; there are no verbose lines."""


def stands_in() -> bool:
    """Return whether the program runs under ``flexnn exec``."""
    return bool(os.environ.get("FLEXNN_EXEC"))


def falls_back() -> bool:
    """Return whether models that FlexNN refuses go to an installed onnxruntime."""
    return os.environ.get("FLEXNN_EXEC") == "fallback"
