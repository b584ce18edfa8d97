"""One process of bench.regress, run by a checkout's own Python: compiles, or times an artifact.

worker.py compile ONNX ARTIFACT SHAPES_JSON
worker.py time ARTIFACT THREADS MEMORY SECONDS SCALE     prints the fastest run in ms; MEMORY "" is no limit
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import flexnn

RUNS_MIN = 5


def fastest_ms(artifact: str, threads: int, memory: str, seconds: float, scale: float) -> float:
    rng = np.random.default_rng(0)
    with flexnn.Session(artifact, memory=memory or None, threads=threads) as session:
        feed = {
            i.name: np.float32(scale) * rng.standard_normal(tuple(i.shape), np.float32) for i in session.get_inputs()
        }
        session.run(None, feed)
        times: list[int] = []
        end = time.perf_counter() + seconds
        while len(times) < RUNS_MIN or time.perf_counter() < end:
            start = time.perf_counter_ns()
            session.run(None, feed)
            times.append(time.perf_counter_ns() - start)
    return min(times) / 1e6  # what else runs on the machine only ever adds


if __name__ == "__main__":
    if sys.argv[1] == "compile":
        shapes = {name: tuple(shape) for name, shape in json.loads(sys.argv[4]).items()}
        flexnn.compile(sys.argv[2], sys.argv[3], shapes=shapes)
    else:
        path, threads, memory, seconds, scale = sys.argv[2:]
        print(fastest_ms(path, int(threads), memory, float(seconds), float(scale)))
