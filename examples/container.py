"""Several models in one container of 128 MiB, Python included: each is a session with a budget of its own.

    docker run --memory 128m --memory-swap 128m -v "$PWD:/app" -w /app IMAGE sh -c
        'python examples/container.py centerface.flexnn ppocr_v4_rec.onnx silero_vad_v6.onnx --total 128MiB'

The program asks each model for its smallest budget, shares what the container leaves in these proportions, runs the
models in turns, and prints what the process took at most.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import flexnn
from flexnn.units import parse_bytes

RUNS = 20
RESERVE = 16 << 20
"""Bytes that stay free: for the program's own arrays, and for what the system counts to a container."""


def status(field: str) -> int:
    """Return bytes of this process: VmRSS now, VmHWM at most."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{field}:"))


def feed_of(session: flexnn.Session) -> dict[str, Any]:
    """Return random inputs; an open dimension is 64, a batch 1."""
    random, made = np.random.default_rng(0), {}
    for port in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 if i == 0 else 64 for i, d in enumerate(port.shape)]
        made[port.name] = random.standard_normal(shape).astype(port.numpy_dtype)
    return made


def smallest(path: str) -> int:
    """Return the smallest budget in which a model runs on its inputs."""
    budget = 1
    while True:
        try:
            with flexnn.Session(path, budget, 1) as session:
                session.run(None, feed_of(session))
                return budget
        except flexnn.BudgetError as error:
            budget = error.minimum


def main() -> None:
    """Read the command line, share the memory, run all models in turns."""
    parser = argparse.ArgumentParser(description="Runs several models inside one container's memory.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--total", default="128MiB", help="memory of the container")
    options = parser.parse_args()
    least = [smallest(path) for path in options.models]
    room = parse_bytes(options.total) - status("VmRSS") - RESERVE
    if room < sum(least):
        raise SystemExit(f"error: {sum(least) / 2**20:.1f} MiB are needed for sessions, {room / 2**20:.1f} are left")
    sessions = [
        flexnn.Session(path, int(room * part / sum(least)), 1) for path, part in zip(options.models, least, strict=True)
    ]
    feeds = [feed_of(session) for session in sessions]
    for _ in range(RUNS):
        for session, feed in zip(sessions, feeds, strict=True):
            session.run(None, feed)
    for path, session in zip(options.models, sessions, strict=True):
        assert session.memory is not None
        taken, run_ms = session.session_bytes / 2**20, session.last_run["run_ns"] / 1e6
        print(f"model    {path}: budget {session.memory / 2**20:.1f} MiB, takes {taken:.1f}, a run {run_ms:.2f} ms")
    print(f"memory   {status('VmHWM') / 2**20:.1f} MiB at most, Python included, of {options.total}")


if __name__ == "__main__":
    main()
