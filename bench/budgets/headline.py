"""The published headline: how much slower a run gets where memory is cut by 93.8 % (FlexNN, MobiCom 2024, §5.2).

    python -m bench.budgets headline           ResNet-152 and VGG-19, one thread, weights from the page cache
    python -m bench.budgets headline resnet152 --io direct

The budget is what ncnn takes by default, less the published reduction. Runs inside it and runs with no limit take
turns. A device's rows throttle the loader so that bytes read for each operation computed are what they are there; no
row can be faster than its bound says.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.cli import cli, table, tables, write_json
from bench.models.artifacts import artifact
from bench.models.catalogue import CATALOGUE
from bench.process import MIB
from flexnn.benchmark.timing import opened


@dataclass(frozen=True, slots=True)
class Claim:
    """``footprint``: bytes that ncnn 1.0.20261020 adds to its process by default (``python -m bench.peers.footprint
    ncnn MODEL --threads 1``); ``cut``: the part of them that is to be saved; ``allowed``: time over that of no limit;
    ``flops``: of a run.
    """

    footprint: int
    cut: float
    allowed: float
    flops: float


CLAIMS = {
    "resnet152": Claim(773_000_000, 0.938, 1.036, 23.1e9),
    "vgg19": Claim(1_133_000_000, 0.93, 1.10, 39.3e9),
}
EFFICIENCY = 2 / 3
"""Of its peak that a device computes at; more would make its storage look faster."""
DEVICES = {
    "Pixel 6 Pro, 2 X1, 1.8 GB/s": 1.8e9 / (2 * 2.8e9 * 32 * EFFICIENCY),
    "Mi Mix 2S, 4 A75, 718 MB/s": 718e6 / (4 * 2.8e9 * 16 * EFFICIENCY),
    "Raspberry Pi 4B, 3 A72, 257 MB/s": 257e6 / (3 * 1.8e9 * 8 * EFFICIENCY),
}
"""Bytes of storage a floating-point operation: the paper's devices, cores that compute (its table 1 and §5.1) and
reading speeds (its §5.2; UFS 3.1 for the first).
"""


def measure(name: str, options: Namespace) -> list[dict[str, Any]]:
    """A row for this machine's storage, and one for each device."""
    model, claim = CATALOGUE[name], CLAIMS[name]
    path = str(artifact(model.make(), model.shapes))
    budget = int(claim.footprint * (1 - claim.cut))
    rows: list[dict[str, Any]] = []
    free_ms = 0.0
    for device, ratio in {"as it is": 0.0, **DEVICES}.items():
        storage = int(ratio * claim.flops / free_ms * 1e3) if ratio else 0
        with opened(path, threads=options.threads, io=options.io, storage=storage, repeat=options.repeat) as setting:
            inside = setting.plan(budget)
            free, cut = setting.in_turns({"no limit": setting.plan(None), "budget": inside})
        free_ms = free_ms or free.p50
        rows.append(
            {
                "model": name,
                "storage": device,
                "bytes_per_second": storage or setting.machine.storage_bytes_per_second,
                "budget": budget,
                "taken": cut.memory,
                "free_ms": free.p50,
                "p50_ms": cut.p50,
                "p95_ms": cut.p95,
                "predicted_ms": inside.predicted_ms,
                "bound_ms": inside.bound_ms,
                "stall_ms": cut.stall,
                "over": cut.p50 / free.p50 - 1,
                "allowed": claim.allowed - 1,
            }
        )
    return rows


def show(rows: list[dict[str, Any]], console: Console) -> None:
    columns = "GB/s", "budget MiB", "no limit", "budget", "over", "allowed", "predicted", "bound"
    grid = table("inside the budget against no limit (p50, ms)", "model", "storage", *columns, left=2)
    for row in rows:
        grid.add_row(
            row["model"],
            row["storage"],
            f"{row['bytes_per_second'] / 1e9:.2f}",
            f"{row['budget'] / MIB:.1f}",
            f"{row['free_ms']:.1f}",
            f"{row['p50_ms']:.1f}",
            f"{row['over']:+.1%}",
            f"{row['allowed']:+.1%}",
            f"{row['predicted_ms']:.1f}",
            f"{row['bound_ms']:.1f}",
        )
    console.print(grid)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = cli("bench.budgets headline", __doc__, models=list(CLAIMS), threads=1, repeat=20)
    parser.add_argument("--io", choices=("buffered", "direct"), default="buffered")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in CLAIMS:
            parser.error(f"no claim about {name!r}; there are {', '.join(CLAIMS)}")
    rows: list[dict[str, Any]] = []
    for name in track(options.names or list(CLAIMS), "measuring", console=Console(stderr=True)):
        rows += measure(name, options)
    write_json(options.json, rows)
    show(rows, tables(options.json))
