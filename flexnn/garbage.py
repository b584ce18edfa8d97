"""No collections of garbage while a large graph is read, compiled or planned: they walk all objects of the process, and
find nothing. Nor right after it: what was made counts as old then, as a first collection of it would hold Ctrl-C up.
"""

from __future__ import annotations

import gc
from types import TracebackType

NODES = 4000
"""Nodes from which collecting costs up to a fifth of planning, and a third of compiling."""


class Uncollected:
    """Keeps the collector of garbage from running by itself while something is done with a graph of many nodes."""

    __slots__ = ("_is_paused",)

    def __init__(self, nodes: int = NODES) -> None:
        self._is_paused = nodes >= NODES and gc.isenabled()

    def __enter__(self) -> None:
        if self._is_paused:
            try:
                gc.disable()
            except BaseException:  # Ctrl-C, right after it
                gc.enable()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_paused:
            try:
                _age()
            finally:
                gc.enable()


def _age() -> None:
    """Let all objects count as old, without a look at them. Not where the program keeps some from being looked at."""
    if not gc.get_freeze_count():
        try:
            gc.freeze()
        finally:
            gc.unfreeze()
