"""A case inside budgets: the smallest one, and how far a refusal's number is from it; 1.5 of it, timed and alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.process import ALLOWANCE
from bench.process import flexnn as command
from bench.rounds import in_turns, ratio

START = 1 << 16
"""Bytes that are refused: the search begins there."""
SHARE = 1.5
"""Budget in which a case is timed, of its smallest."""
Feed = Mapping[str, Any]


@dataclass(slots=True)
class Smallest:
    """The smallest budget of a case, found by asking again for what each refusal named."""

    memory: int
    refusals: int
    """Number of refusals: 1 if the first one's number works."""
    first_named: int
    """The number of the first one."""
    session_bytes: int
    """Bytes that the session owns which runs in it."""


def smallest(artifact: Path, feed: Feed, threads: int) -> Smallest:
    """Return the smallest budget that opens and runs the case."""
    memory, refusals, first_named = START, 0, START
    while True:
        try:
            with flexnn.Session(artifact, memory, threads) as session:
                session.run(None, feed)
                return Smallest(memory, refusals, first_named, session.session_bytes)
        except flexnn.BudgetError as error:
            memory = max(error.minimum, memory + 1)
            refusals += 1
            first_named = memory if refusals == 1 else first_named


def run_alone(artifact: Path, feed: Feed, budget: int, threads: int) -> tuple[list[np.ndarray], int]:
    """Return the outputs of a process of its own in this budget, and the bytes that it took."""
    given, got = artifact.with_suffix(".in.npz"), artifact.with_suffix(".out.npz")
    np.savez(given, **feed)
    options = ("--memory", budget, "--threads", threads, "--repeat", 3, "--input", given, "--output", got)
    report = command("run", artifact, *options)
    with flexnn.Session(artifact, threads=threads) as session, np.load(got) as outputs:
        return [outputs[port.name] for port in session.get_outputs()], report["peak_rss"] - report["baseline_rss"]


def kept(taken: int, budget: int) -> bool:
    """Return whether a process that took these bytes kept its budget."""
    return taken <= budget + ALLOWANCE


def timed_in_budget(
    unlimited: flexnn.Session, artifact: Path, feed: Feed, budget: int, seconds: float
) -> dict[str, Any]:
    """Return a case's times in a budget beside those of an unlimited session."""
    with flexnn.Session(artifact, budget, unlimited.threads) as session:
        runs = {"in_budget": lambda: session.run(None, feed), "unlimited": lambda: unlimited.run(None, feed)}
        for run in (*runs.values(), *runs.values()):
            run()
        taken = in_turns(runs, seconds)
        return {
            **{name: timed.row() for name, timed in taken.items()},
            "in_budget_ratio": ratio(taken["in_budget"], taken["unlimited"]),
            "in_budget_bytes": session.session_bytes,
            "in_budget_bytes_read": session.last_run["bytes_read"],
            "in_budget_bound_ms": session.plan.bound_ms,
        }
