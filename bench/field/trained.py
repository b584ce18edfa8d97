"""Trained models out of packages that people install, as they are: open shapes, control flow, recurrent, quantised.

python -m bench.field              fetches each, runs it at its shapes beside onnxruntime; figures of all, and each case
python -m bench.field silero lac   those whose names match
python -m bench.field --all        those of large packages, too
python -m bench.field --half ocr   float32 models converted to float16
python -m bench.field --hosted     what numpy computes while they run, and its share of the time
python -m bench.field net.onnx --run x=1,48 --run x=1,96   any other file, at these shapes

A case is a model at one of its shapes. Each has: relative L2 errors; its time over onnxruntime's, warm, in turns; first
runs after opening and at shapes that the session has not seen; the smallest budget, and how many refusals name it; the
time at 1.5 of that over the time without limit, and in a process of its own the memory that it takes.

Exit 1 if outputs are further from onnxruntime's, and from those of float64, than they may be, or a process took more
than its budget and 1 MiB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import STDOUT, cli, tables, write_json
from bench.field.budget import SHARE, Feed, kept, run_alone, smallest, timed_in_budget
from bench.field.digest import digest, line, lines
from bench.field.double import in_double, relative
from bench.field.first import first_runs
from bench.field.hosted import hosted, hosted_line, hosted_lines
from bench.field.peer import onnx_source, peer_session
from bench.models.half import as_half
from bench.models.subjects import NUMBERS, SUBJECTS, Shapes, Subject
from bench.rounds import in_turns, ratio
from flexnn.graph import load_model
from flexnn.units import parse_shape

TOLERANCE, TOLERANCE_NARROW = 1e-3, 2e-2
"""Relative L2 errors that are right: of float32, and where activations are rounded to 8 or 16 bits."""
SECONDS = 0.6
"""Time for each comparison of a case."""


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


class Field:
    """The comparisons of a model: ``path``, compiled as ``artifact``, with a number of threads."""

    def __init__(self, subject: Subject, folder: Path, *, threads: int, seconds: float, half: bool) -> None:
        self.subject, self.threads, self.seconds = subject, threads, seconds
        self.path = subject.fetch()
        if half:
            as_half(self.path, folder / self.path.name)
            self.path = folder / self.path.name
        self.limit = TOLERANCE_NARROW if half or subject.narrow else TOLERANCE
        self.artifact = folder / f"{subject.name}.flexnn"
        flexnn.compile(self.path, self.artifact, shapes=subject.bound)
        self.source = onnx_source(self.path, subject.bound)
        with self.opened() as session:
            self.feeds = [feed_of(session, s, subject.scale, subject.numbers) for s in subject.runs]

    def opened(self) -> flexnn.Session:
        """Return a session without limit."""
        return flexnn.Session(self.artifact, threads=self.threads)

    def check(self, got: list[np.ndarray], want: list[np.ndarray], feed: Feed) -> str:
        """The error as text; where it is too large, from what float64 gives. AssertionError: that is, too."""
        error = relative(got, want)
        if error <= self.limit:
            return f"{error:.1e}"
        truth = [v.astype(w.dtype) for v, w in zip(in_double(str(self.path), dict(feed)), want, strict=True)]
        own = relative(got, truth)
        told = f"relative L2 errors: {error:.1e} from onnxruntime, {own:.1e} from float64; may be {self.limit:.0e}"
        assert own <= self.limit, told
        return f"{own:.1e} from float64 (onnxruntime {relative(want, truth):.1e})"

    def warm(self, peer: Any) -> list[dict[str, Any]]:
        """Each case's error, and its time beside onnxruntime's after both ran it twice."""
        found = []
        with self.opened() as session:
            for shapes, feed in zip(self.subject.runs, self.feeds, strict=True):
                runs = {"own": partial(session.run, None, feed), "onnxruntime": partial(peer.run, None, feed)}
                error = self.check(runs["own"](), runs["onnxruntime"](), feed)
                runs["own"]()
                taken = in_turns(runs, self.seconds)
                case = {"shapes": shapes, "error": error, **{name: t.row() for name, t in taken.items()}}
                case["ratio"] = ratio(taken["own"], taken["onnxruntime"])
                case["ratio_p95"] = taken["own"].p95 / taken["onnxruntime"].p95
                found.append(case)
        return found

    def budgeted(self, case: int, peer: Any) -> dict[str, Any]:
        """The case's smallest budget, and what it takes in 1.5 of that. AssertionError: it is wrong or takes more."""
        feed = self.feeds[case]
        least = smallest(self.artifact, feed, self.threads)
        budget = int(SHARE * least.memory)
        with self.opened() as session:
            timed = timed_in_budget(session, self.artifact, feed, budget, self.seconds / 2)
        got, taken = run_alone(self.artifact, feed, budget, self.threads)
        assert kept(taken, budget), f"took {taken} bytes of a budget of {budget}"
        return {
            "smallest_bytes": least.memory,
            "refusals": least.refusals,
            "first_named_bytes": least.first_named,
            "smallest_session_bytes": least.session_bytes,
            "budget": budget,
            **timed,
            "taken_bytes": taken,
            "error_in_budget": self.check(got, peer.run(None, feed), feed),
        }

    def row(self) -> dict[str, Any]:
        """Return the model's row of ``--json``. AssertionError: it is wrong."""
        peer = peer_session(self.source, self.threads)
        cases = self.warm(peer)
        openers = {"own": self.opened, "onnxruntime": partial(peer_session, self.source, self.threads)}
        first = first_runs(openers, self.feeds)
        for number, case in enumerate(cases):
            case |= {"unlimited_bytes": first.session_bytes[number], **first.row(number)}
            case |= self.budgeted(number, peer)
        nodes = sum(len(graph.nodes) for graph in load_model(str(self.path)).graph.walk())
        size = self.artifact.stat().st_size
        self.artifact.unlink()
        return {"model": self.subject.name, "nodes": nodes, "artifact_bytes": size, "cases": cases}

    def hosted_row(self) -> dict[str, Any]:
        """Return what numpy computes in a run of each case."""
        rows = [hosted(self.opened(), feed, self.seconds) for feed in self.feeds]
        self.artifact.unlink()
        return {"model": self.subject.name, "cases": rows}


