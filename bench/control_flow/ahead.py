"""What loading ahead gives a model with control flow, run on slow storage.

    python -m bench.control_flow ahead                     the detector of bench/models/detector.py at 257 MB/s
    python -m bench.control_flow ahead --storage 40MB/s

Runs of three sessions take turns, of the same budget: each weight loaded when its step's turn has come ("none"); while
the steps before it compute, within each program ("inside": double buffering in each region); of the programs that
follow, too ("across"). Mean and stall in ms, for pictures that make the detector fire, that do not, and by turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.models.detector import SIDE, detector
from bench.process import MIB
from flexnn.benchmark.ablations import on_demand
from flexnn.session import open_for_tests
from flexnn.units import parse_bytes

THREADS = 2
SHARES = (1.0, 1.5)
"""Budgets, of the smallest."""
WAYS = ("none", "inside", "across")
TURNS, BLOCK = 5, 12
PICTURES = 40
"""Looked through for some of each kind."""


def opened(artifact: str, memory: int, bytes_per_second: int, way: str) -> flexnn.Session:
    """A session that loads ahead as ``way`` says."""
    return open_for_tests(
        artifact,
        memory,
        THREADS,
        profile="analytic",
        read_bytes_per_second=bytes_per_second,
        prefetches=way == "across",
        rewrite=on_demand if way == "none" else None,
    )


def pictures(artifact: str) -> dict[str, list[np.ndarray]]:
    """Pictures by what the detector does with them."""
    random = np.random.default_rng(0)
    found: dict[int, np.ndarray] = {}
    with flexnn.Session(artifact, threads=THREADS, profile="analytic") as session:
        for _ in range(PICTURES):
            x = (random.standard_normal((1, 3, SIDE, SIDE)) + random.normal(0, 2)).astype(np.float32)
            session.run(None, {"x": x})
            found.setdefault(session.statistics()["segments_of_last_run"], x)
    quiet, fires = found[min(found)], found[max(found)]
    return {"fires": [fires], "quiet": [quiet], "by turns": [fires, quiet]}


def smallest(artifact: str, feeds: list[np.ndarray]) -> int:
    """The smallest budget in bytes for all of them, again and again."""
    memory = 1
    while True:
        try:
            with flexnn.Session(artifact, memory, THREADS, profile="analytic") as session:
                for x in (*feeds, *feeds, *feeds):
                    session.run(None, {"x": x})
            return memory
        except flexnn.BudgetError as error:
            memory = max(error.minimum, memory + 1)


def latencies(bytes_per_second: int) -> list[dict[str, Any]]:
    """A row for each budget, kind of pictures and way to load."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.onnx"
        onnx.save(detector(), path)
        artifact = flexnn.compile(path)
        kinds = pictures(artifact)
        least = smallest(artifact, kinds["by turns"])
        for budget in (int(least * share) for share in SHARES):
            sessions = {way: opened(artifact, budget, bytes_per_second, way) for way in WAYS}
            for kind, feeds in kinds.items():
                seen: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
                for turn in range(TURNS):
                    for way, session in sessions.items():
                        for number in range(BLOCK):
                            start = time.perf_counter()
                            session.run(None, {"x": feeds[number % len(feeds)]})
                            took = (time.perf_counter() - start) * 1e3
                            if turn and number >= BLOCK // 2:
                                seen[way].append((took, session.last_run["stall_ns"] * 1e-6))
                for way in WAYS:
                    took, stall = np.median(np.array(seen[way]).reshape(-1, len(feeds), 2).mean(axis=1), axis=0)
                    rows.append({"budget": budget, "pictures": kind, "ahead": way, "ms": took, "stall_ms": stall})
            for session in sessions.values():
                session.close()
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.control_flow ahead", __doc__)
    parser.add_argument("--storage", type=lambda text: parse_bytes(text.removesuffix("/s")), default=257_000_000)
    options = parser.parse_args(arguments)
    rows = latencies(options.storage)
    write_json(options.json, rows)
    grid = table(None, "budget", "pictures", *(f"loads ahead: {way}" for way in WAYS), left=2)
    for first in range(0, len(rows), len(WAYS)):
        cells = rows[first : first + len(WAYS)]
        times = (f"{row['ms']:.1f} ms ({row['stall_ms']:.1f} waiting)" for row in cells)
        grid.add_row(f"{cells[0]['budget'] / MIB:.1f} MiB", cells[0]["pictures"], *times)
    tables(options.json).print(grid)
    return 0
