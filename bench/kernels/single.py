"""Single layers, warm: FlexNN against the peers installed here, in one process, turn by turn.

    python -m bench.kernels                       every layer, 1 and 2 threads
    python -m bench.kernels "3² @14²" --threads 1 --json out.json
    python -m bench.kernels --check .cache/check/kernels/flexnn-check      the bare kernels' share of the peak too

Each layer is a model of one node, so every peer's conversions of layouts and Python's part of a run count for it: what
is left of a short layer is mostly those. ``flexnn-check --bench`` times the bare kernel, on one thread, and measures
the multiply-add peak itself; the fastest kernel for the layer's shape counts. Winograd needs fewer multiply-adds than
are counted for it: more than 100 % is no mistake. Exit 1 if an output differs from onnxruntime's.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import WIDTH
from bench.cli import cli, tables, write_json
from bench.models.artifacts import artifact
from bench.models.inputs import random_feed
from bench.peers.layers import LAYERS, Layer, Ncnn
from bench.peers.runtimes import MODULES, PEERS, FlexNN, Peer
from bench.peers.turns import block
from bench.summary import median, quantile

ROUNDS = 5
THREADS = (1, 2)
TURN_SECONDS = 0.1
# ncnn's F(6,3) is off by 1e-4 of the largest output, which is its choice; FlexNN is held to the tighter bound.
TOLERANCE = {"flexnn": 2e-5, "openvino": 1e-3, "ncnn": 1e-3}

Opener = Callable[[Layer, int], Peer]
OPEN: dict[str, Opener] = {
    "flexnn": lambda layer, threads: FlexNN(artifact(layer.make(), {}), threads),
    **{name: lambda layer, threads, open_=open_: open_(layer.make(), {}, threads) for name, open_ in PEERS.items()},
    "ncnn": Ncnn,
}


def installed() -> list[str]:
    """Names of the peers there are, FlexNN not among them."""
    return [name for name in OPEN if name != "flexnn" and importlib.util.find_spec(MODULES[name])]


def measure(layer: Layer, names: list[str], threads: int) -> dict[str, Any]:
    """p50 and p95 in ms for each peer, and each one's largest error relative to the largest output."""
    feed = random_feed({"x": layer.shape}, seed=0, scale=1.0)
    peers = {name: OPEN[name](layer, threads) for name in ("flexnn", *names)}
    outputs = {name: np.array(peer.run(feed)[0]) for name, peer in peers.items()}
    times: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(ROUNDS):
        for name in list(peers) if turn % 2 == 0 else list(peers)[::-1]:
            times[name] += block(peers[name], feed, TURN_SECONDS)
    for peer in peers.values():
        peer.close()
    row: dict[str, Any] = {"layer": layer.name, "threads": threads, "flops": layer.flops}
    for name, values in times.items():
        row[name] = {"p50_ms": median(values), "p95_ms": quantile(values, 0.95), "runs": len(values)}
        if "onnxruntime" in outputs:
            right = outputs["onnxruntime"]
            row[name]["error"] = float(np.abs(outputs[name].reshape(right.shape) - right).max() / np.abs(right).max())
    return row


def wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Which peers' outputs are off, and where."""
    return [
        f"{name}: {row['layer']}, {row['threads']} threads: {row[name]['error']:.1e}"
        for row in rows
        for name, bound in TOLERANCE.items()
        if name in row and not row[name].get("error", 0.0) <= bound
    ]


def bare(check: Path, layers: list[Layer]) -> dict[str, dict[str, Any]]:
    """Layer → the fastest bare kernel's ms, GFLOP/s and share of the peak, at the highest level of this CPU."""
    from flexnn import _core

    report = ""
    for op in ("conv", "dwconv"):
        command = [str(check), "--bench", "--level", _core.isa_level(), "--op", op]
        report += subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return fastest(report, layers)


def fastest(report: str, layers: list[Layer]) -> dict[str, dict[str, Any]]:
    """The same from the report's text."""
    found: dict[str, dict[str, Any]] = {}
    line = re.compile(r"^(?:conv|dwconv) +\w+ +(.+?) +([\d.]+) ms +([\d.]+) GFLOP/s +([\d.]+) %", re.M)
    for name, ms, gflops, percent in line.findall(report):
        for layer in layers:
            # A name's end is marked, so that 3x3 64@112/1 does not take what is 3x3 64@112/16's.
            if layer.check_name and f"{name} ".startswith(f"{layer.check_name.rstrip()} "):
                entry = {"kernel": name, "ms": float(ms), "gflops": float(gflops), "percent_of_peak": float(percent)}
                if layer.name not in found or entry["ms"] < found[layer.name]["ms"]:
                    found[layer.name] = entry
    return found


def show(rows: list[dict[str, Any]], names: list[str], kernels: dict[str, dict[str, Any]], console: Console) -> None:
    """A table for each number of threads."""
    for threads in dict.fromkeys(row["threads"] for row in rows):
        table = Table(title=f"p50 in ms, {threads} thread{'s' * (threads > 1)}; warm, conversions of layouts included")
        table.add_column("layer", no_wrap=True)
        for column in ("flexnn", *names, *(f"/ {name}" for name in names), "GFLOP/s", "bare ms", "% of peak"):
            table.add_column(column, justify="right")
        for row in (r for r in rows if r["threads"] == threads):
            own = row["flexnn"]["p50_ms"]
            cells = [row["layer"], *(f"{row[name]['p50_ms']:.3f}" for name in ("flexnn", *names))]
            cells += [f"{own / row[name]['p50_ms']:.2f}" for name in names]
            cells.append(f"{row['flops'] / own * 1e-6:.0f}" if row["flops"] else "–")
            kernel = kernels.get(row["layer"]) if threads == 1 else None
            cells += [f"{kernel['ms']:.3f}", f"{kernel['percent_of_peak']:.0f}"] if kernel else ["–", "–"]
            table.add_row(*cells)
        console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.kernels", __doc__, threads=THREADS)
    parser.add_argument("names", nargs="*", help="layers whose names contain one of these; default: all")
    parser.add_argument("--peers", nargs="*", choices=[n for n in OPEN if n != "flexnn"], default=installed())
    parser.add_argument("--check", type=Path, help="the program flexnn-check: its figures beside")
    options = parser.parse_intermixed_args(arguments)
    layers = [layer for layer in LAYERS if not options.names or any(n in layer.name for n in options.names)]
    if not layers:
        parser.error(f"no such layer; there are {', '.join(layer.name for layer in LAYERS)}")
    kernels = bare(options.check, layers) if options.check else {}
    jobs = [(layer, threads) for threads in options.threads or THREADS for layer in layers]
    progress = Console(stderr=True)
    rows = [measure(layer, options.peers, t) for layer, t in track(jobs, "measuring", console=progress)]
    machine = platform.processor() or platform.machine()
    write_json(options.json, {"machine": machine, "rows": rows, "bare": kernels})
    show(rows, options.peers, kernels, tables(options.json, WIDTH + 20))
    off = wrong(rows)
    for line in off:
        print(f"error: not equal to onnxruntime: {line}", file=sys.stderr)
    return 1 if off else 0
