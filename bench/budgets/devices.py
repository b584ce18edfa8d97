"""Spilling on slower devices: the time of a run over its bound, where the kernel holds reads and writes to a rate.

    python -m bench.budgets devices                  a U-Net of 256² on a SD card, USB 3, NVMe and the disk as it is
    python -m bench.budgets devices --size 512 --folder DIR

Each session runs in a control group of its own whose direct reads and writes of DIR's disk the kernel throttles
(blkio, cgroup v1; needs root). It measures that device itself when it opens, as it has no profile yet. The bound is the
longest of: bytes read over the rate, bytes written over the rate, and a run without a limit. A disk that is slower
itself than the rates of a device shows as a larger ratio there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flexnn
from bench import ARTIFACTS
from bench.cli import cli, table, tables, write_json
from bench.models.segmentation import build
from bench.process import MIB

BLKIO = Path("/sys/fs/cgroup/blkio")
DEVICES = {"SD card": (45e6, 20e6), "USB 3": (350e6, 300e6), "NVMe": (1500e6, 1000e6), "the disk as it is": None}
"""Bytes per second that are read, and written."""
FACTORS = (1.1, 1.5)
"""Budgets as multiples of the smallest that spills; sessions that measure the machine need a little more."""


@contextmanager
def throttled(rates: tuple[float, float] | None, folder: Path) -> Iterator[list[str]]:
    """Yield what a command line begins with whose reads and writes of a folder's disk are throttled."""
    if rates is None:
        yield []
        return
    group = BLKIO / f"flexnn-{os.getpid()}"
    group.mkdir()
    try:
        disk = os.stat(folder).st_dev
        for name, rate in zip(("read", "write"), rates, strict=True):
            text = f"{os.major(disk)}:{os.minor(disk)} {int(rate)}"
            (group / f"blkio.throttle.{name}_bps_device").write_text(text)
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        group.rmdir()


def run(before: list[str], *arguments: object) -> dict[str, Any]:
    """Return the object that ``flexnn run`` prints in a process that finds no profile."""
    command = [*before, sys.executable, "-P", "-m", "flexnn", "run", *map(str, arguments), "--json"]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command)}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def measure(path: Path, folder: Path, options: Any) -> list[dict[str, Any]]:
    """Return a row for each device and budget."""
    shared = "--threads", options.threads, "--repeat", options.repeat, "--io", "direct"
    free_ms = run([], path, *shared)["latency_ms"]["p50"]
    smallest = flexnn.plan(path, threads=options.threads, spill=folder).minimum_memory
    rows = []
    for label, rates in DEVICES.items():
        for factor in FACTORS:
            with throttled(rates, folder) as before:
                report = run(before, path, *shared, "--memory", int(smallest * factor), "--spill", folder)
            read, written = report["bytes_read_per_run"], report["bytes_written_per_run"]
            moved = [size / rate * 1e3 for size, rate in zip((read, written), rates, strict=True)] if rates else []
            bound, p50 = max([free_ms, *moved]), report["latency_ms"]["p50"]
            figures = {"p50_ms": p50, "bound_ms": bound, "over": p50 / bound, "read": read, "written": written}
            rows.append({"device": label, "memory": int(smallest * factor), "free_ms": free_ms} | figures)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.budgets devices", __doc__, threads=2, repeat=3)
    parser.add_argument("--size", type=int, default=256, metavar="N", help="pixels of each side (256)")
    parser.add_argument("--folder", type=Path, default=ARTIFACTS, help="where artifact and spill file lie")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"devices{options.size}.flexnn"
    flexnn.compile(build("unet", size=options.size), path)
    rows = measure(path, options.folder, options)
    write_json(options.json, rows)
    grid = table(None, "device", "memory, MiB", "read, MiB", "written, MiB", "p50, ms", "bound, ms", "ratio")
    for row in rows:
        sizes = [f"{row[name] / MIB:.1f}" for name in ("memory", "read", "written")]
        grid.add_row(
            row["device"], *sizes, *(f"{row[name]:.1f}" for name in ("p50_ms", "bound_ms")), f"{row['over']:.2f}"
        )
    tables(options.json).print(grid)
    return 0
