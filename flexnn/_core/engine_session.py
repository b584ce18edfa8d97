"""A program that has an engine for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flexnn._core._core import BoundProgram, Engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

Trace = tuple[list[tuple[int, int]], list[tuple[int, int]]]
"""(start, end) in ns of each step, and of each load, of a run, from its start."""

ENGINE_OPTIONS = (
    "threads",
    "isa",
    "poison",
    "jitter_seed",
    "read_bytes_per_second",
    "trace",
    "fresh",
    "streams_last",
)


class EngineSession:
    """One program in an engine of its own, run again and again. Its arguments and errors are those of Engine
    and BoundProgram.
    """

    def __init__(self, **arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in ENGINE_OPTIONS if name in arguments}
        self._engine = Engine(direct=arguments.get("direct_fd", -1) >= 0, **options)
        self._program = BoundProgram(self._engine, **arguments)

    @property
    def bytes(self) -> int:
        """Bytes of arena, program and thread stacks."""
        return self._engine.bytes

    @property
    def threads(self) -> int:
        """Compute threads that run."""
        return self._engine.threads

    @property
    def trace(self) -> Trace | None:
        """Times of the last run's steps and loads, as BoundProgram.trace gives them."""
        return self._program.trace

    @property
    def spans(self) -> tuple[memoryview, memoryview] | None:
        """The numbers of ``trace`` in two flat buffers, as BoundProgram.spans gives them."""
        return self._program.spans

    @property
    def lanes(self) -> list[list[tuple[int, int]]] | None:
        """Times of each thread in each step, as BoundProgram.lanes gives them."""
        return self._program.lanes

    @property
    def stalls(self) -> list[tuple[int, int]] | None:
        """Times that steps waited for loads, as BoundProgram.stalls gives them."""
        return self._program.stalls

    def run(self, buffers: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Run the program as BoundProgram.run does; the loads of the next run begin in this one."""
        return self._program.run(buffers, [self._program])

    def close(self) -> None:
        """Stop the threads and give the memory back. Closing twice is fine. RuntimeError during a run."""
        self._engine.close()
