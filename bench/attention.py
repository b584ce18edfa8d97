"""Attention sliced by heads and queries, as FlexNN computes it, against scores that exist whole: memory and time.

python -m bench.attention                  two layers of ViT-B/16 on 224² and 512² pictures: 197 and 1,025 tokens
python -m bench.attention 384 --threads 2

The unsliced one is the same graph without the pass that finds attention: product, softmax, product, each a node. Each
row is processes of its own, in its smallest budget and without one; memory is what the process grew by.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import flexnn
from bench import WIDTH
from bench.net import Net
from bench.promise import MIB
from bench.promise import flexnn as command
from bench.transformers import TRANSFORMERS
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.attention", description=__doc__.split("\n\n")[0])
    parser.add_argument("sides", nargs="*", type=int, metavar="SIDE", help="of the picture; default: 224 512")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    table = Table("tokens", "attention", title=f"{LAYERS} layers of ViT-B/16, 12 heads")
    for head in ("smallest budget, MiB", "taken", "activations at their peak", "p50 ms", "no limit"):
        table.add_column(head, justify="right")
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
                cells = [f"{row[key]:.1f}" for key in ("minimum", "taken", "activations", "p50", "free")]
                table.add_row(str((side // 16) ** 2 + 1), name, *cells)
    Console(width=WIDTH).print(table)


if __name__ == "__main__":
    main()
