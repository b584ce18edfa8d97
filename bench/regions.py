"""Models of many programs: memory under changing shapes, and time beside onnxruntime.

    python -m bench.regions                  FlexNN and onnxruntime on PP-OCR detection: 640, 1280, 640
    python -m bench.regions --vad            silero-VAD, a window of 512 samples: medians of runs in turns

Each row of the first is a process of its own. ``after``: resident set above what it was before the session was opened,
after that run; ``peak``: the most by then. The caller makes each input before its run and drops it after, with
``--held`` he has them all from before the session to the end: what he drops, glibc may keep for him.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import MODELS

SIDES = (640, 1280, 640)
MIB = 1 << 20
TURNS, BLOCK = 10, 40


def status(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0


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
    command = [sys.executable, "-m", "bench.regions", "--worker", runtime, "--path", path, "--threads", str(threads)]
    command += ["--held"] if held else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(after, peak) for after, peak in json.loads(done.stdout.splitlines()[-1])]


def vad(threads: int) -> None:
    """Prints the medians of both runtimes in ms, and how many programs a run is."""
    import numpy as np
    import onnxruntime

    import flexnn

    model = str(MODELS / "silero_vad.onnx")
    random = np.random.default_rng(0)
    feed = {
        "input": random.standard_normal((1, 512), np.float32) / 10,
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        artifact = flexnn.compile(model, Path(folder) / "m.flexnn")
        with flexnn.Session(artifact, threads=threads) as session:
            runs: dict[str, Any] = {"flexnn": session.run, "onnxruntime": theirs.run}
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(TURNS):
                for name, run in runs.items():
                    for number in range(BLOCK):
                        start = time.perf_counter()
                        run(None, feed)
                        if number >= BLOCK // 2:
                            times[name].append((time.perf_counter() - start) * 1e3)
            cells = ", ".join(f"{name} {np.median(t):.3f} ms" for name, t in times.items())
            print(f"silero-VAD: {cells}; {session.statistics()['segments_of_last_run']} segment(s)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.regions", description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", choices=("flexnn", "onnxruntime"), help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    parser.add_argument("--held", action="store_true", help="the caller has all inputs from the start to the end")
    parser.add_argument("--vad", action="store_true", help="time silero-VAD")
    options = parser.parse_args()
    if options.vad:
        vad(options.threads)
        return 0
    if options.worker:
        worker(options.worker, options.path, options.threads, options.held)
        return 0
    model = str(MODELS / "ppocr_v4_det.onnx")
    with tempfile.TemporaryDirectory() as folder:
        import flexnn

        artifact = flexnn.compile(model, Path(folder) / "m.flexnn")
        for runtime, path in (("flexnn", artifact), ("onnxruntime", model)):
            rows = measured(runtime, path, options.threads, options.held)
            cells = ", ".join(
                f"{side}²: {after / MIB:.1f} MiB after, {peak / MIB:.1f} peak"
                for side, (after, peak) in zip(SIDES, rows, strict=True)
            )
            print(f"{runtime:12} {cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
