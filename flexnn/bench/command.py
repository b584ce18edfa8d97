"""``flexnn bench``: its options and what it prints."""

from __future__ import annotations

import argparse
import json
from typing import Any

from flexnn import units
from flexnn.compiler import compiled
from flexnn.session import default_threads

from . import ablations, curve, timing


def run(options: argparse.Namespace) -> None:
    """Measures, prints a table or JSON, draws."""
    threads = options.threads or default_threads()
    points = []
    with (
        compiled(options.model, dict(options.shape)) as path,
        timing.opened(path, threads=threads, io=options.io, storage=options.storage, repeat=options.repeat) as setting,
    ):
        if options.what == "curve":
            timings = curve.curve(setting)
            if options.model.endswith(".onnx") and not options.no_peers:
                peer = curve.onnxruntime(options.model, threads, options.repeat)
                points = [peer] if peer else []
        else:
            memory = options.memory or 2 * setting.minimum()
            timings = ablations.ablate(setting, memory, options.only or [])
    rows = [found.describe() for found in timings]
    if options.draw:
        try:
            curve.draw(options.draw, options.model, rows, points)
        except ModuleNotFoundError as error:
            raise ValueError(f"drawing needs {error.name}: pip install flexnn[plot]") from None
    if options.json:
        print(json.dumps({"threads": threads, "storage": options.storage or None, "timings": rows, "peers": points}))
        return
    for row in (*rows, *points):
        print(_line(row))


def _line(row: dict[str, Any]) -> str:
    text = (
        f"{row['name']:<22} {units.format_bytes(row['memory']):>11}  p50 {row['p50']:8.2f} ms  p95 {row['p95']:8.2f} ms"
    )
    if "predicted" in row:
        text += f"  predicted {row['predicted']:8.2f}  stalls {row['stall']:7.2f}"
        text += f"  reads {units.format_bytes(row['bytes_read'])}"
    return text
