"""``flexnn run``."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np

import flexnn
from flexnn import _core, units
from flexnn.graph.random_array import random_array
from flexnn.inputs import make_feed, seeded
from flexnn.kept_artifacts import compiled
from flexnn.median import median, quantile
from flexnn.run.engine import UntracedError
from flexnn.system.process import resident

from . import live
from .energy import EnergyUse, energy_told
from .files import check_writable, load_arrays, write_npz, written
from .terminal import say

NS_PER_MS = 1e6
REPEAT = 10
LATEST = 10_000
"""Most runs that figures are of where nobody says how many runs there are."""

DRAWN = 1 << 12
"""Numbers that are drawn before memory is counted: what draws them is none of a session's."""


def run(options: argparse.Namespace) -> None:
    """Print memory and latency of runs; save outputs and a trace if asked to."""
    for path in (options.output, options.trace):
        if path is not None:
            check_writable(path)
    with compiled(options.model, dict(options.shape), shown=True) as artifact:
        shapes = dict(options.shape) if artifact == options.model else {}
        report, outputs = _measure(artifact, options, shapes)
    if options.output is not None:
        with written(options.output) as file:
            write_npz(file, outputs)
    if options.json:
        print(json.dumps(report))
        return
    latency = report["latency_ms"]
    added = report["peak_rss"] - report["baseline_rss"]
    budget = "no limit" if report["memory_budget"] is None else units.format_bytes(report["memory_budget"])
    print(f"memory   {units.format_bytes(added)} added to the process (budget {budget})")
    print(f"latency  p50 {latency['p50']:.2f} ms, p95 {latency['p95']:.2f} ms over {latency['runs']} runs")
    read = units.format_bytes(report["bytes_read_per_run"])
    print(f"reading  {read} per run, {report['stall_ms']:.2f} ms waited for")
    if options.energy:
        say(f"energy   {energy_told(report['energy'])}")


def _measure(
    path: str, options: argparse.Namespace, shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Open a session and run it; return the report, and the last run's outputs by name."""
    given = load_arrays(options.input) if options.input else None
    use = EnergyUse() if options.energy else None
    if options.live:
        live.load()  # is not part of what the session takes
    random_array(seeded(), (DRAWN,), np.dtype(np.float32))
    baseline = resident()[1]
    start = time.perf_counter_ns()
    with flexnn.Session(
        path,
        memory=options.memory,
        threads=options.threads,
        io=options.io,
        shapes=shapes,
        profile=options.profile,
        groups=options.groups,
        progress=_tell,
        trace=options.trace is not None,
        reuse_outputs=options.reuse_outputs,
        deterministic=options.deterministic,
        spill=options.spill,
        kv_capacity=options.kv_capacity,
        kv=options.kv,
    ) as session:
        open_ms = (time.perf_counter_ns() - start) / NS_PER_MS
        if options.trace is not None:
            _check_traced(session)
        runs = _Runs(session, options, given)
        runs.go(baseline, use)
        peak = resident()[1]
        if options.trace is not None:
            with written(options.trace) as file:
                file.write(json.dumps(session.trace_events()).encode())
        facts = {"baseline_rss": baseline, "peak_rss": peak}, runs.spread(), open_ms, median(list(runs.stalls))
        report = _report(session, *facts)
        if use is not None:
            report["energy"] = use.describe()
        names = [output.name for output in session.get_outputs()]
    return report, dict(zip(names, runs.outputs, strict=True))


def _check_traced(session: flexnn.Session) -> None:
    """Raise ValueError where runs are never traced, before a run that would be for nothing."""
    try:
        session.trace_events()
    except UntracedError:
        raise ValueError("--trace: open shapes and control flow are not traced; --shape binds open shapes") from None
    except flexnn.SessionError:  # it has not run yet
        pass


class _Runs:
    """The runs of a session, and their times in ms."""

    def __init__(
        self, session: flexnn.Session, options: argparse.Namespace, given: dict[str, np.ndarray[Any, Any]] | None
    ) -> None:
        self._session, self._options = session, options
        self._count = options.repeat or (None if options.live else REPEAT)
        self.latencies: deque[float] = deque(maxlen=self._count or LATEST)
        self.stalls: deque[float] = deque(maxlen=self._count or LATEST)
        self.outputs: list[np.ndarray[Any, Any]] = []
        self.count = 0
        self._feed, self._random = make_feed(session.get_inputs(), dict(options.set), given)
        self._capacity = session.state_capacity

    def go(self, baseline: int, use: EnergyUse | None) -> None:
        """Run as often as the options say, measured."""
        options = self._options
        for _ in range(options.warmup):
            self._run()
        with contextlib.ExitStack() as stack:
            shown = stack.enter_context(live.shown(self._session, baseline)) if options.live else None
            if use is not None:
                stack.enter_context(use.measured(lambda: self.count))
            try:
                self._timed(shown)
            except KeyboardInterrupt:
                if self._count is not None or not self.latencies:
                    raise
            if use is not None:
                use.run_on(self._run)

    def _timed(self, shown: live.Live | None) -> None:
        for _ in itertools.repeat(None) if self._count is None else range(self._count):
            start = time.perf_counter_ns()
            self._run()
            self.latencies.append((time.perf_counter_ns() - start) / NS_PER_MS)
            self.stalls.append(self._session.last_run["stall_ns"] / NS_PER_MS)
            if shown is not None:
                shown.ran(self.latencies[-1], self._session.last_run)

    def _run(self) -> None:
        if self._capacity is not None:  # each run appends its tokens
            own = next(iter(self._feed.values())).shape[1]
            if self._session.state_length + own > self._capacity:
                self._session.reset()
        try:
            self.outputs = self._session.run(None, self._feed)
            self.count += 1
        except (flexnn.GraphError, flexnn.SessionError, ValueError) as error:
            if self._random and not isinstance(error, flexnn.BudgetError):
                names = ", ".join(map(repr, self._random))
                error.add_note(f"{names} had random numbers: --input or --set gives others")
            raise

    def spread(self) -> dict[str, Any]:
        """Return the spread of the latencies."""
        latencies = list(self.latencies)
        return {
            "p50": median(latencies),
            "p95": quantile(latencies, 0.95),
            "min": min(latencies),
            "runs": len(latencies),
        }


def _report(
    session: flexnn.Session, rss: dict[str, int], latency_ms: dict[str, Any], open_ms: float, stall_ms: float
) -> dict[str, Any]:
    """Return what ``flexnn run --json`` prints."""
    plan = session.plan
    return {
        "memory_budget": session.memory,
        "minimum_memory": plan.minimum_memory,
        "arena_bytes": plan.arena_bytes,
        "session_bytes": session.session_bytes,
        **rss,
        "latency_ms": latency_ms,
        "open_ms": open_ms,
        "plan_ms": plan.plan_ms,
        "predicted_ms": plan.predicted_ms,
        "bound_ms": plan.bound_ms,
        "bytes_read_per_run": session.last_run["bytes_read"],
        "bytes_written_per_run": session.last_run.get("bytes_written", 0),
        "pinned_bytes": plan.pinned_bytes,
        "stall_ms": stall_ms,
        "threads": session.threads,
        "groups": plan.groups,
        "barriers": plan.barriers,
        "isa": _core.isa_level(),
    }


def _tell(what: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        say(what, sys.stderr)
