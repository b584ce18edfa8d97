"""Latency with nothing limited: FlexNN against the peers installed here, turn by turn.

    python -m bench.peers                        the eight classics, 1 and 2 threads
    python -m bench.peers trained --threads 1 --json out.json
    python -m bench.peers --python ~/peers/bin/python       peers that are installed elsewhere, too
    python -m bench.peers resnet152 --memory 48MiB          FlexNN inside a budget, the peers without one

Each peer has a process of its own, which keeps the model open; turns change in blocks of runs, the first of each not
timed. Every answer is compared with onnxruntime's. Ratios are of medians; below 1 FlexNN is the faster one. The best
peer of a model is the one with the lowest median that is right to 1e-2.
"""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from bench import ROOT, WIDTH
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import CLASSICS, Model, chosen
from bench.peers.converted import worst_error
from bench.peers.runtimes import PEERS
from bench.peers.turns import Worker
from bench.process import ENVIRONMENT
from bench.summary import geometric_mean, median, quantile

ROUNDS = 5
THREADS = (1, 2)
BLOCK_SECONDS = 0.25
TOLERANCE, TOLERANCE_NARROW = 1e-4, 0.15
"""Error that is right: of float32, and where activations are rounded to 8 bits: a rounding that falls the other way is
a step, and steps add up over the layers. onnxruntime with and without optimisation is 0.12 apart on ViT-B/16.
"""
PEER_TOLERANCE = 1e-2
"""A peer with a larger error has not computed the model."""


def installed(pythons: list[Path]) -> dict[str, Path]:
    """Peer → the first of the interpreters that has it."""
    found: dict[str, Path] = {}
    for python in pythons:
        code = "import bench.peers.runtimes; print(*bench.peers.runtimes.available())"
        done = subprocess.run(
            [python, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"error: {python}: {done.stderr.strip().splitlines()[-1]}")
        for name in done.stdout.split():
            found.setdefault(name, python)
    return {name: found[name] for name in PEERS if name in found}


def measure(model: Model, peers: dict[str, Path], threads: int, memory: str | None) -> dict[str, Any]:
    """For each peer p50 and p95 in ms and the largest error relative to onnxruntime's largest output."""
    path = model.make()
    feed = model.feed(seed=0)
    times: dict[str, list[float]] = {}
    tolerance = TOLERANCE_NARROW if model.kind == "narrow" else TOLERANCE
    row: dict[str, Any] = {"model": model.name, "threads": threads, "tolerance": tolerance}
    with contextlib.ExitStack() as stack:
        saved = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".npz"))
        np.savez(saved, **feed)  # type: ignore[arg-type]  # numpy's stub takes them for allow_pickle
        saved.flush()
        opened = {}
        for name, python in {"flexnn": Path(sys.executable), **peers}.items():
            source = artifact(path, model.shapes) if name == "flexnn" else path
            worker = Worker(python, name, source, model.shapes, threads, memory, Path(saved.name))
            opened[name] = stack.enter_context(worker)
        outputs = {name: worker.outputs() for name, worker in opened.items()}
        for turn in range(ROUNDS):
            for name in list(opened)[:: 1 if turn % 2 == 0 else -1]:
                times.setdefault(name, []).extend(opened[name].block(BLOCK_SECONDS))
    for name, values in times.items():
        row[name] = {"p50_ms": median(values), "p95_ms": quantile(values, 0.95), "runs": len(values)}
        if "onnxruntime" in outputs:
            row[name]["error"] = worst_error(outputs[name], outputs["onnxruntime"])
    return row


def best_peer(row: dict[str, Any], names: list[str]) -> str | None:
    """The fastest that is right."""
    right = [n for n in names if n in row and row[n].get("error", 0.0) <= PEER_TOLERANCE]
    return min(right, key=lambda n: float(row[n]["p50_ms"]), default=None)


def show(rows: list[dict[str, Any]], names: list[str], console: Console) -> None:
    """A table for each number of threads, with the geometric mean of the ratios."""
    for threads in dict.fromkeys(row["threads"] for row in rows):
        columns = [*("flexnn", *names), *(f"/ {name}" for name in (*names, "best")), "error"]
        title = f"p50 (p95) in ms, {threads} thread{'s' * (threads > 1)}; flexnn / the peer"
        grid = table(title, "model", *columns)
        ratios: dict[str, list[float]] = {name: [] for name in (*names, "best")}
        for row in (r for r in rows if r["threads"] == threads):
            cells = [row["model"]]
            cells += [f"{row[n]['p50_ms']:.2f} ({row[n]['p95_ms']:.2f})" for n in ("flexnn", *names)]
            for name in (*names, "best"):
                peer = best_peer(row, names) if name == "best" else name
                if peer is None:
                    cells.append("–")
                    continue
                ratios[name].append(row["flexnn"]["p50_ms"] / row[peer]["p50_ms"])
                cells.append(f"{ratios[name][-1]:.2f}" + f" {peer}" * (name == "best"))
            grid.add_row(*cells, f"{row['flexnn']['error']:.1e}" if "error" in row["flexnn"] else "–")
        means = [f"{geometric_mean(r):.3f}" if r else "–" for r in ratios.values()]
        grid.add_section()
        grid.add_row("geometric mean", *[""] * (len(names) + 1), *means, "")
        console.print(grid)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.peers", __doc__, models=CLASSICS, threads=THREADS)
    parser.add_argument("--memory", help="a budget for FlexNN")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), help="default: all there are")
    parser.add_argument("--python", type=Path, action="append", default=[], help="an interpreter with further peers")
    parser.add_argument("--show", type=Path, nargs="*", help="measure nothing: the tables of these files")
    options = parser.parse_args(arguments)
    console = tables(options.json, WIDTH + 50)
    if options.show:
        rows = [row for file in options.show for row in json.loads(file.read_text())["rows"]]
        show(rows, [n for n in PEERS if all(n in row for row in rows)], console)
        return 0
    peers = installed([Path(sys.executable), *options.python])
    if options.peers is not None:
        missing = [name for name in options.peers if name not in peers]
        if missing:
            parser.error(f"not installed: {', '.join(missing)}")
        peers = {name: peers[name] for name in options.peers}
    jobs = [(model, n) for n in options.threads or THREADS for model in chosen(options.names, CLASSICS)]
    rows = []
    for model, threads in track(jobs, "measuring", console=Console(stderr=True)):
        rows.append(measure(model, peers, threads, options.memory))
    write_json(options.json, {"machine": platform.processor() or platform.machine(), "rows": rows})
    show(rows, list(peers), console)
    wrong = [row["model"] for row in rows if not row["flexnn"].get("error", 0.0) <= row["tolerance"]]
    if wrong:
        print(f"error: not equal to onnxruntime: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0
