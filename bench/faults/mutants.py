"""Damaged artifacts and headers, many in one process: what bench.faults files does in a process of its own each.

    python -m bench.faults mutants artifacts --count 10000     opened and run; half of them with right checksums
    python -m bench.faults mutants headers --count 1000000     128 bytes each; half of them with a right checksum

A sanitizer may be loaded before Python (.ci/sanitize does). Wrong is: a crash, one that cannot be cancelled, an
exception that is not one of FlexNN's own, memory beyond the budget and 64 MiB, other outputs than the undamaged file's,
a header that is taken and whose sections do not fit the file. A crash, a hang and memory end the process. The seed is
printed; ``--first N --count 1 --seed S`` makes one mutation again. Exit 1 if any mutation is wrong.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import flexnn
from bench.cli import cli
from bench.faults.micro import KEPT, MICRO, SEVERAL, TIGHT, write_micro
from bench.models.tiny import TINY
from bench.mutate import EXTREMES, damage, meaning_of_artifact, reseal
from flexnn._core import crc32c
from flexnn.artifact.format import HEADER_BYTES, LAYOUT, PAGE, ArtifactError, Header
from flexnn.planning import MachineProfile

BUDGET = 64 << 20
MEMORY_SLACK = 64 << 20
SECONDS_MAX = 10
"""A run that takes more time of a CPU is cancelled: another model may loop for hours, which is right."""
HANG_SECONDS, HANG_EVERY = 600, 64
"""Within this time as many mutations end, or Python does not come back from one: it hangs."""
WARM = 50
"""Mutations after which the process's peak is taken as that of a process that has done all kinds of work."""
SHARES = {"layers": 2, "tiny_trees": 2, "tiny_recurrent": 0.5, "tiny_control": 0.5} | dict.fromkeys(MICRO, 2)
SHARES |= dict.fromkeys(TIGHT, 0.5)
"""How often each model is damaged: a run of tiny_recurrent and tiny_control takes five times as long as one of the
smallest, and plans of tight budgets are searched for."""
MEASURED = 0.1
"""The share of sessions that plan with what was measured of the machine: they plan twice, and plans are most of the
time that a mutation takes."""
MEANT = 0.95
"""The share of the damage that hits bytes with a meaning: small artifacts are mostly the zeros that fill pages."""
TOLERANCE = 1e-5
TEXT, TEXTS = "tensor(string)", ["red", "blue", "green", "none of them"]
"""Type of inputs that are texts, and what these are."""
RATES = MachineProfile(1e11, 1e10)
"""Rates that plans are made for. Those of a sanitized build are so slow that each read would hide behind computing, and
no slice would stay for a phase of the run.
"""
REPORTS, REPORT_MAX = 20, 10_000
"""Reports of a run, and mutations between two of them at most."""


