"""Cost of ``flexnn exec``: what it adds to a program that imports numpy, in the same interpreter.

python -m bench.peers launcher

Milliseconds of the whole process and its peak of memory, with and without the launcher, medians of turns; and what they
add to the plain program that imports numpy. Other programs import onnxruntime, too, and one asks it for a name: under
the launcher that is flexnn.ort.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cli import cli, table, tables, write_json
from bench.process import MIB
from bench.summary import median

ROUNDS = 25
PROGRAMS = {
    "numpy": "import numpy\n",
    "numpy, onnxruntime": "import numpy, onnxruntime\n",
    "numpy, onnxruntime.InferenceSession": "import numpy\nfrom onnxruntime import InferenceSession\n",
}
"""Texts of programs, by what they import."""
PLAIN = "plain numpy"


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
    launcher = str(Path(sys.executable).parent / "flexnn")
    taken: dict[str, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for number, (name, text) in enumerate(PROGRAMS.items()):
            program = os.path.join(folder, f"program_{number}.py")  # numpy.py would be what it imports
            Path(program).write_text(text)
            commands[f"plain {name}"] = [sys.executable, program]
            commands[f"exec {name}"] = [launcher, "exec", "--memory", "64MiB", "--", program]
        for number in range(options.rounds + 1):
            for name in commands if number % 2 else reversed(list(commands)):
                found = run(commands[name], folder)
                if number:  # the first start compiles modules
                    taken.setdefault(name, []).append(found)
    grid = table("", "program", "ms", "adds ms", "MiB", "adds MiB")
    rows: list[dict[str, Any]] = []
    for name in commands:
        row: dict[str, Any] = {
            "program": name,
            "ms": median([f[0] for f in taken[name]]),
            "mib": median([f[1] for f in taken[name]]) / MIB,
        }
        row["adds_ms"] = median([b[0] - a[0] for a, b in zip(taken[PLAIN], taken[name], strict=True)])
        row["adds_mib"] = row["mib"] - (rows[0]["mib"] if rows else row["mib"])
        rows.append(row)
        grid.add_row(name, *(f"{row[key]:.1f}" for key in ("ms", "adds_ms", "mib", "adds_mib")))
    write_json(options.json, rows)
    tables(options.json).print(grid)
    return 0
