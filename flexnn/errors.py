"""Errors that users catch: the base class of all, and those that several packages raise."""

from __future__ import annotations


class FlexNNError(Exception):
    """Base class of all errors that FlexNN raises on its own account. The message is one line that says what is wrong,
    where, and what helps.
    """


class CompileError(FlexNNError, ValueError):
    """A model that does not compile."""
