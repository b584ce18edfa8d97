"""``flexnn bench``: its options and what it prints."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import flexnn
from flexnn import doctor, units
from flexnn.errors import printable
from flexnn.kept_artifacts import compiled
from flexnn.run.options import budget, default_threads

from . import ablations, compare, curve, open_models, timing


def run(options: argparse.Namespace) -> int:
    """Measure, print a table or JSON, draw. Return 1 where a stored measurement was faster by more than tolerated."""
    if options.what == "ablations" and options.groups is not None:
        raise ValueError("ablations need streamed weights, and groups pin all weights: leave out --groups")
    stored = compare.load(options.compare) if options.compare else None  # first: a wrong name costs no minutes
    if options.draw:
        try:
            curve.load_matplotlib()
        except ModuleNotFoundError as error:
            raise ValueError(f"drawing needs {error.name}: pip install flexnn[plot]") from None
    threads = options.threads or default_threads()
    source, timings, points = _measured(options, threads)
    rows = [found.describe() for found in timings]
    if options.draw:
        curve.draw(options.draw, f"{Path(options.model).stem}, {threads} thread{'s' * (threads > 1)}", rows, points)
    cpu = doctor.examine_cpu()
    report = {
        "version": flexnn.__version__,
        "what": options.what,
        "source": source,
        "threads": threads,
        "groups": options.groups,
        "io": options.io,
        "storage": options.storage or None,
        "isa": cpu["isa"],
        "cpu": cpu["board"] or cpu["name"],
        "timings": rows,
        "peers": points,
    }
    if options.json:
        print(json.dumps(report))
    else:
        for row in (*rows, *points):
            print(printable(_line(row)))
    if stored is None:
        return 0
    lines, slower = compare.compare(stored, report, options.tolerance)
    print("\n".join(map(printable, lines)), file=sys.stderr if options.json else sys.stdout)
    return int(slower)


def _measured(options: argparse.Namespace, threads: int) -> tuple[str, list[timing.Timing], list[dict[str, Any]]]:
    """Return the digest of the ONNX file, timings, and those of another runtime."""
    given, points = dict(options.shape), []
    shared = {"threads": threads, "io": options.io, "storage": options.storage, "repeat": options.repeat}
    with compiled(options.model, given) as path, contextlib.ExitStack() as stack:
        subject: timing.Subject | open_models.OpenSubject
        if open_models.is_open(path):
            bound = given if path == options.model else {}
            subject = open_models.OpenSubject(path, shapes=bound, numbers=dict(options.set), **shared)
        else:
            subject = stack.enter_context(timing.opened(path, groups=options.groups, **shared))
        if options.what == "curve":
            is_peer = options.model.endswith(".onnx") and not options.no_peers
            peer = curve.Peer(options.model, threads) if is_peer else None
            timings = curve.curve(subject, peer)
            found = peer.point() if peer else None
            points = [found] if found else []
        elif isinstance(subject, open_models.OpenSubject):
            raise ValueError("ablations need fixed shapes, and no branches: compile the model with --shape")
        else:
            memory = budget(options.memory) if options.memory else 2 * subject.minimum()
            timings = ablations.ablate(subject, memory, options.only or [])
        return subject.source, timings, points


def _line(row: dict[str, Any]) -> str:
    text = (
        f"{row['name']:<22} {units.format_bytes(row['memory']):>11}  p50 {row['p50']:8.2f} ms  p95 {row['p95']:8.2f} ms"
    )
    if "stall" in row:
        predicted = "       –" if row["predicted"] is None else f"{row['predicted']:8.2f}"
        text += f"  predicted {predicted}  stalls {row['stall']:7.2f}"
        text += f"  reads {units.format_bytes(row['bytes_read'])}"
    if row.get("rounds"):
        text += f"  rounds {min(row['rounds']):.2f} to {max(row['rounds']):.2f}"
    return text
