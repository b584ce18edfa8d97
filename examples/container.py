"""Several models in one container of 128 MiB, Python included: they are sessions of one pool.

    docker run --memory 128m --memory-swap 128m -v "$PWD:/app" -w /app IMAGE sh -c
        'python examples/container.py centerface.flexnn ppocr_v4_rec.onnx silero_vad_v6.onnx --total 128MiB'

The pool has what the container leaves beside the program. Its sessions share working memory, and their weights compete
by use. The program runs the models in turns, and prints what the process took at most.
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


def main() -> None:
    """Read the command line, open all models in one pool, run them in turns."""
    parser = argparse.ArgumentParser(description="Runs several models inside one container's memory.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--total", default="128MiB", help="memory of the container")
    options = parser.parse_args()
    room = parse_bytes(options.total) - status("VmRSS") - RESERVE
    with flexnn.Pool(room, threads=1) as pool:
        try:
            sessions = [pool.open(path) for path in options.models]
            feeds = [feed_of(session) for session in sessions]
            for _ in range(RUNS):
                for session, feed in zip(sessions, feeds, strict=True):
                    session.run(None, feed)
        except flexnn.BudgetError as error:
            raise SystemExit(f"error: {error}") from None
        for path, session, pinned in zip(options.models, sessions, pool.statistics()["pinned_bytes"], strict=True):
            run_ms = session.last_run["run_ns"] / 1e6
            print(f"model    {path}: {pinned / 2**20:.1f} MiB of weights stay, a run {run_ms:.2f} ms")
        taken = pool.session_bytes / 2**20
        print(f"pool     {room / 2**20:.1f} MiB for {len(sessions)} models, which take {taken:.1f}")
    print(f"memory   {status('VmHWM') / 2**20:.1f} MiB at most, Python included, of {options.total}")


if __name__ == "__main__":
    main()
