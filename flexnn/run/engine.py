"""The engine from Python: its arena and threads, programs bound to it, and errors that name weight and node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from flexnn import _core
from flexnn.artifact import Artifact
from flexnn.errors import FlexNNError
from flexnn.measure import Spans, Trace
from flexnn.planning import Plan
from flexnn.planning.types import Program

AHEAD_MAX: int = _core.AHEAD_MAX
"""Programs that the loader may be told of while one runs."""


class SessionError(FlexNNError, RuntimeError):
    """A run or an opening that failed; the message says what, where and what would help."""


@dataclass(frozen=True, slots=True)
class Switches:
    """How the engine reads and computes."""

    threads: int
    direct_fd: int = -1
    """The artifact opened with O_DIRECT, or -1."""
    poison: bool = False
    jitter_seed: int = 0
    read_bytes_per_second: int = 0
    fresh: bool = False
    """The memory of each streamed weight is given back before it is loaded again."""


class Engine:
    """The one arena, the compute threads and the loader of a session. ``trace``: programs keep the times of each run's
    steps and loads, with 2 those of each thread, too. Raises SessionError where threads do not start.
    """

    def __init__(self, artifact: Artifact, switches: Switches, *, trace: int = 0) -> None:
        self.artifact = artifact
        try:
            self.core = _core.Engine(
                fd=artifact.fd,
                direct_fd=switches.direct_fd,
                threads=switches.threads,
                poison=switches.poison,
                jitter_seed=switches.jitter_seed,
                read_bytes_per_second=switches.read_bytes_per_second,
                trace=trace,
                fresh=switches.fresh,
            )
        except _core.EngineError as error:
            raise SessionError(str(error)) from None

    @property
    def nbytes(self) -> int:
        """Bytes of arena, bound programs and stacks."""
        return self.core.bytes

    def trim(self, *, keep: bool = False) -> None:
        """Gives back the arena beyond what the bound programs need, and freed heap; ``keep``: pinned weights stay for
        programs to come where none is bound.
        """
        self.core.trim(keep)

    def close(self) -> None:
        """Gives memory and threads back, and ends all bound programs; twice is fine."""
        self.core.close()


class BoundProgram:
    """The program of a plan, bound to an engine; ``program``: another encoding of it, at other addresses.
    Raises SessionError where it is refused or its pinned weights cannot be read.
    """

    def __init__(self, engine: Engine, plan: Plan, program: Program | None = None) -> None:
        self.engine, self.plan = engine, plan
        program = program or plan.program
        try:
            self._bound = _core.BoundProgram(
                engine.core,
                nodes=program.nodes,
                steps=program.steps,
                groups=program.groups,
                pinned=program.pinned,
                loads=program.loads,
                tables=program.tables,
                crcs=engine.artifact.crcs,
                arena_bytes=program.arena_bytes,
                zeros_offset=program.zeros_offset,
                zeros_count=program.zeros_count,
                io_bytes=program.io_bytes,
                input_count=len(plan.graph.inputs),
            )
        except _core.EngineError as error:
            raise SessionError(self._explain(error)) from None

    def run(self, buffers: Sequence[NDArray[Any]], then: Sequence[BoundProgram] = ()) -> dict[str, int]:
        """One run over inputs, then outputs: ``run_ns``, ``stall_ns``, ``bytes_read``. ``then``: what is expected to
        run next on this engine, in order; loads begin where the runs before leave room. Raises SessionError.
        """
        try:
            return self._bound.run(buffers, [bound._bound for bound in then])
        except _core.EngineError as error:
            raise SessionError(self._explain(error)) from None

    @property
    def pinning(self) -> dict[str, int]:
        """Bytes of pinned weights that binding ``kept`` in place, ``moved`` inside the arena, ``read``."""
        return self._bound.pinning

    @property
    def trace(self) -> Trace | None:
        """(start, end) in ns of each step, and of each load, of the last run, from its start; None when not tracing."""
        return self._bound.trace

    @property
    def spans(self) -> Spans | None:
        """As ``trace``, without an object for each number."""
        return self._bound.spans

    @property
    def lanes(self) -> list[list[tuple[int, int]]] | None:
        """For each step of the last run (start, end) in ns of each compute thread's part; (0, 0) where it had none, and
        in a group beyond the first step. None unless the engine traces threads.
        """
        return self._bound.lanes

    @property
    def stalls(self) -> list[tuple[int, int]] | None:
        """(start, end) in ns of each step's wait for loads in the last run, and of its end's: together the run's
        ``stall_ns``. (0, 0) where none was missing. None unless the engine traces threads.
        """
        return self._bound.stalls

    def close(self) -> None:
        """Unbinds the program; twice is fine. Its pinned weights stay in the arena until their place is needed."""
        self._bound.close()

    def _explain(self, error: _core.EngineError) -> str:
        """The engine's error with the name of the weight or node that it is about."""
        program, graph = self.plan.program, self.plan.graph
        if error.status in ("io", "eof", "checksum") and error.is_load:
            loads = program.pinned if error.is_pinned else program.loads
            offset = int(loads[error.index]["file_offset"])
            first = offset + int(loads[error.index]["check_lead"])
            name = next((w.name for w in graph.weights if w.offset <= first < w.offset + w.nbytes), "?")
            return f"{self.engine.artifact.path}: weight {name!r} at offset {offset}: {error}"
        if error.index >= 0 and error.index < len(graph.nodes):
            return f"node {graph.nodes[error.index].name!r}: {error}"
        return str(error)
