"""Is one checkout slower than another? Builds two revisions and runs models with both, turn by turn.

    python -m bench.regress HEAD~5                     against the working tree, the eight classics, 1 thread
    python -m bench.regress HEAD~5 resnet152 --head HEAD --threads 2 --memory 48MiB --json out.json
    python -m bench.regress v0.1.0 classics vit_b16 gpt2 --threads 1 --threads 2 --rounds 20 --slack 0.03

Each revision is unpacked and installed, in a virtual environment of its own, under bench/.cache/regress (again only
when its files changed), and compiles the models itself. A round is a fresh process of each, in turn the first, so what
a process happens to get (pages, addresses) varies too. From the rounds' ratios comes a distribution-free interval of
the median ratio: between the k-th smallest and the k-th largest, k from the binomial distribution (Hettmansperger and
McKean 2011, "Robust Nonparametric Statistical Methods", sect. 1.3). Exit 1 if a model's whole interval lies above
1 + --slack. A wide interval says that the machine was busy, not that all is well: more rounds, or --clock cpu, which
counts neither what other processes take nor waiting for storage, help.

Each process also tells how long opening took, how long planning took at twice the smallest budget, what the smallest
budget is and what importing flexnn added to it. Where these are worse by more than --slack, a line says so.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.checkouts import WORKING_TREE, BuildError, Checkout, install
from bench.cli import add_models, cli, table, tables, write_json
from bench.models.catalogue import CLASSICS, Model, chosen
from bench.summary import geometric_mean, median

CONFIDENCE = 0.95
ROUNDS = 12
NOISE_MAX = 0.2
ROUNDS_MIN = 6
"""Fewer have no interval at 95 %."""
THREADS = (1,)
FACTS = ("open_ms", "plan_ms", "smallest_bytes", "import_bytes")
"""What a process tells beside the time of its runs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of ratios of times, head / base: the median, and the interval that holds the true one."""

    median: float
    low: float
    high: float

    def is_slower(self, slack: float) -> bool:
        return self.low > 1 + slack

    def is_blind(self) -> bool:
        """Whether even a slowdown of NOISE_MAX could have hidden."""
        return self.high - self.low > NOISE_MAX

    def is_faster(self, slack: float) -> bool:
        return self.high < 1 - slack


def verdict(ratios: list[float]) -> Verdict:
    """The largest k with P(Binomial(n, ½) < k) ≤ (1 - CONFIDENCE) / 2 bounds the median by order statistics."""
    n = len(ratios)
    if n < ROUNDS_MIN:
        raise ValueError(f"{n} rounds say nothing at {CONFIDENCE:.0%}: {ROUNDS_MIN} is the least")
    k = tail = 0
    while (tail + math.comb(n, k)) / 2**n <= (1 - CONFIDENCE) / 2:
        tail += math.comb(n, k)
        k += 1
    ordered = sorted(ratios)
    return Verdict(median(ordered), ordered[k - 1], ordered[n - k])


Rounds = list[dict[str, float]]
"""What the processes of one side told, round by round."""


def measure(
    model: Model, threads: int, sides: tuple[Checkout, Checkout], options: argparse.Namespace
) -> dict[str, Any]:
    """A row: base's and head's fastest runs in ms and their facts, round by round."""
    artifacts = [side.artifact(model) for side in sides]
    rounds: tuple[Rounds, Rounds] = ([], [])
    for turn in range(options.rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            arguments = (threads, options.memory, options.seconds, model.scale, options.clock)
            rounds[which].append(json.loads(sides[which].worker("time", artifacts[which], *arguments)))
    row: dict[str, Any] = {"model": model.name, "threads": threads}
    for side, told in zip(("base", "head"), rounds, strict=True):
        row[f"{side}_ms"] = [one["fastest_ms"] for one in told]
        # The first process of a side may have to measure the machine.
        row[side] = {fact: [one[fact] for one in told[1:]] for fact in FACTS}
    return row


def judge(row: dict[str, Any]) -> Verdict:
    return verdict([head / base for base, head in zip(row["base_ms"], row["head_ms"], strict=True)])


def worse(row: dict[str, Any], slack: float) -> list[str]:
    """Lines on the facts of a row that are worse: times and bytes by more than ``slack``, budgets by any."""
    lines = []
    for fact in FACTS:
        base, head = row["base"][fact], row["head"][fact]
        if fact == "smallest_bytes":
            is_worse = median(head) > median(base)
        else:
            low = verdict([max(b, 1.0) / max(a, 1.0) for a, b in zip(base, head, strict=True)]).low
            is_worse = low > 1 + slack
        if is_worse:
            lines.append(f"{row['model']}, {row['threads']} threads: {fact} {median(base):.2f} -> {median(head):.2f}")
    return lines


def show(rows: list[dict[str, Any]], slack: float, labels: tuple[str, str], console: Console) -> list[str]:
    """A table for each number of threads; the models that are slower."""
    slower = []
    for threads in dict.fromkeys(row["threads"] for row in rows):
        chosen_rows = [row for row in rows if row["threads"] == threads]
        rounds = len(chosen_rows[0]["base_ms"])
        title = f"fastest ms (median of {rounds} rounds), {threads} threads; {CONFIDENCE:.0%} interval of the ratio"
        facts = "open ms", "plan ms", "smallest MiB"
        grid = table(title, "model", *labels, "ratio", "interval", "", *facts)
        for row in chosen_rows:
            v = judge(row)
            is_slower = v.is_slower(slack)
            word = "slower" if is_slower else "faster" if v.is_faster(slack) else "noisy" if v.is_blind() else ""
            slower += [row["model"]] * is_slower
            medians = [f"{median(row[side]):.2f}" for side in ("base_ms", "head_ms")]
            grid.add_row(row["model"], *medians, f"{v.median:.3f}", f"{v.low:.3f} – {v.high:.3f}", word, *_facts(row))
        grid.add_section()
        mean = geometric_mean([judge(row).median for row in chosen_rows])
        grid.add_row("geometric mean", "", "", f"{mean:.3f}")
        console.print(grid)
    return slower


def _facts(row: dict[str, Any]) -> list[str]:
    """The cells of a row's facts: base → head."""
    cells = []
    for fact, unit in (("open_ms", 1), ("plan_ms", 1), ("smallest_bytes", 1 << 20)):
        base, head = (median(row[side][fact]) / unit for side in ("base", "head"))
        cells.append(f"{base:.1f} → {head:.1f}")
    return cells


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.regress", __doc__, threads=THREADS)
    parser.add_argument("base", help="a git revision")
    add_models(parser, CLASSICS)
    parser.add_argument("--head", default=WORKING_TREE, help="another revision; default: the working tree")
    parser.add_argument("--memory", default="", help="a budget for both")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=0.5, help="of runs, each round and side")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for busy machines, 1 thread")
    parser.add_argument("--slack", type=float, default=0.02, help="a slowdown that is let pass")
    options = parser.parse_intermixed_args(arguments)
    if options.rounds <= ROUNDS_MIN:
        parser.error(f"--rounds: more than {ROUNDS_MIN}")
    jobs = [(model, n) for n in options.threads or THREADS for model in chosen(options.names, CLASSICS)]
    try:
        sides = install(options.base), install(options.head)
        progress = Console(stderr=True)
        rows = [measure(model, n, sides, options) for model, n in track(jobs, "measuring", console=progress)]
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for row in rows:
        v = judge(row)
        row |= {"ratio": v.median, "low": v.low, "high": v.high, "is_slower": v.is_slower(options.slack)}
    write_json(options.json, {"base": options.base, "head": options.head, "rows": rows})
    console = tables(options.json, 150)
    slower = show(rows, options.slack, (options.base, options.head), console)
    imported = [median([b for row in rows for b in row[side]["import_bytes"]]) / 1e6 for side in ("base", "head")]
    console.print(f"importing flexnn adds {imported[0]:.2f} → {imported[1]:.2f} MB")
    for line in (line for row in rows for line in worse(row, options.slack)):
        console.print(f"worse: {line}")
    if slower:
        print(f"error: slower than {options.base}: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
