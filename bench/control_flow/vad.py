"""Time of silero-VAD beside onnxruntime, a window of 512 samples: medians of runs in turns.

python -m bench.control_flow vad --threads 1
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.models.subjects import SUBJECTS
from bench.summary import median

TURNS, BLOCK = 10, 40


def measure(threads: int) -> dict[str, Any]:
    """Medians of both runtimes in ms, and how many programs a run of FlexNN is."""
    model = next(subject for subject in SUBJECTS if subject.name == "silero_vad").fetch()
    random = np.random.default_rng(0)
    feed = {
        "input": random.standard_normal((1, 512), np.float32) / 10,
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    theirs = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        made = flexnn.compile(model, Path(folder) / "m.flexnn")
        session = stack.enter_context(flexnn.Session(made, threads=threads))
        runs: dict[str, Callable[..., object]] = {"flexnn": session.run, "onnxruntime": theirs.run}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(TURNS):
            for name, run in runs.items():
                for number in range(BLOCK):
                    start = time.perf_counter()
                    run(None, feed)
                    if number >= BLOCK // 2:
                        times[name].append((time.perf_counter() - start) * 1e3)
        programs = session.statistics()["segments_of_last_run"]
    return {name: median(taken) for name, taken in times.items()} | {"programs": programs}


def main(arguments: Sequence[str] | None = None) -> int:
    options = cli("bench.control_flow vad", __doc__, threads=2).parse_args(arguments)
    row = measure(options.threads)
    write_json(options.json, row)
    grid = table("silero-VAD", "flexnn, ms", "onnxruntime, ms", "programs", left=0)
    grid.add_row(f"{row['flexnn']:.3f}", f"{row['onnxruntime']:.3f}", str(row["programs"]))
    tables(options.json).print(grid)
    return 0
