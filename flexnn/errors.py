"""Errors that users catch: the base class of all, and those that several packages raise; and text for people."""

from __future__ import annotations

TEXT_MAX = 2000
"""Most characters of a message: names in a file may be long."""
ERROR, DEFECT, NO_MEMORY = "error: ", "error: internal: ", "error: out of memory"
"""Beginnings of the line by which a process says what is wrong: with what it was given, in it, or with its memory."""


def printable(text: str, most: int = TEXT_MAX) -> str:
    """Return a line of text in which whatever a terminal would act on is escaped, as repr does; of a line longer than
    ``most`` the middle is left out.

    Names in a model are an author's, who may be an attacker: they may hold escape sequences.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    if len(text) > most:
        text = f"{text[: most * 3 // 4]} … {text[-most // 4 :]}"
    return text


def one_line(error: BaseException) -> str:
    """Return what an error says, with its notes, in one line."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename.replace("\n", "\\n") if isinstance(error.filename, str) else error.filename
        return f"{name}: {error.strerror}" if name else error.strerror
    return " ".join("; ".join((str(error), *getattr(error, "__notes__", ()))).split())


class FlexNNError(Exception):
    """Base class of all errors that FlexNN raises on its own account. The message is one line that says what is wrong,
    where, and what helps.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class CompileError(FlexNNError, ValueError):
    """A model that does not compile."""


class StateError(FlexNNError, ValueError):
    """Tokens beyond the capacity of a session's state, or a state that cannot be used; the state is as it was."""
