"""Cost of ``flexnn exec``: what it adds to a program that imports numpy, in the same interpreter.

python -m bench.peers launcher

Milliseconds of the whole process and its peak of memory, with and without the launcher, medians of turns; and the same
of a program that imports onnxruntime without using it, which is flexnn.ort under the launcher.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cli import cli, table, tables, write_json
from bench.process import MIB
from bench.summary import median

ROUNDS = 25
PROGRAMS = {"numpy": "import numpy\n", "numpy and onnxruntime": "import numpy, onnxruntime\n"}


def run(command: list[str], folder: str) -> tuple[float, int]:
    """Return the milliseconds of a process, and its peak of resident memory in bytes."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FLEXNN_MEMORY")}
    begun = time.perf_counter()
    process = os.posix_spawn(command[0], command, {**environment, "XDG_CACHE_HOME": folder})
    _, status, used = os.wait4(process, 0)
    took = 1e3 * (time.perf_counter() - begun)
    if status:
        raise SystemExit(f"error: {' '.join(command)} ended with status {status}")
    return took, used.ru_maxrss << 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers launcher", __doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"starts of each ({ROUNDS})")
    options = parser.parse_args(arguments)
    grid = table("", "program imports", "plain ms", "exec ms", "adds ms", "plain MiB", "exec MiB", "adds MiB")
    rows = []
    launcher = str(Path(sys.executable).parent / "flexnn")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROGRAMS.items():
            program = os.path.join(folder, "program.py")
            Path(program).write_text(text)
            commands = {
                "plain": [sys.executable, program],
                "exec": [launcher, "exec", "--memory", "64MiB", "--", program],
            }
            taken: dict[str, list[tuple[float, int]]] = {kind: [] for kind in commands}
            for number in range(options.rounds + 1):
                for kind in commands if number % 2 else reversed(list(commands)):
                    found = run(commands[kind], folder)
                    if number:  # the first start compiles modules
                        taken[kind].append(found)
            row: dict[str, object] = {"program": name}
            for kind, all_found in taken.items():
                row |= {f"{kind}_ms": median([f[0] for f in all_found])}
                row |= {f"{kind}_mib": median([f[1] for f in all_found]) / MIB}
            added = [b[0] - a[0] for a, b in zip(taken["plain"], taken["exec"], strict=True)]
            row["adds_ms"] = median(added)
            row["adds_mib"] = float(row["exec_mib"]) - float(row["plain_mib"])  # type: ignore[arg-type]
            rows.append(row)
            keys = ("plain_ms", "exec_ms", "adds_ms", "plain_mib", "exec_mib", "adds_mib")
            grid.add_row(name, *(f"{row[key]:.1f}" for key in keys))
    write_json(options.json, rows)
    tables(options.json).print(grid)
    return 0
