"""Time of silero-VAD beside onnxruntime, a window of 512 samples: medians of runs in turns.

python -m bench.control_flow vad --threads 1
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.field.peer import peer_session
from bench.models.subjects import SUBJECTS
from bench.rounds import in_turns

SECONDS = 2.0


def measure(threads: int) -> dict[str, Any]:
    """Medians of both runtimes in ms, and how many programs a run of FlexNN is."""
    model = next(subject for subject in SUBJECTS if subject.name == "silero_vad").fetch()
    random = np.random.default_rng(0)
    feed = {
        "input": random.standard_normal((1, 512), np.float32) / 10,
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000),
    }
    peer = peer_session(str(model), threads)
    with tempfile.TemporaryDirectory() as folder:
        made = flexnn.compile(model, Path(folder) / "m.flexnn")
        with flexnn.Session(made, threads=threads) as session:
            runs = {"flexnn": partial(session.run, None, feed), "onnxruntime": partial(peer.run, None, feed)}
            times = in_turns(runs, SECONDS)
            programs = session.statistics()["segments_of_last_run"]
    return {name: taken.p50 for name, taken in times.items()} | {"programs": programs}


def main(arguments: Sequence[str] | None = None) -> int:
    options = cli("bench.control_flow vad", __doc__, threads=2).parse_args(arguments)
    row = measure(options.threads)
    write_json(options.json, row)
    grid = table("silero-VAD", "flexnn, ms", "onnxruntime, ms", "programs", left=0)
    grid.add_row(f"{row['flexnn']:.3f}", f"{row['onnxruntime']:.3f}", str(row["programs"]))
    tables(options.json).print(grid)
    return 0
