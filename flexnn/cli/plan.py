"""``flexnn plan``."""

from __future__ import annotations

import argparse
import json

import flexnn
from flexnn.planned import page, planning
from flexnn.run.options import run_options

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
    )
    try:
        with planning(options.model, chosen, dict(options.shape), shown=True) as plans:
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
    if options.json:
        print(json.dumps({"feasible": True, **found.describe(), **({"weights": weights} if weights else {})}))
        return
    say(found.summary())
    if weights:
        say(weights)
    if options.check:
        print("check    no two live tensors overlap, at any interleaving of loads and steps")
