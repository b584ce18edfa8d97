"""Timing of models whose shapes are open, or that branch: as sessions, since runs decide what is planned."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flexnn.artifact import open_artifact
from flexnn.graph.ir import Graph
from flexnn.inputs import make_feed
from flexnn.median import median, quantile
from flexnn.session import Session, open_for_tests

from .timing import WARMUP, Timing


def is_open(path: str) -> bool:
    """Return whether the artifact at ``path`` holds a model that is bound when it runs."""
    with open_artifact(path) as artifact:
        return not isinstance(artifact.contents, Graph)


class OpenSubject:
    """An artifact of such a model, the shapes of its inputs, and numbers of those inputs that are not random."""

    def __init__(
        self,
        path: str,
        *,
        threads: int,
        io: str,
        storage: int,
        repeat: int,
        shapes: Mapping[str, tuple[int, ...]],
        numbers: Mapping[str, list[float]],
    ) -> None:
        self._path, self._shapes, self.repeat = path, shapes, repeat
        self._options: dict[str, Any] = {"threads": threads, "io": io, "read_bytes_per_second": storage}
        with open_artifact(path) as artifact:
            self.source = artifact.header.source_sha256.hex()
        with self.open(None) as session:
            self._feed, _ = make_feed(session.get_inputs(), numbers, None)
            self.run(session)
            self._minimum, self._whole = session.plan.minimum_memory, session.session_bytes

    def open(self, memory: int | None) -> Session:
        """Open a session."""
        return open_for_tests(self._path, memory, shapes=self._shapes, **self._options)

    def run(self, session: Session) -> None:
        """Run once."""
        session.run(None, self._feed)

    def minimum(self) -> int:
        """Return the smallest budget of a run."""
        return self._minimum

    def whole_bytes(self) -> int:
        """Return the bytes of a session without a limit."""
        return self._whole

    def running(self, memory: int | None) -> OpenRunning:
        """Return what times sessions of a budget."""
        return OpenRunning(self, memory)


class OpenRunning:
    """Sessions of one budget, and the times of their runs so far."""

    def __init__(self, subject: OpenSubject, memory: int | None) -> None:
        self._subject, self._memory = subject, memory
        self._times: list[float] = []
        self._stalls: list[float] = []
        self._rounds: list[float] = []
        self._facts: tuple[int, float | None, int, int] = 0, None, 0, 0

    def round(self, count: int) -> None:
        """Open, run and close."""
        with self._subject.open(self._memory) as session:
            for number in range(WARMUP + count):
                start = time.perf_counter_ns()
                self._subject.run(session)
                if number >= WARMUP:
                    self._times.append((time.perf_counter_ns() - start) / 1e6)
                    self._stalls.append(session.last_run["stall_ns"] / 1e6)
            alone = session.statistics()["segments_of_last_run"] == 1
            plan = session.plan
            predicted = plan.predicted_ms if alone else None
            self._facts = session.session_bytes, predicted, session.last_run["bytes_read"], plan.pinned_bytes
        self._rounds.append(median(self._times[-count:]))

    def timing(self, name: str) -> Timing:
        """Return the timing of the runs so far."""
        memory, predicted, read, pinned = self._facts
        p50, p95 = median(self._times), quantile(self._times, 0.95)
        return Timing(name, memory, p50, p95, predicted, median(self._stalls), read, pinned, self._rounds)
