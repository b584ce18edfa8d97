"""Batch scoring of pictures: two workers of Ray beside two plain processes of FlexNN, in the steady state.

python -m bench.peers ray                     1,000 pictures, MobileNetV2
python -m bench.peers ray googlenet --rows 200

Pictures are arrays in memory. A worker has one thread. Steady: from the first tenth of the rows that are scored to the
last; opening, measuring and Ray's own start do not count. Columns: rows a second of both, and Ray's over the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import chosen
from bench.summary import median

ROWS, WORKERS = 1000, 2
SKIPPED = 0.1
"""Part of the rows at the beginning that are not counted."""
PLAIN = """
import sys, time
import numpy
import flexnn
path, memory, name, rows, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
with flexnn.Session(path, memory, 1) as session:
    port = session.get_inputs()[0]
    pictures = numpy.random.default_rng(seed).random((16, *port.shape[1:]), numpy.float32)
    session.run(None, {name: pictures[:1]})
    print("ready", flush=True)
    sys.stdin.readline()
    for row in range(rows):
        session.run(None, {name: pictures[row % 16][None]})
        if row % 10 == 9:
            print(time.time(), row + 1, flush=True)
"""


def rate(moments: list[tuple[float, int]], rows: int) -> float:
    """Return rows a second between the first tenth and the end; moments: times, and rows that were scored then."""
    done, found = 0, []
    for moment, count in sorted(moments):
        done += count
        if done >= SKIPPED * rows:
            found.append((moment, done))
    (first, before), (last, after) = found[0], found[-1]
    return (after - before) / (last - first)


def plain(path: Path, memory: int, name: str, rows: int) -> float:
    """Return the rows a second of plain processes."""
    command = [sys.executable, "-P", "-c", PLAIN, str(path), str(memory), name, str(rows // WORKERS)]
    processes = [
        subprocess.Popen([*command, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for seed in range(WORKERS)
    ]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    moments = []
    for process in processes:
        said, _ = process.communicate()
        moments += [(float(line.split()[0]), 10) for line in said.splitlines()]
    return rate(moments, rows)


def with_ray(path: Path, memory: int, name: str, rows: int) -> float:
    """Return the rows a second of Ray's workers, in a process of its own."""
    command = [
        sys.executable,
        "-P",
        str(Path(__file__).with_name("ray_worker.py")),
        str(path),
        str(memory),
        name,
        str(rows),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        said = os.path.join(folder, "moments")
        # Ray's workers look for modules in the folder of the one who starts them, where flexnn's sources may be
        asked = [*command, said]
        done = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"error: {done.stderr[-2000:]}")
        return rate([tuple(moment) for moment in json.loads(Path(said).read_text())], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers ray", __doc__, models=["mobilenet_v2"])
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"pictures ({ROWS})")
    parser.add_argument("--rounds", type=int, default=1, help="of both, in turns (1)")
    options = parser.parse_args(arguments)
    grid = table("", "model", "plain rows/s", "Ray rows/s", "ratio")
    results = []
    for model in chosen(options.names, ["mobilenet_v2"]):
        path = artifact(model.make(), model.shapes)
        with flexnn.Session(path, threads=1) as session:
            name, memory = session.get_inputs()[0].name, session.session_bytes
            session.run(None, model.feed(0))
        case = path, memory, name, options.rows
        found = [(plain(*case), with_ray(*case)) for _ in range(options.rounds)]
        row = {"model": model.name, "plain": median([a for a, _ in found]), "ray": median([b for _, b in found])}
        row["ratio"] = median([b / a for a, b in found])
        results.append(row)
        grid.add_row(model.name, f"{row['plain']:.1f}", f"{row['ray']:.1f}", f"{row['ratio']:.3f}")
    write_json(options.json, results)
    tables(options.json).print(grid)
    return 0
