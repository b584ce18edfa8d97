"""First runs: after opening, and at each further shape, FlexNN's and onnxruntime's in sessions of their own."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.rounds import SETTLE_SECONDS, milliseconds
from bench.summary import median

REPEATS = 3
"""Sessions of each runtime that begin with the same shapes. A host may drop its tables of a process's pages: then the
next run finds each page again, whatever runs (24 to 40 ms, once in some tens of sessions that map 100 MiB).
"""
Feed = Mapping[str, Any]


class FirstRuns:
    """Milliseconds of the first runs of ``count`` cases, by runtime.

    ``first``: after opening. ``new``: at shapes that a session has not seen, after it ran at others.
    """

    def __init__(self, names: Sequence[str], count: int) -> None:
        self.opening: dict[str, list[float]] = {name: [] for name in names}
        self.first: dict[str, list[list[float]]] = {name: [[] for _ in range(count)] for name in names}
        self.new: dict[str, list[list[float]]] = {name: [[] for _ in range(count)] for name in names}
        self.bind: list[list[float]] = [[] for _ in range(count)]
        """Milliseconds of FlexNN's runs at new shapes outside its engine: it bound, planned, made arrays."""
        self.session_bytes: list[int] = [0] * count
        """Bytes that FlexNN's session owned after its first run, at the shapes of each case."""

    def row(self, case: int) -> dict[str, Any]:
        """Return the figures of a case for ``--json``."""
        made: dict[str, Any] = {"open_ms": {name: median(taken) for name, taken in self.opening.items()}}
        for kind, found in (("first_ms", self.first), ("new_ms", self.new)):
            if all(found[name][case] for name in found):
                made[kind] = {name: median(taken[case]) for name, taken in found.items()}
                made[f"{kind}_all"] = {name: taken[case] for name, taken in found.items()}
        if self.bind[case]:
            made["bind_ms"] = median(self.bind[case])
        return made


def first_runs(openers: Mapping[str, Callable[[], Any]], feeds: Sequence[Feed]) -> FirstRuns:
    """Return the first runs of sessions that functions open, at each case's shapes first."""
    found = FirstRuns(list(openers), len(feeds))
    for repeat in range(REPEATS):
        for case in range(len(feeds)):
            order = [(case + i) % len(feeds) for i in range(len(feeds))]
            for name in openers if (repeat + case) % 2 == 0 else reversed(list(openers)):
                gc.collect()
                time.sleep(SETTLE_SECONDS)
                _session(found, name, openers[name], [(i, feeds[i]) for i in order])
    return found


def _session(found: FirstRuns, name: str, opener: Callable[[], Any], feeds: Sequence[tuple[int, Feed]]) -> None:
    """Open a session and run it at each shape once."""
    start = time.perf_counter()
    session = opener()
    found.opening[name].append(1e3 * (time.perf_counter() - start))
    for place, (case, feed) in enumerate(feeds):
        took = milliseconds(lambda feed=feed: session.run(None, feed))  # type: ignore[misc]
        (found.new if place else found.first)[name][case].append(took)
        if not hasattr(session, "session_bytes"):
            continue
        if place:
            found.bind[case].append(took - 1e-6 * session.last_run["run_ns"])
        else:
            found.session_bytes[case] = session.session_bytes
    if hasattr(session, "close"):
        session.close()
