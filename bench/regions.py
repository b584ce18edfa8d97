"""Memory under changing shapes: what the process grew by after each run.

    python -m bench.regions                  FlexNN and onnxruntime on PP-OCR detection: 640, 1280, 640

Each row is a process of its own. ``after``: resident set above what it was before the session was opened, after that
run; ``peak``: the most by then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import MODELS

SIDES = (640, 1280, 640)
MIB = 1 << 20


def status(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0


def worker(runtime: str, path: str, threads: int) -> None:
    """Prints one JSON line: what the process grew by after each run, and its peak by then."""
    import numpy as np

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
        x = np.random.default_rng(0).standard_normal((1, 3, side, side), np.float32)
        run(None, {"x": x})
        del x
        rows.append((status("VmRSS") - before, status("VmHWM") - before))
    print(json.dumps(rows))


def measured(runtime: str, path: str, threads: int) -> list[tuple[int, int]]:
    """The worker's rows, from a process of its own."""
    command = [sys.executable, "-m", "bench.regions", "--worker", runtime, "--path", path, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(after, peak) for after, peak in json.loads(done.stdout.splitlines()[-1])]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.regions", description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", choices=("flexnn", "onnxruntime"), help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.path, options.threads)
        return 0
    model = str(MODELS / "ppocr_v4_det.onnx")
    with tempfile.TemporaryDirectory() as folder:
        import flexnn

        artifact = flexnn.compile(model, Path(folder) / "m.flexnn")
        for runtime, path in (("flexnn", artifact), ("onnxruntime", model)):
            rows = measured(runtime, path, options.threads)
            cells = ", ".join(
                f"{side}²: {after / MIB:.1f} MiB after, {peak / MIB:.1f} peak"
                for side, (after, peak) in zip(SIDES, rows, strict=True)
            )
            print(f"{runtime:12} {cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
