"""The engine from Python: its arena and threads, programs bound to it, and errors that name weight and node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flexnn import _core
from flexnn.artifact import Artifact
from flexnn.errors import FlexNNError
from flexnn.planning import Plan
from flexnn.planning.types import Program

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flexnn.measure import Spans, Trace

    from .spill_file import SpillFile

AHEAD_MAX: int = _core.AHEAD_MAX
"""Most programs that the loader may be told to read ahead for while one runs."""


class SessionError(FlexNNError, RuntimeError):
    """A session that cannot be opened, used or run; the message says what is wrong, where, and what helps."""


class UntracedError(SessionError):
    """A trace of a model whose runs are never traced."""


class DamageError(SessionError):
    """Bytes of the artifact that are not those that were written."""


def session_error(error: _core.EngineError, text: str) -> SessionError:
    """Return the error of a session for one of the engine, with this text."""
    is_damage = error.status in ("checksum", "eof") and error.file_offset < _core.SPILL_FROM
    return DamageError(text) if is_damage else SessionError(text)


class Switches(NamedTuple):
    """Options of the engine."""

    threads: int
    """Number of compute threads."""
    direct: bool = False
    """Whether reads go past the page cache, so that they wait for the device."""
    poison: bool = False
    """Whether memory that must not be read is filled with NaN."""
    jitter_seed: int = 0
    """Seed of random pauses of all threads; 0: none."""
    read_bytes_per_second: int = 0
    """Most bytes that the loader reads in a second; 0: no limit."""
    fresh: bool = False
    """Whether the memory of each streamed weight is given back before it is loaded again."""
    streams_last: bool = False
    """Whether loads go to the end of the arena, so that its end lies on whole huge pages, not its start."""


class Engine:
    """One arena, with compute threads and a loader, for programs of one session or of several. With ``trace`` 1,
    programs record the times of each run's steps and loads; with 2, those of each thread, too. Raises SessionError if
    threads do not start.
    """

    def __init__(self, switches: Switches, *, trace: int = 0) -> None:
        try:
            self.core = _core.Engine(
                direct=switches.direct,
                threads=switches.threads,
                poison=switches.poison,
                jitter_seed=switches.jitter_seed,
                noise_seed=int.from_bytes(os.urandom(8)),
                read_bytes_per_second=switches.read_bytes_per_second,
                trace=trace,
                fresh=switches.fresh,
                streams_last=switches.streams_last,
            )
        except _core.EngineError as error:
            raise SessionError(str(error)) from None

    @property
    def threads(self) -> int:
        """Compute threads that run: fewer than asked for where the system has no more."""
        return self.core.threads

    @property
    def nbytes(self) -> int:
        """Bytes of the arena, the bound programs and the stacks."""
        return self.core.bytes

    def suspect(self) -> None:
        """Have what is bound checked before the next run: something failed."""
        self.core.suspect()

    def trim(self, *, keep: bool = False) -> None:
        """Give back the arena beyond what the bound programs need, and freed heap. With ``keep``, pinned weights stay
        for later programs when none is bound.
        """
        self.core.rest()
        self.core.trim(keep)

    def loosen(self, *, is_loose: bool) -> None:
        """Let freed heap and a few MiB of the arena stay from now on, as there is no budget, or give them back whenever
        the arena grows or is trimmed.
        """
        self.core.loosen(is_loose)

    def back(self) -> None:
        """Have the system give memory to the arena's first 16 MiB now, so that the first run does not wait for it."""
        self.core.back()

    def give_back(self) -> None:
        """Give back what no bound program needs, unless the device keeps a read waiting: then the next call does."""
        if self.core.rest(patient=False):
            self.core.trim()

    def close(self, files: tuple[_core.OpenFile, ...] | None = None) -> None:
        """Unbind all programs and give memory and threads back; closing twice is fine. With ``files``, those of its
        programs, it does not wait for a device that does not answer: memory and files are given back later.
        """
        self.core.close(files)


