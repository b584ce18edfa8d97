"""``flexnn plan``."""

from __future__ import annotations

import argparse
import json

import flexnn

from .terminal import say


def plan(options: argparse.Namespace) -> None:
    """Print the plan, and what decides its time and its peak."""
    try:
        found = flexnn.plan(
            options.model,
            memory=options.memory,
            threads=options.threads,
            shapes=dict(options.shape),
            io=options.io,
            profile=options.profile,
            groups=options.groups,
            reuse_outputs=options.reuse_outputs,
            deterministic=options.deterministic,
            explain=True,
        )
    except flexnn.BudgetError as error:
        if options.json:
            print(json.dumps({"feasible": False, "minimum_memory": error.minimum}))
        raise
    if options.check:
        found.check()
    if options.json:
        print(json.dumps({"feasible": True, **found.describe()}))
        return
    say(found.summary())
    if options.check:
        print("check    no two live tensors overlap, at any interleaving of loads and steps")
