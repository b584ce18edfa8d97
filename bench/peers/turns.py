"""Peers in processes of their own, which take turns: neither threads that still spin nor memory of one slow another.

A worker is ``python -m bench.peers.turns PEER MODEL SHAPES THREADS MEMORY FEED`` (shapes as JSON, the feed an .npz
file). It opens the peer, says so, and answers each line on stdin, a number of seconds, by a JSON list of the
milliseconds of each run in that time, or, after "save PATH", writes its outputs there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bench import ROOT
from bench.models.inputs import Feed, Shapes
from bench.peers.runtimes import PEERS, FlexNN, Peer
from bench.process import ENVIRONMENT

BLOCK_RUNS_MIN = 3


def block(peer: Peer, feed: Feed, seconds: float) -> list[float]:
    """Milliseconds of each run of one turn, after one that does not count."""
    peer.run(feed)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < BLOCK_RUNS_MIN or time.perf_counter() < end:
        start = time.perf_counter_ns()
        peer.run(feed)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


class Worker:
    """A peer opened in a process of its own, by ``python``."""

    def __init__(
        self, python: Path, name: str, model: Path, shapes: Shapes, threads: int, memory: str | None, feed: Path
    ) -> None:
        arguments = [name, str(model), json.dumps(shapes), str(threads), memory or "", str(feed)]
        self._process = subprocess.Popen(
            [str(python), "-m", "bench.peers.turns", *arguments],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._name = name
        self._answer()

    def _pipe(self, pipe: IO[str] | None) -> IO[str]:
        assert pipe
        return pipe

    def _answer(self) -> Any:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            told = self._pipe(self._process.stderr).read().strip().splitlines()
            raise RuntimeError(f"{self._name} fails: {told[-1] if told else 'without a word'}")
        return json.loads(line)

    def _ask(self, line: str) -> Any:
        stdin = self._pipe(self._process.stdin)
        stdin.write(line + "\n")
        stdin.flush()
        return self._answer()

    def block(self, seconds: float) -> list[float]:
        """Milliseconds of each run in a turn of so many seconds."""
        times: list[float] = self._ask(str(seconds))
        return times

    def outputs(self) -> list[NDArray[Any]]:
        """What it makes of the feed."""
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            self._ask(f"save {file.name}")
            with np.load(file.name) as saved:
                return [saved[name] for name in saved.files]

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _serve(answers: IO[str], arguments: list[str]) -> None:
    name, model, shapes_json, threads, memory, feed_path = arguments
    shapes = {key: tuple(shape) for key, shape in json.loads(shapes_json).items()}
    with np.load(feed_path) as saved:
        feed = {key: saved[key] for key in saved.files}
    peer: Peer
    if name == "flexnn":
        peer = FlexNN(Path(model), int(threads), memory or None)
    else:
        peer = PEERS[name](Path(model), shapes, int(threads))
    answer: Any = "open"
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            return
        if line.startswith("save "):
            np.savez(line.removeprefix("save "), *peer.run(feed))
            answer = "saved"
        else:
            answer = block(peer, feed, float(line))


if __name__ == "__main__":
    # Peers print what they please: that goes to stderr, answers go to what was stdout.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _serve(out, sys.argv[1:])
