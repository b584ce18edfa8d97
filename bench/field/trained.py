"""Trained models out of packages that people install, as they are: open shapes, control flow, recurrent, quantised.

python -m bench.field              fetches each, runs it at its shapes against onnxruntime, unlimited and, in a process
                                   of its own, in 1.5 of the smallest budget; relative L2 errors, milliseconds, memory
python -m bench.field silero lac   those whose names match
python -m bench.field --all        those of large packages, too
python -m bench.field --half ocr   float32 models converted to float16
python -m bench.field net.onnx --run x=1,48 --run x=1,96   any other file, at these shapes

Exit 1 if outputs are further from onnxruntime's, and from those of float64, than they may be, or a process took more
than its budget and 1 MiB.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import flexnn
from bench.cli import cli, tables, write_json
from bench.field.double import in_double, relative
from bench.models.half import as_half
from bench.models.subjects import NUMBERS, SUBJECTS, Shapes, Subject
from bench.peers.runtimes import bound_model
from bench.process import ALLOWANCE, MIB
from bench.process import flexnn as command
from bench.summary import median

Feed = dict[str, np.ndarray]

TOLERANCE, TOLERANCE_NARROW = 1e-3, 2e-2
"""Relative L2 errors that are right: of float32, and where activations are rounded to 8 or 16 bits."""
RUNS = 5


def feed_of(session: flexnn.Session, shapes: Shapes, scale: float, numbers: int = NUMBERS) -> Feed:
    """Seeded inputs: noise; integers 1 to ``numbers``, masks of ones, types of zeros; 16 kHz; whole lengths."""
    rng, feed = np.random.default_rng(0), {}
    for port in session.get_inputs():
        name = port.name
        if name not in shapes:
            raise ValueError(f"no shape for input {name} of shape {port.shape}")
        shape = shapes[name]
        if port.numpy_dtype.kind == "f":
            feed[name] = np.asarray(rng.standard_normal(shape) * scale, port.numpy_dtype)
        elif name == "sr":
            feed[name] = np.array(16000, np.int64)
        elif name == "length":
            feed[name] = np.full(shape, shapes["token_ids"][1], np.int64)
        else:
            low, high = (1, 2) if "mask" in name else (0, 1) if "type" in name else (1, numbers + 1)
            feed[name] = rng.integers(low, high, shape).astype(port.numpy_dtype)
    return feed


def _smallest(artifact: Path, feed: Feed, minimum: int = 1 << 16) -> int:
    """The smallest budget in bytes that opens and runs."""
    while True:
        try:
            with flexnn.Session(artifact, memory=minimum, threads=2) as session:
                session.run(None, feed)
            return minimum
        except flexnn.BudgetError as error:
            minimum = max(error.minimum, minimum + 1)


def _check(got: list[np.ndarray], want: list[np.ndarray], subject: Subject, path: Path, feed: Feed, half: bool) -> str:
    """The error as text; where it is too large, from what float64 gives. Raises AssertionError if that is, too."""
    limit = TOLERANCE_NARROW if half or subject.narrow else TOLERANCE
    error = relative(got, want)
    if error <= limit:
        return f"{error:.1e}"
    truth = [v.astype(w.dtype) for v, w in zip(in_double(str(path), feed), want, strict=True)]
    own = relative(got, truth)
    assert own <= limit, f"relative L2 errors: {error:.1e} from onnxruntime, {own:.1e} from float64; may be {limit:.0e}"
    return f"{own:.1e} from float64 (onnxruntime {relative(want, truth):.1e})"


def _run_alone(artifact: Path, feed: Feed, budget: int) -> list[np.ndarray]:
    """The outputs of a process of its own in this budget. Raises AssertionError where it took more."""
    given, got = artifact.with_suffix(".in.npz"), artifact.with_suffix(".out.npz")
    np.savez(given, **feed)
    options = ("--memory", budget, "--threads", 2, "--repeat", 3, "--input", given, "--output", got)
    report = command("run", artifact, *options)
    added = report["peak_rss"] - report["baseline_rss"]
    assert added <= budget + ALLOWANCE, f"took {added} bytes of a budget of {budget}"
    with flexnn.Session(artifact) as session, np.load(got) as outputs:
        return [outputs[port.name] for port in session.get_outputs()]


def compare(subject: Subject, folder: Path, half: bool = False) -> dict[str, Any]:
    """What ``--json`` writes of a model. ``half``: as float16. Raises AssertionError for what is wrong."""
    path = subject.fetch()
    if half:
        as_half(path, folder / path.name)
        path = folder / path.name
    artifact = folder / f"{subject.name}.flexnn"
    flexnn.compile(path, artifact, shapes=subject.bound)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its threads would slow what runs next
    source = bound_model(path, subject.bound) if subject.bound else str(path)
    peer = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    runs = []
    with flexnn.Session(artifact, threads=2) as session:
        for shapes in subject.runs:
            feed = feed_of(session, shapes, subject.scale, subject.numbers)
            want = peer.run(None, feed)
            error = _check(session.run(None, feed), want, subject, path, feed, half)
            times: list[list[float]] = [[], []]
            for _ in range(RUNS):
                for taken, run in zip(times, (session.run, peer.run), strict=True):
                    start = time.perf_counter()
                    run(None, feed)
                    taken.append(1e3 * (time.perf_counter() - start))
            own, other = (median(t) for t in times)
            runs.append({"shapes": shapes, "error": error, "ms": own, "onnxruntime_ms": other})
        whole = session.session_bytes
    smallest = _smallest(artifact, feed)
    budget = smallest * 3 // 2
    error = _check(_run_alone(artifact, feed, budget), want, subject, path, feed, half)
    size = artifact.stat().st_size
    artifact.unlink()
    sizes = {"artifact_bytes": size, "unlimited_bytes": whole, "smallest_bytes": smallest, "budget": budget}
    return {"model": subject.name, "runs": runs, **sizes, "error_in_budget": error}


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    cells = [f"{run['error']}, {run['ms']:.1f} ms (onnxruntime {run['onnxruntime_ms']:.1f})" for run in row["runs"]]
    sizes = f"artifact {row['artifact_bytes'] / 1e6:.1f} MB; unlimited {row['unlimited_bytes'] / MIB:.1f} MiB"
    budget = f"{row['error_in_budget']} in {row['budget'] / MIB:.1f} MiB"
    cells.append(f"{sizes}, smallest {row['smallest_bytes'] / MIB:.1f}; {budget}")
    return f"{row['model']:20} {' | '.join(cells)}"


def run_of(words: list[str]) -> Shapes:
    """What ``--run`` says: NAME=1,3,48 of each input; NAME= of a number."""
    shapes = {}
    for word in words:
        name, _, sizes = word.rpartition("=")
        shapes[name] = tuple(int(size) for size in sizes.split(",") if size)
    return shapes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.field", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a name, or an ONNX file; default: all")
    parser.add_argument("--all", action="store_true", help="those of large packages, too (68 MB more)")
    parser.add_argument("--half", action="store_true", help="as float16")
    parser.add_argument("--run", action="append", nargs="+", default=[], metavar="INPUT=SIZES", help="of a file")
    parser.add_argument("--scale", type=float, default=1.0, help="of a file: deviation of random inputs")
    parser.add_argument("--narrow", action="store_true", help="of a file: it is quantised between operators")
    parser.add_argument("--numbers", type=int, default=NUMBERS, help="of a file: integers are 1 to this")
    options = parser.parse_args(arguments)
    files = [Path(name) for name in options.names if name.endswith(".onnx")]
    parts = [name for name in options.names if not name.endswith(".onnx")]
    runs = tuple(run_of(words) for words in options.run)
    kind = {"scale": options.scale, "narrow": options.narrow, "numbers": options.numbers}
    subjects = [Subject(path.stem, path, runs, **kind) for path in files]
    if parts or not files:
        wanted = [s for s in SUBJECTS if any(part in s.name for part in parts)]
        subjects += wanted if parts else [s for s in SUBJECTS if options.all or not s.is_large]
    if files and not runs:
        parser.error("a file needs --run")
    rows: list[dict[str, Any]] = []
    out = tables(options.json).file
    with tempfile.TemporaryDirectory() as folder:
        for subject in subjects:
            try:
                rows.append(compare(subject, Path(folder), options.half))
                print(line(rows[-1]), file=out, flush=True)
            except (AssertionError, ValueError, RuntimeError, OSError, SystemExit) as error:
                rows.append({"model": subject.name, "failed": " ".join(str(error).split())})
                print(f"{subject.name:20} FAILED: {rows[-1]['failed'][:200]}", file=out, flush=True)
    write_json(options.json, rows)
    return 1 if any("failed" in row for row in rows) else 0
