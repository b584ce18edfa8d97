"""One process of bench.regress, run by a checkout's own Python: compiles, or times an artifact.

worker.py compile ONNX ARTIFACT SHAPES_JSON
worker.py time ARTIFACT THREADS MEMORY SECONDS SCALE CLOCK     prints one JSON object

MEMORY "" is no limit. CLOCK: "wall", or "cpu", the process' CPU time. It uses only what every revision of FlexNN has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray


def resident() -> int:
    """Bytes that this process has in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_BEFORE = resident()

import flexnn  # noqa: E402 (what importing it adds is measured)

IMPORT_BYTES = resident() - _BEFORE
RUNS_MIN = 5


def inputs(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], scale: float) -> NDArray[Any]:
    """Normal numbers; whole ones are 0 or 1, which are indices of most tables."""
    whole = dtype.kind != "f"
    return (
        rng.integers(0, 2, shape).astype(dtype) if whole else np.float32(scale) * rng.standard_normal(shape, np.float32)
    )


def fastest_ms(session: flexnn.Session, seconds: float, scale: float, clock: str) -> float:
    """The fastest run: what else runs on the machine only ever adds."""
    now = time.process_time_ns if clock == "cpu" else time.perf_counter_ns
    rng = np.random.default_rng(0)
    feed = {i.name: inputs(rng, tuple(i.shape), i.numpy_dtype, scale) for i in session.get_inputs()}
    session.run(None, feed)
    times: list[int] = []
    end = time.perf_counter() + seconds
    while len(times) < RUNS_MIN or time.perf_counter() < end:
        start = now()
        session.run(None, feed)
        times.append(now() - start)
    return min(times) / 1e6


def measure(artifact: str, threads: int, memory: str, seconds: float, scale: float, clock: str) -> dict[str, float]:
    """The fastest run, and what opening, planning at twice the smallest budget and importing take."""
    start = time.perf_counter()
    with flexnn.Session(artifact, memory=memory or None, threads=threads) as session:
        open_ms = (time.perf_counter() - start) * 1e3
        fastest = fastest_ms(session, seconds, scale, clock)
        smallest = session.plan.minimum_memory
    with flexnn.Session(artifact, memory=2 * smallest, threads=threads) as session:
        plan_ms = session.plan.plan_ms
    facts = {"open_ms": open_ms, "plan_ms": plan_ms, "smallest_bytes": smallest, "import_bytes": IMPORT_BYTES}
    return {"fastest_ms": fastest, **facts}


if __name__ == "__main__":
    if sys.argv[1] == "compile":
        shapes = {name: tuple(shape) for name, shape in json.loads(sys.argv[4]).items()}
        flexnn.compile(sys.argv[2], sys.argv[3], shapes=shapes)
    else:
        path, count, budget, duration, deviation, kind = sys.argv[2:]
        print(json.dumps(measure(path, int(count), budget, float(duration), float(deviation), kind)))
