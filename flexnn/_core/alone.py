"""A program that has a host for itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexnn._core._core import EngineHost, EngineProgram

Trace = tuple[list[tuple[int, int]], list[tuple[int, int]]]


class EngineSession:
    """One program in a host of its own, run again and again: arguments and errors as of EngineProgram and of
    EngineHost (``host``).
    """

    def __init__(
        self,
        *,
        nodes: NDArray[Any],
        steps: NDArray[Any],
        pinned: NDArray[Any],
        loads: NDArray[Any],
        crcs: NDArray[np.uint32],
        arena_bytes: int,
        zeros: int,
        zeros_count: int,
        io_bytes: Iterable[int] | NDArray[np.int64],
        input_count: int,
        groups: NDArray[np.uint32] | None = None,
        tables: NDArray[Any] | None = None,
        **host: Any,
    ) -> None:
        self._host = EngineHost(**host)
        self._program = EngineProgram(
            self._host,
            nodes=nodes,
            steps=steps,
            pinned=pinned,
            loads=loads,
            crcs=crcs,
            arena_bytes=arena_bytes,
            zeros=zeros,
            zeros_count=zeros_count,
            io_bytes=io_bytes,
            input_count=input_count,
            groups=groups,
            tables=tables,
        )

    @property
    def bytes(self) -> int:
        """Bytes it owns: arena, program, thread stacks."""
        return self._host.bytes

    @property
    def threads(self) -> int:
        """Compute threads that run."""
        return self._host.threads

    @property
    def trace(self) -> Trace | None:
        """As of EngineProgram."""
        return self._program.trace

    @property
    def lanes(self) -> list[list[tuple[int, int]]] | None:
        """As of EngineProgram."""
        return self._program.lanes

    def run(self, buffers: Sequence[NDArray[Any]]) -> dict[str, int]:
        """As of EngineProgram; the loads of the next run begin in this one."""
        return self._program.run(buffers, self._program)

    def close(self) -> None:
        """Stops the threads and gives the memory back. Closing twice is fine; RuntimeError during a run."""
        self._host.close()
