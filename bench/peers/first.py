"""The first start ever: an ONNX file that nothing here has seen is compiled, measured and run, in a new process.

python -m bench.peers first            the eight classics and ten trained models
python -m bench.peers first silero_vad lac

Columns: milliseconds from opening to the first result, and of the whole process with its imports, of onnxruntime's and
FlexNN's, medians of turns; FlexNN's over onnxruntime's. Each of FlexNN's processes has a new cache folder. Below them:
the geometric mean of these ratios, and those that half and 95 % of the models do not exceed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.cli import table, tables, write_json
from bench.peers.subjects import Case, cases, parser
from bench.process import ENVIRONMENT
from bench.rounds import SETTLE_SECONDS
from bench.summary import geometric_mean, median

ROUNDS = 3
STARTS = {
    "onnxruntime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level, options.intra_op_num_threads = 4, threads
begun = time.perf_counter()
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
""",
    "own": """
import flexnn
begun = time.perf_counter()
session = flexnn.Session(model, threads=threads)
""",
}
HEAD = """
import json, sys, time
import numpy
model, inputs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
with numpy.load(inputs) as found:
    feed = dict(found)
"""
TAIL = """
opened = time.perf_counter()
session.run(None, feed)
print(json.dumps([1e3 * (opened - begun), 1e3 * (time.perf_counter() - begun)]))
"""


def start(name: str, case: Case, inputs: str, threads: int) -> tuple[float, float, float]:
    """Return the milliseconds of opening, until the first result, and of the whole process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        command = [sys.executable, "-c", HEAD + STARTS[name] + TAIL, str(case.path), inputs, str(threads)]
        begun = time.perf_counter()
        environment = {**ENVIRONMENT, "XDG_CACHE_HOME": cache}
        environment.pop("PYTHONPATH")
        done = subprocess.run(command, cwd=cache, env=environment, capture_output=True, text=True, check=False)
        took = 1e3 * (time.perf_counter() - begun)
    if done.returncode:
        raise SystemExit(f"error: {case.name}: {done.stderr[-500:]}")
    opened, first = json.loads(done.stdout.splitlines()[-1])
    return opened, first, took


def measure(case: Case, folder: str, threads: int, rounds: int) -> dict[str, Any]:
    """Return a model's row."""
    import flexnn

    inputs = os.path.join(folder, "inputs.npz")
    with flexnn.Session(case.path, threads=threads, profile="analytic") as session:
        np.savez(inputs, **case.feed(session))
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in STARTS}
    for number in range(rounds):
        for name in STARTS if number % 2 else reversed(list(STARTS)):
            time.sleep(SETTLE_SECONDS)
            taken[name].append(start(name, case, inputs, threads))
    row: dict[str, Any] = {"model": case.name, "taken": taken}
    for name, found in taken.items():
        row[name] = [median([one[i] for one in found]) for i in range(3)]
    row["ratios"] = [own / other for own, other in zip(row["own"][1:], row["onnxruntime"][1:], strict=True)]
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("first", __doc__, ROUNDS, "starts of each").parse_args(arguments)
    grid = table("", "model", "onnxruntime: first, process ms", "FlexNN: open, first, process ms", "first", "process")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for case in cases(options.names):
            row = measure(case, folder, options.threads, options.rounds)
            rows.append(row)
            cells = [" ".join(f"{ms:.0f}" for ms in found) for found in (row["onnxruntime"][1:], row["own"])]
            grid.add_row(row["model"], *cells, *(f"{ratio:.2f}" for ratio in row["ratios"]))
    write_json(options.json, rows)
    means = [geometric_mean([row["ratios"][i] for row in rows]) for i in range(2)]
    grid.add_row("geometric mean", "", "", *(f"{mean:.2f}" for mean in means))
    for part in (0.5, 0.95):
        found = [np.quantile([row["ratios"][i] for row in rows], part, method="higher") for i in range(2)]
        grid.add_row(f"{part:.0%} of the models", "", "", *(f"{one:.2f}" for one in found))
    tables(options.json).print(grid)
    return 0
