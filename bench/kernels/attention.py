"""Attention sliced by heads and queries, as FlexNN computes it, against scores that exist whole: memory and time.

python -m bench.kernels attention               two layers of ViT-B/16 on 224² and 512² pictures: 197 and 1,025 tokens
python -m bench.kernels attention 384 --threads 2

The unsliced one is the same graph without the pass that finds attention: product, softmax, product, each a node. Each
row is processes of its own, in its smallest budget and without one; memory is what the process grew by.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.models.net import Net
from bench.models.transformers import TRANSFORMERS
from bench.process import MIB
from bench.process import flexnn as command
from flexnn.graph import passes
from flexnn.graph.passes.attention import fuse_attention

LAYERS, REPEAT = 2, 10


def picture(side: int, path: Path) -> None:
    """The first layers of a ViT-B/16 for pictures of this side, a multiple of 16."""
    net = Net("vit")
    entry = TRANSFORMERS["vit_b16"]
    entry.build(net, replace(entry.full, layers=LAYERS, places=side))
    net.write(path)


@contextmanager
def unsliced() -> Iterator[None]:
    """Compiles without looking for attention."""
    before = passes.EARLY_PASSES
    passes.EARLY_PASSES = tuple(step for step in before if step is not fuse_attention)
    try:
        yield
    finally:
        passes.EARLY_PASSES = before


def measure(artifact: Path, threads: int) -> dict[str, Any]:
    """MiB and ms."""
    plan = command("plan", artifact, "--threads", threads)
    ways = ("--threads", threads, "--repeat", REPEAT)
    report = command("run", artifact, "--memory", plan["minimum_memory"], *ways)
    return {
        "minimum": plan["minimum_memory"] / MIB,
        "activations": plan["activation_bytes"] / MIB,
        "taken": (report["peak_rss"] - report["baseline_rss"]) / MIB,
        "p50": report["latency_ms"]["p50"],
        "free": command("run", artifact, *ways)["latency_ms"]["p50"],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.kernels attention", __doc__, threads=1)
    parser.add_argument("sides", nargs="*", type=int, metavar="SIDE", help="of the picture; default: 224 512")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        source, artifact = Path(folder) / "vit.onnx", Path(folder) / "vit.flexnn"
        for side in options.sides or (224, 512):
            picture(side, source)
            for name in ("sliced", "unsliced"):
                if name == "sliced":
                    flexnn.compile(source, artifact)
                else:
                    with unsliced():
                        flexnn.compile(source, artifact)
                row = measure(artifact, options.threads)
                rows.append({"tokens": (side // 16) ** 2 + 1, "attention": name, **row})
    write_json(options.json, rows)
    heads = "smallest budget, MiB", "taken", "activations at their peak", "p50 ms", "no limit"
    grid = table(f"{LAYERS} layers of ViT-B/16, 12 heads", "tokens", "attention", *heads, left=2)
    for row in rows:
        cells = [f"{row[key]:.1f}" for key in ("minimum", "taken", "activations", "p50", "free")]
        grid.add_row(str(row["tokens"]), row["attention"], *cells)
    tables(options.json).print(grid)
    return 0
