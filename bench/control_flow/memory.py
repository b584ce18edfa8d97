"""Memory of a model with open shapes under changing shapes, FlexNN's and onnxruntime's.

    python -m bench.control_flow memory                  PP-OCR detection: 640, 1280, 640

Each row is a process of its own. ``after``: resident set above what it was before the session was opened, after that
run; ``peak``: the most by then. The caller makes each input before its run and drops it after, with ``--held`` he has
them all from before the session to the end: what he drops, glibc may keep for him.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.cli import cli, table, tables, write_json
from bench.models.catalogue import CATALOGUE
from bench.process import MIB, module, status

SIDES = (640, 1280, 640)


def worker(runtime: str, path: str, threads: int, held: bool) -> None:
    """Prints one JSON line: what the process grew by after each run, and its peak by then."""
    import numpy as np

    random = np.random.default_rng(0)
    inputs = {side: random.standard_normal((1, 3, side, side), np.float32) for side in SIDES} if held else {}
    if runtime == "flexnn":
        import flexnn

        before = status("VmRSS")
        session = flexnn.Session(path, threads=threads)
        run = session.run
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        before = status("VmRSS")
        run = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run
    rows = []
    for side in SIDES:
        x = inputs[side] if held else random.standard_normal((1, 3, side, side), np.float32)
        run(None, {"x": x})
        del x
        rows.append((status("VmRSS") - before, status("VmHWM") - before))
    print(json.dumps(rows))


def measured(runtime: str, path: str, threads: int, held: bool) -> list[tuple[int, int]]:
    """The worker's rows, from a process of its own."""
    arguments = ["memory", "--worker", runtime, "--path", path, "--threads", threads, *["--held"] * held]
    return [(after, peak) for after, peak in json.loads(module("bench.control_flow", *arguments).splitlines()[-1])]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.control_flow memory", __doc__, threads=2)
    parser.add_argument("--worker", choices=("flexnn", "onnxruntime"), help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    parser.add_argument("--held", action="store_true", help="the caller has all inputs from the start to the end")
    options = parser.parse_args(arguments)
    if options.worker:
        worker(options.worker, options.path, options.threads, options.held)
        return 0
    model = CATALOGUE["ppocr_v4_det"].make()
    with tempfile.TemporaryDirectory() as folder:
        import flexnn

        files = {"flexnn": flexnn.compile(model, Path(folder) / "m.flexnn"), "onnxruntime": model}
        found = {name: measured(name, str(path), options.threads, options.held) for name, path in files.items()}
    rows = [
        {"runtime": runtime, "side": side, "after": after, "peak": peak}
        for runtime, sizes in found.items()
        for side, (after, peak) in zip(SIDES, sizes, strict=True)
    ]
    write_json(options.json, rows)
    grid = table("MiB that the process grew by", "runtime", "picture", "after the run", "peak by then")
    for row in rows:
        sizes = (f"{row[key] / MIB:.1f}" for key in ("after", "peak"))
        grid.add_row(row["runtime"], f"{row['side']}²", *sizes)
    tables(options.json).print(grid)
    return 0
