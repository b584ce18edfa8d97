"""Damaged files of models, and what each runtime does with its own: FlexNN with the artifact, onnxruntime with the ONNX
file, ncnn and MNN with what their converters made of it, where they are installed.

    python -m bench.faults peers                       2,000 mutations of each
    python -m bench.faults peers --count 200 --runtime onnxruntime ncnn

Each mutation is loaded and run once, in a process of its own. The damage is that of bench.faults files: bits, bytes,
lengths; half of it hits what is not weights, the rest any byte. ncnn has two files, one of them is hit. ncnn and MNN
have the model of six layers only: they do not convert the others. Answers: refused (an error that Python can catch),
right (the undamaged file's numbers), other numbers (without an error), crash (the process ends), hang (over 10 s).
"""

from __future__ import annotations

import collections
import importlib.util
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.faults.mutants import TOLERANCE, write_layers
from bench.models.inputs import Feed
from bench.models.tiny import TINY
from bench.mutate import damage, structure_of_artifact, structure_of_onnx
from bench.peers.converted import Mnn, Ncnn, has_pnnx, mnn_file, ncnn_file
from bench.peers.runtimes import OnnxRuntime, Peer

SECONDS_MAX = 10
ADDRESS_SPACE = 8 << 30
LAYERS = {"x": (1, 8, 6, 6)}
ANSWERS = ("refused", "right", "other numbers", "crash", "hang")
RIGHT, OTHER, REFUSED = 0, 1, 2
"""Statuses of a mutation's process."""


class FlexNN:
    """FlexNN on an artifact."""

    def __init__(self, path: Path, shapes: object, threads: int) -> None:
        self._session = flexnn.Session(path, memory="64MiB", threads=threads)

    def run(self, feed: Feed) -> list[np.ndarray[Any, Any]]:
        return self._session.run(None, feed)

    def close(self) -> None:
        self._session.close()


class Target:
    """A model in the files of a runtime."""

    def __init__(self, name: str, make: Callable[..., Peer], files: list[Path], shapes: dict[str, Any]) -> None:
        self.name, self.make = name, make
        self.names = [file.name for file in files]
        self.contents = [file.read_bytes() for file in files]
        self.structures = [structure(file, content) for file, content in zip(files, self.contents, strict=True)]
        rng = np.random.default_rng(0)
        self.feed = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        self.expected = apart(lambda: self.run(files[0]))

    def run(self, path: Path) -> list[np.ndarray[Any, Any]]:
        """Load and run the model."""
        shapes = {name: values.shape for name, values in self.feed.items()}
        peer = self.make(path, {} if self.make is OnnxRuntime else shapes, threads=1)
        return [np.asarray(output) for output in peer.run(self.feed)]

    def damage(self, folder: Path, rng: random.Random) -> Path:
        """Write the files, one of them damaged; return the path of the first."""
        hit = rng.randrange(len(self.names))
        for number, (name, content, spans) in enumerate(zip(self.names, self.contents, self.structures, strict=True)):
            (folder / name).write_bytes(damage(content, spans, rng) if number == hit else content)
        return folder / self.names[0]

    def status(self, path: Path) -> int:
        """Load and run; return what came of it."""
        try:
            outputs = self.run(path)
        except Exception:
            return REFUSED
        pairs = list(zip(outputs, self.expected, strict=False))
        is_right = len(outputs) == len(self.expected) and all(
            a.shape == b.shape and np.abs(a - b).max(initial=0) <= TOLERANCE * np.abs(b).max(initial=0)
            for a, b in pairs
        )
        return RIGHT if is_right else OTHER


def structure(file: Path, content: bytes) -> list[range]:
    """The bytes of a file that are not weights, as far as this can be told."""
    if file.suffix == ".onnx":
        return structure_of_onnx(content)
    return structure_of_artifact(content) if file.suffix == ".flexnn" else [range(len(content))]


def apart(run: Callable[[], list[np.ndarray[Any, Any]]]) -> list[np.ndarray[Any, Any]]:
    """Run in a child: runtimes start threads, which a process that forks must not have."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if not pid:
            try:
                np.savez(f"{folder}/outputs.npz", *run())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        with np.load(f"{folder}/outputs.npz") as outputs:
            return [outputs[name] for name in outputs.files]


def answer(target: Target, path: Path) -> str:
    """Run in a child that may crash or hang; return what came of it."""
    pid = os.fork()
    if not pid:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1), os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
        signal.alarm(6 * SECONDS_MAX)  # one that waits, on a machine with much else to do
        os._exit(target.status(path))
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL) else "crash"
    return {RIGHT: "right", OTHER: "other numbers", REFUSED: "refused"}.get(os.WEXITSTATUS(status), "crash")


def targets(folder: Path) -> dict[str, list[Target]]:
    """Make the files of every runtime that is installed."""
    models = {"layers": (write_layers(folder / "layers.onnx"), LAYERS)}
    models |= {tiny.name: (tiny.fetch(), dict(tiny.runs[0])) for tiny in TINY}
    made: dict[str, list[Target]] = {"FlexNN": [], "onnxruntime": []}
    for name, (path, shapes) in models.items():
        artifact = Path(flexnn.compile(path, folder / f"{name}.flexnn"))
        made["FlexNN"].append(Target(name, FlexNN, [artifact], shapes))
        made["onnxruntime"].append(Target(name, OnnxRuntime, [path], shapes))
    layers = models["layers"][0]
    if importlib.util.find_spec("ncnn") and has_pnnx():
        param = ncnn_file(layers, LAYERS)
        made["ncnn"] = [Target("layers", Ncnn, [param, param.with_suffix(".bin")], LAYERS)]
    if importlib.util.find_spec("MNN"):
        made["MNN"] = [Target("layers", Mnn, [mnn_file(layers)], LAYERS)]
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.faults peers", __doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runtime", nargs="+", help="only these")
    options = parser.parse_args(arguments)
    for name in ("onnxruntime", "ncnn", "MNN"):
        if importlib.util.find_spec(name):
            importlib.import_module(name)  # once, before the processes are made
    shown = table(f"{options.count} mutations of each, seed {options.seed}", "runtime", *ANSWERS)
    rows: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for runtime, every in targets(Path(folder)).items():
            if options.runtime and runtime not in options.runtime:
                continue
            counts: collections.Counter[str] = collections.Counter()
            rng = random.Random()
            work = Path(folder) / "damaged"
            work.mkdir(exist_ok=True)
            for number in range(options.count):
                rng.seed(f"{options.seed}.{number}")
                target = every[number % len(every)]
                counts[answer(target, target.damage(work, rng))] += 1
            rows[runtime] = dict(counts)
            print(runtime, rows[runtime], file=sys.stderr, flush=True)
            shown.add_row(runtime, *(str(counts[name]) for name in ANSWERS))
    write_json(options.json, rows)
    tables(options.json).print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
