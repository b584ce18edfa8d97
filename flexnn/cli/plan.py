"""``flexnn plan``."""

from __future__ import annotations

import argparse
import json

import flexnn
from flexnn.planned import page, planning
from flexnn.run.options import run_options
from flexnn.units import format_bytes

from .files import check_writable, written
from .terminal import say


def plan(options: argparse.Namespace) -> None:
    """Print the plan, and what decides its time and its peak; write the report if asked to."""
    if options.html is not None:
        check_writable(options.html)
    chosen = run_options(
        options.memory,
        options.threads,
        io=options.io,
        profile=options.profile,
        groups=options.groups,
        reuse_outputs=options.reuse_outputs,
        deterministic=options.deterministic,
        spill=options.spill,
        kv_capacity=options.kv_capacity,
        kv=options.kv,
    )
    try:
        with planning(options.model, chosen, dict(options.shape), dict(options.set), shown=True) as plans:
            found, weights = plans.plan(explained=True), plans.weights
            html = page(options.model, plans, found) if options.html is not None else ""
    except flexnn.BudgetError as error:
        if options.json:
            print(json.dumps({"feasible": False, "minimum_memory": error.minimum}))
        raise
    if options.check:
        found.check()
    if options.html is not None:
        with written(options.html) as file:
            file.write(html.encode("utf-8", "backslashreplace"))
    daily = {}
    if options.runs_per_day is not None and hasattr(found, "bytes_written_per_day"):
        daily = {"bytes_written_per_day": found.bytes_written_per_day(options.runs_per_day)}
    if options.json:
        print(json.dumps({"feasible": True, **found.describe(), **daily, **({"weights": weights} if weights else {})}))
        return
    say(found.summary())
    for written_bytes in daily.values():
        say(f"per day  {format_bytes(written_bytes)} written by {options.runs_per_day} runs")
    if weights:
        say(weights)
    if options.check:
        print("check    no two live tensors overlap, at any interleaving of loads and steps")
