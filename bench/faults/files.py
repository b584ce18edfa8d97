"""Damaged model files: every one must end in a clear error or a correct run.

    python -m bench.faults files                          2,000 mutations of artifacts and ONNX files
    python -m bench.faults files --count 200 --seed 7     other ones
    python -m bench.faults files --target tiny_           of those whose names begin so
    python -m bench.faults files --kinds onnx rule        of ONNX files
    python -m bench.faults files --only 1234              one again, with its traceback

Each mutation runs in a worker process: open under a budget, run once. A worker that dies is a crash, one that takes
over 10 s of CPU, or neither computes nor ends for 600 s, is a hang (seconds on a wall's clock pass on a busy or frozen
machine, too), an exception that is not one of FlexNN's own is unclear, peak memory over the budget + 64 MiB is
memory. A run whose numbers differ is silently wrong: from the undamaged file's for an artifact, from onnxruntime's on
the damaged file for an ONNX file (which has no checksums; where onnxruntime refuses what FlexNN runs, or numbers
overflow, nothing can be compared). Artifacts resealed under valid checksums are other models: only safety counts.
Models of which a node breaks a rule of the ONNX standard must be refused; one that compiles is taken.
Exit 1 if any mutation is wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import flexnn
from bench.cli import cli, tables, write_json
from bench.models.artifacts import artifact, artifact_of
from bench.models.catalogue import CATALOGUE
from bench.models.subjects import SUBJECTS
from bench.models.tiny import TINY
from bench.mutate import break_rule, damage, reseal, structure_of_artifact, structure_of_onnx
from bench.peers.runtimes import OnnxRuntime
from bench.process import ENVIRONMENT, cpu_seconds, reset_peak, status

TARGETS = (  # model, what is mutated
    ("mobilenet_v2_small", "artifact"),
    ("squeezenet1_1_small", "artifact"),
    ("mobilenet_v2_small", "resealed"),
    ("squeezenet1_1_small", "resealed"),
    ("mobilenet_v2_small", "onnx"),
    ("ppocr_v2_cls", "onnx"),
    ("dnsmos_v8", "onnx"),
    ("silero_vad_ifless", "artifact"),  # from here on: open shapes, branches, operators in numpy
    ("aecmos_1", "artifact"),
    ("silero_vad_ifless", "resealed"),
    ("aecmos_1", "resealed"),
    ("ppocr_v4_rec", "resealed"),
    ("silero_vad_ifless", "onnx"),
    ("aecmos_1", "onnx"),
    ("tiny_recurrent", "onnx"),
    ("tiny_recurrent", "resealed"),
    ("tiny_control", "onnx"),
    ("tiny_control", "resealed"),
    ("tiny_trees", "onnx"),
    ("surfaces_trees", "onnx"),
    ("mobilenet_v2_small", "rule"),
    ("aecmos_1", "rule"),
    ("tiny_control", "rule"),
)
ONNX = ("onnx", "rule")
"""Kinds of targets that are ONNX files: damaged anywhere, or with a node that breaks a rule of the standard."""
OPEN = {subject.name: subject for subject in (*SUBJECTS, *TINY)}
BUDGET = 64 << 20
MEMORY_SLACK = 64 << 20
ADDRESS_SPACE = 4 << 30
"""Bytes that a worker may map. The limit protects the machine and is far above the memory that is judged."""
SECONDS_MAX, WALL_SECONDS_MAX = 10.0, 600.0
"""Seconds of CPU of a mutation, and seconds on the clock, which judge a worker that waits for something for ever."""
FIRST_SECONDS = 30.0
"""Seconds of CPU more of a worker's first mutation: it imports and loads before."""
FEED_BYTES_MAX = 64 << 20
TOLERANCE = 1e-3
EXTREME = 1e12
CLEAR = (
    flexnn.ArtifactError,
    flexnn.CompileError,
    flexnn.GraphError,
    flexnn.BudgetError,
    flexnn.SessionError,
    OSError,
)
GOOD = ("clear error", "correct run", "ran, nothing to compare")


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a mutation: one of GOOD, or the name of a defect."""

    outcome: str
    detail: str = ""


class Judge:
    """The worker's part: makes mutations and runs them."""

    def __init__(self, folder: Path, artifacts: Path) -> None:
        self.folder = folder
        self.artifacts = artifacts
        self.files: dict[tuple[str, str], tuple[bytes, list[range]]] = {}
        self.expected: dict[str, list[np.ndarray[Any, Any]]] = {}

    def load(self, name: str, kind: str) -> tuple[bytes, list[range]]:
        """The undamaged file and where its structure lies."""
        if (name, kind) not in self.files:
            path = path_of(name) if kind in ONNX else self.undamaged(name)
            content = path.read_bytes()
            structure = structure_of_onnx(content) if kind in ONNX else structure_of_artifact(content)
            self.files[name, kind] = content, structure
        return self.files[name, kind]

    def undamaged(self, name: str) -> Path:
        """The artifact of a model."""
        if name not in OPEN:
            return artifact_of(CATALOGUE[name].path)
        return self.artifacts / f"{name}.flexnn"

    def judge(self, number: int, seed: int) -> Answer:
        name, kind = TARGETS[number % len(TARGETS)]
        rng = random.Random(f"{seed}.{number}")
        content, structure = self.load(name, kind)
        ways = {"resealed": reseal, "rule": break_rule}
        mutant = ways[kind](content, rng) if kind in ways else damage(content, structure, rng)
        path = self.folder / ("mutant.onnx" if kind in ONNX else "mutant.flexnn")
        path.write_bytes(mutant)
        try:
            feed, outputs, added = self.run(path, name, kind)
        except CLEAR as error:
            message = str(error)
            if "\n" in message.strip() or not message.strip():
                return Answer("unclear error", f"{type(error).__name__}: {message!r}")
            return Answer("clear error", f"{type(error).__name__}: {message}")
        except Exception:
            return Answer("unclear error", traceback.format_exc())
        if kind == "rule":
            return Answer("taken", "a model that breaks the standard")
        if added > BUDGET + MEMORY_SLACK:
            return Answer("memory", f"{added >> 20} MiB")
        if outputs is None or kind == "resealed":
            return Answer("ran, nothing to compare")
        return self.compare(path, name, kind, feed, outputs)

    def run(self, path: Path, name: str, kind: str) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]] | None, int]:
        """Inputs, outputs (None: the inputs are too large to make) and the bytes that the process grew by at most."""
        before = reset_peak()
        artifact_path = path
        if kind in ONNX:
            artifact_path = path.with_suffix(".compiled")
            flexnn.compile(path, artifact_path, shapes={} if name in OPEN else CATALOGUE[name].shapes)
        with flexnn.Session(artifact_path, memory=BUDGET, threads=2) as session:
            feed = feed_of(session.get_inputs(), name)
            if feed is None:
                return {}, None, status("VmHWM") - before
            outputs = session.run(None, feed)
            return feed, outputs, status("VmHWM") - before

    def compare(
        self, path: Path, name: str, kind: str, feed: dict[str, Any], outputs: list[np.ndarray[Any, Any]]
    ) -> Answer:
        if kind == "onnx":
            try:
                shapes = {k: v.shape for k, v in feed.items()} if name in OPEN else CATALOGUE[name].shapes
                expected = OnnxRuntime(path, shapes, threads=1).run(feed)
            except Exception as error:
                return Answer("ran, nothing to compare", f"onnxruntime: {str(error)[:200]}")
        else:
            if name not in self.expected:
                with flexnn.Session(self.undamaged(name), memory=BUDGET, threads=2) as session:
                    self.expected[name] = session.run(None, feed)
            expected = self.expected[name]
        for a, b in zip(map(_wide, outputs), map(_wide, expected), strict=True):
            if not np.isfinite(b).all():
                return Answer("ran, nothing to compare", "numbers overflow")
            if kind == "onnx" and has_extremes(path):
                return Answer(
                    "ran, nothing to compare", "a weight near the end of the numbers: the order of sums decides"
                )
            if a.shape != b.shape or not np.abs(a - b).max(initial=0) <= TOLERANCE * np.abs(b).max(initial=0):
                return Answer(
                    "silently wrong", f"{a.shape} off by {np.abs(a - b).max() if a.shape == b.shape else '?'}"
                )
        return Answer("correct run")


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values as float64, which can be subtracted."""
    return values.astype(np.float64)


def path_of(name: str) -> Path:
    """The ONNX file of a model."""
    return OPEN[name].path if name in OPEN else CATALOGUE[name].path


def make_targets(folder: Path) -> None:
    """Makes or fetches what is mutated; artifacts of open shapes go into ``folder``. Raises FetchError."""
    for name, kind in TARGETS:
        if name in OPEN:
            OPEN[name].fetch()
        elif kind in ONNX:
            CATALOGUE[name].make()
        else:
            artifact(CATALOGUE[name].make(), CATALOGUE[name].shapes)
    for name in {name for name, _ in TARGETS}.intersection(OPEN):
        flexnn.compile(path_of(name), folder / f"{name}.flexnn")


def feed_of(arguments: list[flexnn.session.NodeArg], name: str) -> dict[str, Any] | None:
    """Seeded inputs, whatever the file now says that these are; None if they are too large to make."""
    rng, usual = np.random.default_rng(0), OPEN[name].runs[0] if name in OPEN else {}
    shapes = {}
    for argument in arguments:
        given = usual.get(argument.name, ())
        sizes = (given[i] if i < len(given) else 2 for i in range(len(argument.shape)))
        shapes[argument.name] = [d if isinstance(d, int) else s for d, s in zip(argument.shape, sizes, strict=True)]
    if sum(4 * float(np.prod(shape, dtype=float)) for shape in shapes.values()) > FEED_BYTES_MAX:
        return None
    feed = {a.name: rng.standard_normal(shapes[a.name]).astype(a.numpy_dtype) for a in arguments}
    if "sr" in feed:
        feed["sr"] = np.full(shapes["sr"], 16000, feed["sr"].dtype)
    return feed


def has_extremes(path: Path) -> bool:
    """Return whether a weight of the ONNX file is huge or not finite."""
    model = onnx.load(path)
    tensors = [*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute if a.HasField("t"))]
    arrays = [onnx.numpy_helper.to_array(t) for t in tensors if t.data_type == onnx.TensorProto.FLOAT]
    return any(not np.abs(a).max(initial=0) < EXTREME for a in arrays)


def work(seed: int, artifacts: Path) -> None:
    """A worker: numbers of mutations come in, a line of JSON for each goes out."""
    import onnxruntime  # noqa: F401  (before memory is measured the first time)

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(Path(folder), artifacts)
        for line in sys.stdin:
            answer = judge.judge(int(line), seed)
            print(json.dumps([answer.outcome, answer.detail]), flush=True)


class Worker:
    """The parent's end of a worker process; started anew after a crash or a hang."""

    def __init__(self, seed: int, artifacts: Path) -> None:
        self.seed = seed
        self.artifacts = artifacts
        self.number = -1
        self.cpu_end = self.wall_end = 0.0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "bench.faults.files", "--work", str(self.artifacts), "--seed", str(self.seed)]
        environment = {**ENVIRONMENT, "PYTHONFAULTHANDLER": "1"}
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
        )

    def give(self, number: int, seconds: float) -> None:
        self.number = number
        self.cpu_end, self.wall_end = cpu_seconds(self.process.pid) + seconds, time.monotonic() + WALL_SECONDS_MAX
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()

    def take(self) -> Answer:
        """The answer that is ready, or what the end of the process means."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return Answer(*json.loads(line))
        code = self.process.wait()
        self.log.seek(0)
        answer = Answer("crash", f"status {code}\n{self.log.read().decode(errors='replace')[-2000:]}")
        self.start()
        return answer

    def hangs(self) -> bool:
        """Return whether the mutation has taken too long; a worker that has ended answers for itself."""
        return cpu_seconds(self.process.pid) > self.cpu_end or time.monotonic() > self.wall_end

    def kill(self) -> Answer:
        self.process.kill()
        self.process.wait()
        self.start()
        return Answer("hang", f"over {SECONDS_MAX:.0f} s of CPU or {WALL_SECONDS_MAX:.0f} s")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def fuzz(numbers: list[int], seed: int, processes: int, artifacts: Path, console: Console) -> dict[int, Answer]:
    """Every mutation's answer, by number. ``artifacts``: a folder with those of open shapes."""
    workers = [Worker(seed, artifacts) for _ in range(processes)]
    answers: dict[int, Answer] = {}
    waiting = iter(numbers)
    started: set[Worker] = set()
    with selectors.DefaultSelector() as selector, Progress(console=console) as progress:
        task = progress.add_task("mutations", total=len(numbers))

        def next_job(worker: Worker) -> None:
            number = next(waiting, None)
            if number is None:
                worker.close()
                return
            worker.give(number, SECONDS_MAX if worker in started else SECONDS_MAX + FIRST_SECONDS)
            started.add(worker)
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

        def done(worker: Worker, answer: Answer) -> None:
            answers[worker.number] = answer
            if answer.outcome in ("crash", "hang"):
                started.discard(worker)
            progress.advance(task)
            next_job(worker)

        for worker in workers:
            next_job(worker)
        while selector.get_map():
            for key, _ in selector.select(timeout=0.2):
                selector.unregister(key.fileobj)
                done(key.data, key.data.take())
            for key in list(selector.get_map().values()):
                if key.data.hangs():
                    selector.unregister(key.fileobj)
                    done(key.data, key.data.kill())
    return answers


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults files", __doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--target", default="", help="only these: what their names begin with")
    parser.add_argument("--kinds", nargs="+", choices=sorted({kind for _, kind in TARGETS}), help="only these kinds")
    parser.add_argument("--only", type=int, help="one mutation, by its number")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.seed, options.work)
        return 0
    kinds = options.kinds or [kind for _, kind in TARGETS]
    wanted = [i for i, (name, kind) in enumerate(TARGETS) if name.startswith(options.target) and kind in kinds]
    if not wanted:
        parser.error(f"no target of these kinds begins with {options.target}")
    rounds = -(-options.count // len(wanted))
    numbers = [k * len(TARGETS) + i for k in range(rounds) for i in wanted][: options.count]
    if options.only is not None:
        numbers = [options.only]
    with tempfile.TemporaryDirectory() as folder:
        make_targets(Path(folder))
        answers = fuzz(numbers, options.seed, options.processes, Path(folder), Console(stderr=True))
    rows = {n: [*TARGETS[n % len(TARGETS)], a.outcome, a.detail] for n, a in sorted(answers.items())}
    write_json(options.json, rows)
    bad = show(answers, tables(options.json))
    return 1 if bad else 0


def show(answers: dict[int, Answer], console: Console) -> int:
    """The table, and each wrong mutation's number and detail; how many there are."""
    counts = collections.Counter((TARGETS[n % len(TARGETS)], a.outcome) for n, a in answers.items())
    outcomes = [*GOOD, *sorted({a.outcome for a in answers.values()} - set(GOOD))]
    table = Table("file", *outcomes, title=f"{len(answers)} mutations")
    for target in TARGETS:
        table.add_row(" ".join(target), *(str(counts[target, outcome]) for outcome in outcomes))
    console.print(table)
    bad = {n: a for n, a in sorted(answers.items()) if a.outcome not in GOOD}
    for number, answer in bad.items():
        console.print(
            f"{number} ({' '.join(TARGETS[number % len(TARGETS)])}): {answer.outcome}: {answer.detail}", markup=False
        )
    if len(answers) == 1 and not bad:
        console.print(next(iter(answers.values())).detail, markup=False)
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())