def write_layers(path: Path) -> Path:
    """Write a closed model of six small layers."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.random((16, 8, 3, 3), np.float32), "g": rng.random((16, 5), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("MatMul", ["f", "g"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class SlowError(BaseException):
    """A mutation took too long and was cancelled."""


class WrongError(Exception):
    """A mutation got another answer than a clear error or right outputs."""


class Subject:
    """An artifact, its bytes, and what a run of it gives."""

    def __init__(self, artifact: Path) -> None:
        self.name = artifact.stem
        self.content = artifact.read_bytes()
        self.meaning = meaning_of_artifact(artifact)
        self.memory = BUDGET
        self.sizes = SEVERAL.get(self.name, (2,))
        if self.name in TIGHT:
            with flexnn.Session(artifact, memory=BUDGET, threads=1, profile="analytic") as session:
                self.memory = max(smallest(session, size) for size in self.sizes) + TIGHT[self.name]
        self.outputs = run(artifact, self.memory, "analytic", self.sizes)

    def damaged(self, rng: random.Random) -> bytes:
        """Return a mutation; of MEANT of them some byte differs that has a meaning."""
        is_meant = rng.random() < MEANT
        while True:
            mutant = damage(self.content, self.meaning, rng, 1 if is_meant else 0)
            if not is_meant or len(mutant) != len(self.content):
                return mutant
            if any(mutant[span.start : span.stop] != self.content[span.start : span.stop] for span in self.meaning):
                return mutant


def feed(session: flexnn.Session, size: int) -> dict[str, np.ndarray[Any, Any]] | None:
    """Return seeded inputs, where open sizes are this one; None where the file says that they are too large to make."""
    ports = [(i, [d if isinstance(d, int) else size for d in i.shape]) for i in session.get_inputs()]
    if sum(np.prod(shape, dtype=float) for _, shape in ports) > BUDGET / 8:
        return None
    rng = np.random.default_rng(0)
    return {
        i.name: rng.choice(TEXTS, shape) if i.type == TEXT else rng.standard_normal(shape).astype(i.numpy_dtype)
        for i, shape in ports
    }


def smallest(session: flexnn.Session, size: int) -> int:
    """Return the smallest budget of a run of this size."""
    session.run(None, feed(session, size) or {})
    return session.plan.minimum_memory


def run(
    artifact: Path, memory: int, profile: str | None = None, sizes: Sequence[int] = (2,)
) -> list[np.ndarray[Any, Any]] | None:
    """Return the last outputs for seeded inputs, where open sizes are these in turn; None where the file says that
    inputs are too large to make.
    """
    outputs = None
    with flexnn.Session(artifact, memory=memory, threads=1, profile=profile) as session:
        for size in sizes:
            inputs = feed(session, size)
            if inputs is None:
                return None
            outputs = session.run(None, inputs)
    return outputs


def alike(given: Any, wanted: Any) -> bool:
    """Whether outputs are the same texts, or numbers within the tolerance."""
    a, b = np.asarray(given), np.asarray(wanted)
    if b.dtype == object:
        return bool(a.tolist() == b.tolist())
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0) <= TOLERANCE * np.abs(b).max(initial=0))


def subjects(folder: Path) -> list[Subject]:
    """Compile the small models."""
    sources = {"layers": write_layers(folder / "layers.onnx")} | {subject.name: subject.path for subject in TINY}
    sources |= {name: write_micro(name, folder / f"{name}.onnx") for name in MICRO}
    for subject in TINY:
        subject.fetch()
    made = [flexnn.compile(path, folder / f"{name}.flexnn", keep=KEPT.get(name)) for name, path in sources.items()]
    return [Subject(Path(path)) for path in made]


def artifacts(folder: Path) -> Callable[[random.Random], str]:
    """Return what makes a mutation of an artifact, runs it, and says what came of it."""
    every, target = subjects(folder), folder / "mutant.flexnn"
    shares = [SHARES[subject.name] for subject in every]
    file = os.open(target, os.O_RDWR | os.O_CREAT)  # never cut to nothing: some file systems then write it to the disk

    def one(rng: random.Random) -> str:
        (subject,), is_sealed = rng.choices(every, shares), rng.random() < 0.5
        mutant = reseal(subject.content, rng) if is_sealed else subject.damaged(rng)
        os.pwrite(file, mutant, 0)
        os.ftruncate(file, len(mutant))
        try:
            outputs = run(target, subject.memory, None if rng.random() < MEASURED else "analytic", subject.sizes)
        except (flexnn.FlexNNError, OSError, MemoryError) as error:
            if not str(error).strip() or "\n" in str(error).strip():
                raise WrongError(f"unclear: {error!r}") from None
            return type(error).__name__
        if is_sealed or outputs is None:
            return "ran, another model"
        assert subject.outputs is not None
        if not all(alike(a, b) for a, b in zip(outputs, subject.outputs, strict=True)):
            raise WrongError(f"silently wrong: {subject.name}")
        return "ran, right"

    return one


def headers(_: Path) -> Callable[[random.Random], str]:
    """Return what makes a mutation of a header, reads it, and says what came of it."""
    names = list(LAYOUT)
    places = {name: struct.calcsize("<" + "".join(LAYOUT[n] for n in names[:i])) for i, name in enumerate(names)}
    numbers = [(places[name], 4 if LAYOUT[name] == "I" else 8) for name in names if LAYOUT[name] in "IQ"]
    good = Header(16, 1, 5 * PAGE, HEADER_BYTES, 1000, 1128, 3, PAGE, 4 * PAGE, bytes(32), 1, 2).pack()
    Header.unpack(good, 5 * PAGE)

    def one(rng: random.Random) -> str:
        raw, kind, size = bytearray(good), rng.getrandbits(4), 5 * PAGE
        for _ in range(1 + (kind & 1)):
            if kind & 2:
                raw[rng.randrange(HEADER_BYTES)] ^= 1 << rng.getrandbits(3)
                continue
            at, width = rng.choice(numbers)
            value = int.from_bytes(raw[at : at + width], "little") + rng.choice((-PAGE, -4, -1, 1, 4, PAGE))
            raw[at : at + width] = (rng.choice(EXTREMES) if kind & 4 else value).to_bytes(9, "little", signed=True)[
                :width
            ]
        if kind & 8:
            raw[-4:] = crc32c(bytes(raw[:-4])).to_bytes(4, "little")
        if not rng.getrandbits(6):
            size = rng.choice((0, PAGE, 6 * PAGE, (1 << 46) + PAGE))
        try:
            header = Header.unpack(bytes(raw), size)
        except ArtifactError:
            return "refused"
        graph_end, table_end = header.graph_offset + header.graph_bytes, header.crc_offset + 4 * header.crc_count
        fits = HEADER_BYTES <= header.graph_offset <= graph_end <= header.crc_offset <= table_end <= header.data_offset
        if not fits or header.data_offset + header.data_bytes != size or header.data_offset % PAGE:
            raise WrongError(f"taken: {header}")
        return "taken"

    return one


def play(one: Callable[[random.Random], str], seed: int, numbers: range, seconds: float) -> int:
    """Make these mutations until one is wrong or the time is over; print what came of them."""
    counts: collections.Counter[str] = collections.Counter()
    started, base, every = time.monotonic(), 0, min(max(1, len(numbers) // REPORTS), REPORT_MAX)
    rng = random.Random()
    number = numbers.start - 1
    for number in numbers:
        rng.seed(f"{seed}.{number}")
        if number % HANG_EVERY == 0 or number == numbers.start:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
            counts[one(rng)] += 1
            signal.setitimer(signal.ITIMER_PROF, 0)
        except SlowError:
            counts["cancelled"] += 1
        except Exception:
            counts["WRONG"] += 1
            print(f"WRONG: --seed {seed} --first {number} --count 1\n{traceback.format_exc()}", flush=True)
        done = number - numbers.start + 1
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 if done >= WARM and not done % 16 else 0
        base = base or peak
        if peak > base + BUDGET + MEMORY_SLACK:
            raise WrongError(f"memory: {(peak - base) >> 20} MiB by --seed {seed}, number {number} or the 16 before it")
        if done % every == 0:
            print(f"{done} {time.monotonic() - started:.0f} s {dict(counts)}", flush=True)
        if time.monotonic() - started > seconds:
            break
    print(f"{number - numbers.start + 1} mutations, {counts['WRONG'] or 'none'} wrong: {dict(counts)}", flush=True)
    return 1 if counts["WRONG"] else 0


def _cancel(*_: object) -> None:
    raise SlowError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults mutants", __doc__)
    parser.add_argument("kind", choices=("artifacts", "headers"))
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end early")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    faulthandler.enable()
    signal.signal(signal.SIGPROF, _cancel)
    made = {"artifacts": artifacts, "headers": headers}[options.kind]
    rates = mock.patch.object(MachineProfile, "measure", return_value=RATES)
    with rates, tempfile.TemporaryDirectory() as folder:  # on a disk: a thread of its own reads files of tmpfs
        numbers = range(options.first, options.first + options.count)
        return play(made(Path(folder)), options.seed, numbers, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
