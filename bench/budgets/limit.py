"""Runs under a hard limit: each in a memory control group of its own, page cache counted, next to onnxruntime.

    sudo python -m bench.budgets limit               four large models, FlexNN and onnxruntime with mapped weights
    sudo python -m bench.budgets limit resnet152 --extra 25 50

The limit is what the process takes once its runtime is imported, and so many MiB. Files are cold; FlexNN reads them
with O_DIRECT, and beside its time stands what only reading the same bytes takes in the same process
(reading.py): below that the device lets nobody come. onnxruntime gets the model optimized by itself, with
weights as external data, which it maps, without prepacking and without its arena.
Needs root, a memory controller (cgroup v1 or v2) and, with v1, a machine without swap: with a limit on memory and swap
together the kernel does not count how often it is met.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bench import ARTIFACTS, ROOT
from bench.budgets.reading import device
from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import Model, chosen
from bench.process import ENVIRONMENT, MIB, status
from bench.process import flexnn as command
from bench.summary import median

EXTRA = {"resnet152": (25, 50, 100), "vgg19": (50, 100, 200), "vit_b16": (24, 50, 100), "gpt2": (64, 100, 200)}
PEERS = ("flexnn", "onnxruntime")
SECONDS_MAX = 100
SLACK = MIB
"""Part of the extra bytes that the session does not get: the control group also counts page tables and the like."""
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Group:
    """A control group with a limit in bytes."""

    def __init__(self, name: str, limit: int) -> None:
        self.is_v1 = V1.is_dir()
        self.path = (V1 if self.is_v1 else V2) / name
        self.path.mkdir()
        self._write("memory.limit_in_bytes" if self.is_v1 else "memory.max", limit)
        if not self.is_v1:
            self._write("memory.swap.max", 0)

    def _write(self, name: str, value: int) -> None:
        (self.path / name).write_text(str(value))

    def hits(self) -> int:
        """Return how often the process met the limit."""
        if self.is_v1:
            return int((self.path / "memory.failcnt").read_text())
        events = dict(line.split() for line in (self.path / "memory.events").read_text().splitlines())
        return int(events["max"])

    def close(self) -> None:
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)


Opened = tuple[Callable[[], object], Callable[[], dict[str, Any]]]


def open_peer(peer: str, path: Path, threads: int, budget: int, saved: Path) -> Opened:
    """Return a function that runs the model once on the inputs in ``saved``, and one that closes it."""
    feed = dict(np.load(saved))
    if peer == "flexnn":
        import flexnn

        session = flexnn.Session(path, memory=budget, threads=threads, io="direct")
        return lambda: session.run(None, feed), lambda: device(session, path)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = False
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it is optimized already
    options.add_session_config_entry("session.disable_prepacking", "1")
    other = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: other.run(None, feed), dict


def worker(peer: str, path: Path, threads: int, budget: int, feed: Path, repeat: int) -> None:
    """In the group: prints the footprint of the import (budget 0), or the times of runs in ms and what was read."""
    import importlib

    importlib.import_module(peer)
    if not budget:
        print(status("VmRSS"))
        return
    run, end_of = open_peer(peer, path, threads, budget, feed)
    times = []
    end = time.perf_counter() + SECONDS_MAX / 2
    while len(times) < repeat + 2 and (len(times) < 3 or time.perf_counter() < end):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"times": times[2:]} | end_of()))


def start(
    peer: str, path: Path, options: argparse.Namespace, budget: int, feed: str, group: Group | None
) -> str | None:
    """Return the worker's output, or None where it was killed or took too long."""
    command = [sys.executable, "-m", "bench.budgets", "limit", "--worker", peer, str(path), str(budget), feed]
    command += ["--threads", str(options.threads), "--repeat", str(options.repeat)]
    if group:
        command = ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs; exec "$@"', "sh", *command]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, timeout=SECONDS_MAX, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def external(path: Path) -> Path:
    """The model as onnxruntime itself optimizes it, its weights in a file beside it: what it would otherwise fuse when
    it opens the model becomes memory of its own.
    """
    import onnxruntime

    target = ARTIFACTS / f"{path.stem}_external.onnx"
    if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        target.with_name(target.name + ".data").unlink(missing_ok=True)  # it appends
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(target)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", target.name + ".data"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return target


def forget(*files: Path) -> None:
    """Takes files out of the page cache."""
    for file in files:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(model: Model, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row without a limit, and one for each peer and limit."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as saved:
        source = model.make()
        np.savez(saved, **model.feed(seed=0))
        saved.flush()
        return _rows(model, source, saved.name, options)


def _rows(model: Model, source: Path, feed: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    files = {"flexnn": artifact(source, model.shapes), "onnxruntime": external(source)}
    free = command("run", files["flexnn"], "--input", feed, "--threads", options.threads)
    rows = [{"model": model.name, "peer": "flexnn", "extra": None, "p50": free["latency_ms"]["p50"], "hits": 0}]
    for peer in options.peers:
        path = files[peer]
        footprint = int(start(peer, path, options, 0, feed, None) or 0)
        for extra in options.extra or EXTRA.get(model.name, (50, 100)):
            forget(path, *([path.with_name(path.name + ".data")] if peer == "onnxruntime" else []))
            group = Group(f"flexnn-bench-{os.getpid()}", footprint + extra * MIB)
            try:
                printed = start(peer, path, options, extra * MIB - SLACK, feed, group)
                told = json.loads(printed) if printed else {}
                times = sorted(told.pop("times", []))
                row = {"model": model.name, "peer": peer, "extra": extra, "hits": group.hits()}
                rows.append(row | {"p50": median(times) if times else None} | told)
            finally:
                group.close()
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets limit", __doc__, models=list(EXTRA), threads=2, repeat=20)
    parser.add_argument("--extra", type=int, nargs="+", metavar="MIB", help="beside the import's footprint")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--worker", nargs=4, metavar=("PEER", "FILE", "BUDGET", "FEED"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        peer, path, budget, feed = options.worker
        worker(peer, Path(path), options.threads, int(budget), Path(feed), options.repeat)
        return 0
    rows: list[dict[str, Any]] = []
    for model in chosen(options.names, list(EXTRA)):
        rows += measure(model, options)
    write_json(options.json, rows)
    show(rows, tables(options.json))
    return 0


def show(rows: list[dict[str, Any]], console: Console) -> None:
    columns = "model", "runtime", "MiB beside", "p50 ms", "predicted", "limit met", "reads MB", "alone ms", "GB/s"
    title = "under a hard limit: MiB beside the import; the reads of a run, and these alone"
    grid = table(title, *columns, left=2)
    for row in rows:
        extra = "no limit" if row["extra"] is None else str(row["extra"])
        time_ms = "killed or timed out" if row["p50"] is None else f"{row['p50']:.1f}"
        reads = ["", "", ""]
        if row.get("bytes"):
            rate = row["bytes"] / row["read_ms"] / 1e6
            reads = [f"{row['bytes'] / 1e6:.0f}", f"{row['read_ms']:.1f}", f"{rate:.2f}"]
        predicted = f"{row['predicted']:.1f}" if "predicted" in row else ""
        grid.add_row(row["model"], row["peer"], extra, time_ms, predicted, str(row["hits"]), *reads)
    console.print(grid)
