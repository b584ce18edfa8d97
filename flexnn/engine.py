"""One program opened in the engine, with its plan and what its errors are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from flexnn import _core
from flexnn.artifact import Artifact
from flexnn.graph.ir import Graph
from flexnn.measure import Trace
from flexnn.plan import Plan


class SessionError(RuntimeError):
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
    """The engine's session for a plan of ``graph``; ``trace``: it keeps the times of each run's steps and loads. Raises
    SessionError where it does not open.
    """

    def __init__(
        self, artifact: Artifact, graph: Graph, plan: Plan, switches: Switches, *, trace: bool = False
    ) -> None:
        self.artifact, self.graph, self.plan = artifact, graph, plan
        program = plan.program
        try:
            self._session = _core.EngineSession(
                nodes=program.nodes,
                steps=program.steps,
                groups=program.groups,
                pinned=program.pinned,
                loads=program.loads,
                tables=program.tables,
                crcs=artifact.crcs,
                arena_bytes=program.arena_bytes,
                zeros=program.zeros,
                zeros_count=program.zeros_count,
                io_bytes=program.io_bytes,
                input_count=len(graph.inputs),
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
            raise SessionError(self._explain(error)) from None

    def run(self, buffers: Sequence[NDArray[Any]]) -> dict[str, int]:
        """One run over inputs, then outputs: ``run_ns``, ``stall_ns``, ``bytes_read``. Raises SessionError."""
        try:
            return self._session.run(buffers)
        except _core.EngineError as error:
            raise SessionError(self._explain(error)) from None

    @property
    def trace(self) -> Trace | None:
        """(start, end) in ns of each step, and of each load, of the last run, from its start; None when not tracing."""
        return self._session.trace

    def close(self) -> None:
        """Gives memory and threads back; twice is fine."""
        self._session.close()

    def _explain(self, error: _core.EngineError) -> str:
        """The engine's error with the name of the weight or node that it is about."""
        program, graph = self.plan.program, self.graph
        if error.status in ("io", "eof", "checksum") and error.is_load:
            loads = program.pinned if error.is_pinned else program.loads
            offset = int(loads[error.index]["file_offset"])
            first = offset + int(loads[error.index]["check_lead"])
            name = next((w.name for w in graph.weights if w.offset <= first < w.offset + w.nbytes), "?")
            return f"{self.artifact.path}: weight {name!r} at offset {offset}: {error}"
        if error.index >= 0 and error.index < len(graph.nodes):
            return f"node {graph.nodes[error.index].name!r}: {error}"
        return str(error)
