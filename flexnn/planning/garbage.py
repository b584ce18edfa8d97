"""No collections of garbage while a large graph is planned: they walk all objects of the process, and find nothing."""

from __future__ import annotations

import gc
from types import TracebackType

from flexnn.graph.ir import Graph

NODES = 4000
"""Nodes from which collecting costs up to a fifth of planning."""


class Uncollected:
    """Keeps the collector of garbage from running by itself while a graph of many nodes is planned."""

    __slots__ = ("_is_paused",)

    def __init__(self, graph: Graph) -> None:
        self._is_paused = len(graph.nodes) >= NODES and gc.isenabled()

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
            gc.enable()