class BoundProgram:
    """The program of a plan, bound to an engine; it reads ``artifact``, also through ``direct_fd``, opened with
    O_DIRECT, or -1. ``program`` is another encoding of it, at other addresses; ``crcs``: the checksums that its loads
    count, if not all of the artifact's. Raises SessionError if it is refused or its pinned weights cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        artifact: Artifact,
        plan: Plan,
        program: Program | None = None,
        *,
        direct_fd: int = -1,
        spill: SpillFile | None = None,
        crcs: NDArray[np.uint32] | None = None,
    ) -> None:
        self.engine, self.artifact, self.plan, self._spill = engine, artifact, plan, spill
        self.program = program = program or plan.program
        try:
            self._bound = _core.BoundProgram(
                engine.core,
                fd=artifact.fd,
                direct_fd=direct_fd,
                nodes=program.nodes,
                steps=program.steps,
                groups=program.groups,
                pinned=program.pinned,
                loads=program.loads,
                tables=program.tables,
                crcs=artifact.crcs if crcs is None else crcs,
                arena_bytes=program.arena_bytes,
                zeros_offset=program.zeros_offset,
                zeros_count=program.zeros_count,
                io_bytes=program.io_bytes,
                input_count=program.input_count,
                spills=program.spills,
                spill_fd=spill.fd if spill is not None else -1,
                spill_direct_fd=spill.direct_fd if spill is not None else -1,
                spill_bytes=program.spill_bytes,
            )
        except _core.EngineError as error:
            raise session_error(error, self.explain(error)) from None

    def run(self, buffers: Sequence[NDArray[Any]], then: Sequence[BoundProgram] = ()) -> dict[str, int]:
        """Run once over ``buffers``, inputs and then outputs; return ``run_ns``, ``stall_ns`` and ``bytes_read``.
        ``then`` are the programs that are expected to run next on this engine, in order: their loads begin where there
        is room. Raises SessionError.
        """
        try:
            return self._bound.run(buffers, [bound._bound for bound in then])
        except _core.EngineError as error:
            raise session_error(error, self.explain(error)) from None

    def repeat(
        self, signature: _core.Signature, feed: Mapping[str, Any], then: Sequence[BoundProgram] | None = None
    ) -> tuple[list[NDArray[Any]], tuple[int, int, int]] | None:
        """Run once over a feed; return the outputs and the figures of ``run``, whose ``then`` is the program itself
        where it is None. None, without a run, where the feed is not like the signature. Raises SessionError.
        """
        try:
            return self._bound.repeat(signature, feed, None if then is None else [bound._bound for bound in then])
        except _core.EngineError as error:
            raise session_error(error, self.explain(error)) from None

    @property
    def pinning(self) -> dict[str, int]:
        """Bytes of pinned weights that binding ``kept`` in place, ``moved`` inside the arena or ``read``."""
        return self._bound.pinning

    @property
    def bytes_written(self) -> int:
        """Bytes that the last run wrote to the spill file."""
        return self._bound.bytes_written

    @property
    def trace(self) -> Trace | None:
        """(start, end) in ns of each step and of each load of the last run, from its start; None without a trace."""
        return self._bound.trace

    @property
    def spans(self) -> Spans | None:
        """The numbers of ``trace`` as flat arrays, without an object for each; None without a trace."""
        return self._bound.spans

    @property
    def lanes(self) -> list[list[tuple[int, int]]] | None:
        """(start, end) in ns of each compute thread's part in each step of the last run; (0, 0) for a thread without a
        part, and for steps of a group but its first. None unless the engine traces threads.
        """
        return self._bound.lanes

    @property
    def stalls(self) -> list[tuple[int, int]] | None:
        """(start, end) in ns of the wait for loads before each step of the last run, and at its end; together they are
        the run's ``stall_ns``. (0, 0) where no load was missing. None unless the engine traces threads.
        """
        return self._bound.stalls

    def close(self) -> None:
        """Unbind the program; closing twice is fine. Pinned weights stay in the arena until their place is needed."""
        self.engine.core.rest()
        self._bound.close()

    @property
    def core(self) -> _core.BoundProgram:
        """The program in the C engine."""
        return self._bound

    def explain(self, error: _core.EngineError) -> str:
        """Return the engine's error with the name of the weight or node that it is about."""
        program = self.plan.program
        if error.status == "seal":
            return f"{error}: open the session again, or set its memory, which binds it anew"
        if error.status in ("io", "eof", "checksum") and error.is_load:
            loads = program.pinned if error.is_pinned else program.loads
            offset = int(loads[error.index]["file_offset"])
            first = offset + int(loads[error.index]["check_lead"])
            name = next((w.name for w in self.plan.graph.weights if w.offset <= first < w.offset + w.nbytes), "?")
            if offset >= _core.SPILL_FROM and self._spill is not None:
                return f"{self._spill.folder}: the spill file, {name!r} at offset {offset - _core.SPILL_FROM}: {error}"
            return f"{self.artifact.path}: weight {name!r} at offset {offset}: {error}"
        if not 0 <= error.index < len(program.nodes):
            return str(error)
        name, told = self.plan.graph.nodes[error.index].name, str(error).replace(f" in node {error.index}", "")
        if error.is_write and self._spill is not None:
            return f"{self._spill.folder}: the spill file, {name!r}: {told}"
        return f"node {name!r}: {told}"
