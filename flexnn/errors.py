"""Errors that users catch: the base of all, and those that more than one room raises."""

from __future__ import annotations


class FlexNNError(Exception):
    """Base of every error that FlexNN raises on purpose; the message is one line that says what, where and what
    would help.
    """


class CompileError(FlexNNError, ValueError):
    """A model that does not compile."""