def run_of(words: list[str]) -> Shapes:
    """Return the shapes that ``--run`` names: NAME=1,3,48 for each input, NAME= for a scalar."""
    try:
        return dict(parse_shape(word) for word in words)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None


def _told(row: dict[str, Any]) -> str:
    """Return a row as text."""
    if "failed" in row:
        return f"{row['model']:20} FAILED: {row['failed'][:200]}"
    return line(row) if "nodes" in row else hosted_line(row)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.field", __doc__, threads=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a name, or an ONNX file; default: all")
    parser.add_argument("--all", action="store_true", help="those of large packages, too (68 MB more)")
    parser.add_argument("--half", action="store_true", help="as float16")
    parser.add_argument("--hosted", action="store_true", help="only what numpy computes while they run")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each comparison of a case ({SECONDS})")
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
                field = Field(
                    subject, Path(folder), threads=options.threads, seconds=options.seconds, half=options.half
                )
                rows.append(field.hosted_row() if options.hosted else field.row())
            except (AssertionError, ValueError, RuntimeError, OSError, SystemExit) as error:
                rows.append({"model": subject.name, "failed": " ".join(str(error).split())})
            print(_told(rows[-1]), file=out, flush=True)
            if options.json != STDOUT:  # a run that is stopped leaves what it has
                write_json(options.json, {"threads": options.threads, "models": rows})
    figures = {} if options.hosted else digest(rows)
    for text in hosted_lines(rows) if options.hosted else lines(figures):
        print(text, file=out)
    write_json(options.json, {"threads": options.threads, "models": rows, "figures": figures})
    return 1 if any("failed" in row for row in rows) else 0
