"""Latency with nothing limited: FlexNN against the peers installed here, in one process, turn by turn.

    python -m bench.models                        the eight classics, 1 and 2 threads
    python -m bench.models trained --threads 1 --json out.json
    python -m bench.models resnet152 --memory 48MiB        FlexNN inside a budget, the peers without one

Turns change in blocks of runs, the first of each untimed: a pool of one peer that still spins would slow the next.
Every answer is compared with onnxruntime's. Ratios are of medians; below 1 FlexNN is the faster one.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import WIDTH
from bench.catalogue import CLASSICS, Model, chosen
from bench.peers import PEERS, FlexNN, Peer, artifact, available, input_shapes, random_feed

ROUNDS = 5
BLOCK_SECONDS = 0.25
BLOCK_RUNS_MIN = 3
TOLERANCE = 1e-4


def measure(model: Model, names: list[str], threads: int, memory: str | None) -> dict[str, Any]:
    """p50 and p95 in ms for each peer, and the largest error of FlexNN relative to the largest output."""
    path = model.make()
    feed = random_feed(input_shapes(path, model.shapes), seed=0, scale=model.scale)
    peers: dict[str, Peer] = {"flexnn": FlexNN(artifact(path, model.shapes), threads, memory)}
    for name in names:
        peers[name] = PEERS[name](path, model.shapes, threads)
    times: dict[str, list[float]] = {name: [] for name in peers}
    outputs = {}
    for name, peer in peers.items():
        outputs[name] = peer.run(feed)
    for turn in range(ROUNDS):
        order = list(peers) if turn % 2 == 0 else list(peers)[::-1]
        for name in order:
            times[name] += block(peers[name], feed)
    for peer in peers.values():
        peer.close()
    row: dict[str, Any] = {"model": model.name, "threads": threads}
    for name, values in times.items():
        p50, p95 = np.percentile(values, (50, 95))
        row[name] = {"p50_ms": float(p50), "p95_ms": float(p95), "runs": len(values)}
    if "onnxruntime" in outputs:
        pairs = zip(outputs["flexnn"], outputs["onnxruntime"], strict=True)
        row["error"] = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    return row


def block(peer: Peer, feed: dict[str, Any], seconds: float = BLOCK_SECONDS) -> list[float]:
    """Milliseconds of each run of one turn."""
    peer.run(feed)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < BLOCK_RUNS_MIN or time.perf_counter() < end:
        start = time.perf_counter_ns()
        peer.run(feed)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def show(rows: list[dict[str, Any]], names: list[str], console: Console) -> None:
    """A table for each number of threads, with the geometric mean of the ratios."""
    for threads in dict.fromkeys(row["threads"] for row in rows):
        table = Table(title=f"p50 (p95) in ms, {threads} thread{'s' * (threads > 1)}")
        table.add_column("model")
        for name in ("flexnn", *names):
            table.add_column(name, justify="right")
        for name in names:
            table.add_column(f"flexnn / {name}", justify="right")
        table.add_column("error", justify="right")
        ratios: dict[str, list[float]] = {name: [] for name in names}
        for row in (r for r in rows if r["threads"] == threads):
            cells = [row["model"]]
            cells += [f"{row[n]['p50_ms']:.2f} ({row[n]['p95_ms']:.2f})" for n in ("flexnn", *names)]
            for name in names:
                ratios[name].append(row["flexnn"]["p50_ms"] / row[name]["p50_ms"])
                cells.append(f"{ratios[name][-1]:.2f}")
            table.add_row(*cells, f"{row['error']:.1e}" if "error" in row else "–")
        means = [f"{math.exp(sum(map(math.log, ratios[n])) / len(ratios[n])):.3f}" for n in names]
        table.add_section()
        table.add_row("geometric mean", *[""] * (len(names) + 1), *means, "")
        console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="models, or small, full, trained, all; default: the eight classics")
    parser.add_argument("--threads", type=int, action="append", help="may be repeated; default: 1 and 2")
    parser.add_argument("--memory", help="a budget for FlexNN")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=available())
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    models = chosen(options.names, CLASSICS)
    jobs = [(model, threads) for threads in options.threads or (1, 2) for model in models]
    progress = Console(stderr=True)
    rows = []
    for model, threads in track(jobs, "measuring", console=progress):
        rows.append(measure(model, options.peers, threads, options.memory))
    if options.json:
        options.json.write_text(
            json.dumps({"machine": platform.processor() or platform.machine(), "rows": rows}, indent=1)
        )
    show(rows, options.peers, Console(width=WIDTH))
    wrong = [row["model"] for row in rows if not row.get("error", 0.0) <= TOLERANCE]
    if wrong:
        print(f"error: not equal to onnxruntime: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
