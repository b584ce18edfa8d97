"""One process of bench.regress, run by a checkout's own Python: compiles, or times an artifact.

worker.py compile ONNX ARTIFACT SHAPES_JSON
worker.py time ARTIFACT THREADS MEMORY SECONDS SCALE CLOCK     prints the fastest run in ms

MEMORY "" is no limit. CLOCK: "wall", or "cpu", the process' CPU time.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flexnn

RUNS_MIN = 5


def inputs(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], scale: float) -> NDArray[Any]:
    """Normal numbers; whole ones are 0 or 1, which are indices of most tables."""
    whole = dtype.kind != "f"
    return (
        rng.integers(0, 2, shape).astype(dtype) if whole else np.float32(scale) * rng.standard_normal(shape, np.float32)
    )


def fastest_ms(artifact: str, threads: int, memory: str, seconds: float, scale: float, clock: str) -> float:
    now = time.process_time_ns if clock == "cpu" else time.perf_counter_ns
    rng = np.random.default_rng(0)
    with flexnn.Session(artifact, memory=memory or None, threads=threads) as session:
        feed = {i.name: inputs(rng, tuple(i.shape), i.numpy_dtype, scale) for i in session.get_inputs()}
        session.run(None, feed)
        times: list[int] = []
        end = time.perf_counter() + seconds
        while len(times) < RUNS_MIN or time.perf_counter() < end:
            start = now()
            session.run(None, feed)
            times.append(now() - start)
    return min(times) / 1e6  # what else runs on the machine only ever adds


if __name__ == "__main__":
    if sys.argv[1] == "compile":
        shapes = {name: tuple(shape) for name, shape in json.loads(sys.argv[4]).items()}
        flexnn.compile(sys.argv[2], sys.argv[3], shapes=shapes)
    else:
        path, threads, memory, seconds, scale, clock = sys.argv[2:]
        print(fastest_ms(path, int(threads), memory, float(seconds), float(scale), clock))
