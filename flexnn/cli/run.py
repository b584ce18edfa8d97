"""``flexnn run``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

import flexnn
from flexnn import _core, units
from flexnn.kept_artifacts import compiled
from flexnn.median import median, quantile

from .files import check_writable, load_arrays, write_npz, written
from .inputs import random_input, seeded
from .terminal import say

NS_PER_MS = 1e6


def run(options: argparse.Namespace) -> None:
    """Print memory and latency of runs; save outputs and a trace if asked to."""
    for path in (options.output, options.trace):
        if path is not None:
            check_writable(path)
    with compiled(options.model, dict(options.shape)) as artifact:
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


def _measure(
    path: str, options: argparse.Namespace, shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Open a session and run it; return the report, and the last run's outputs by name."""
    feed = load_arrays(options.input) if options.input else None
    generator = seeded()
    baseline = _peak_rss()
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
    ) as session:
        open_ms = (time.perf_counter_ns() - start) / NS_PER_MS
        if feed is None:
            feed = {i.name: random_input(generator, i) for i in session.get_inputs()}
        for _ in range(options.warmup):
            session.run(None, feed)
        latencies, stalls = [], []
        for _ in range(options.repeat):
            start = time.perf_counter_ns()
            outputs = session.run(None, feed)
            latencies.append((time.perf_counter_ns() - start) / NS_PER_MS)
            stalls.append(session.last_run["stall_ns"] / NS_PER_MS)
        peak = _peak_rss()
        if options.trace is not None:
            with written(options.trace) as file:
                file.write(json.dumps(session.trace_events()).encode())
        facts = {"baseline_rss": baseline, "peak_rss": peak}, _spread(latencies), open_ms, median(stalls)
        report = _report(session, *facts)
        names = [output.name for output in session.get_outputs()]
    return report, dict(zip(names, outputs, strict=True))


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


def _spread(latencies: list[float]) -> dict[str, Any]:
    return {
        "p50": median(latencies),
        "p95": quantile(latencies, 0.95),
        "min": min(latencies),
        "runs": len(latencies),
    }


def _peak_rss() -> int:
    """Return VmHWM of this process, in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
