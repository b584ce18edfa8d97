"""Operators that numpy computes at run time, and their share of a run's time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import flexnn
from bench.rounds import milliseconds
from bench.summary import median

RUNS = 3
"""Fewest runs of a case."""
FUNCTION = "evaluate_node"
"""Name of the function that computes an operator in numpy, in each module that calls it."""


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Give the milliseconds that each operator takes in numpy while the context is open."""
    taken: dict[str, float] = {}

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(node: Any, *rest: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(node, *rest)
            finally:
                taken[node.op_type] = taken.get(node.op_type, 0.0) + 1e3 * (time.perf_counter() - start)

        return evaluate

    modules = [m for name, m in sys.modules.items() if name.startswith("flexnn") and hasattr(m, FUNCTION)]
    before = {module: getattr(module, FUNCTION) for module in modules}
    try:
        for module, function in before.items():
            setattr(module, FUNCTION, wrapped(function))
        yield taken
    finally:
        for module, function in before.items():
            setattr(module, FUNCTION, function)


def hosted(session: flexnn.Session, feed: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return a run's milliseconds (medians): all, in the engine, and in each hosted operator, with its count."""
    with session:
        session.run(None, feed)
        session.run(None, feed)
        count = session.statistics()["hosted_operators"]
        wall, core, numpy = [], [], []
        end = time.perf_counter() + seconds
        while len(wall) < RUNS or time.perf_counter() < end:
            with watched() as taken:
                wall.append(milliseconds(lambda: session.run(None, feed)))
            core.append(1e-6 * session.last_run["run_ns"])
            numpy.append(taken)
    operators = {
        op: {"runs": number, "ms": median([found.get(op, 0.0) for found in numpy])} for op, number in count.items()
    }
    return {"ms": median(wall), "core_ms": median(core), "hosted": operators}


def hosted_line(row: dict[str, Any]) -> str:
    """Return a model's row as text: shares of the time of a run, for each case."""
    cells = []
    for case in row["cases"]:
        numpy = sum(found["ms"] for found in case["hosted"].values())
        rest = case["ms"] - case["core_ms"] - numpy
        shares = ", ".join(f"{part / case['ms']:.0%} {name}" for name, part in _parts(case["core_ms"], numpy, rest))
        most = sorted(case["hosted"].items(), key=lambda item: -item[1]["ms"])
        named = ", ".join(f"{found['runs']} {op} {found['ms'] / case['ms']:.1%}" for op, found in most)
        cells.append(f"{case['ms']:.2f} ms ({shares}): {named or 'nothing'}")
    return f"{row['model']:20} {' | '.join(cells)}"


def _parts(core: float, numpy: float, rest: float) -> Sequence[tuple[str, float]]:
    return ("engine", core), ("numpy", numpy), ("Python around", rest)


def hosted_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the operators of all models as text, those that take most first."""
    cases = [case for row in rows for case in row.get("cases", ())]
    if not cases:
        return []
    shares: dict[str, list[float]] = {}
    runs: dict[str, int] = {}
    for case in cases:
        for op, found in case["hosted"].items():
            shares.setdefault(op, []).append(found["ms"] / case["ms"])
            runs[op] = runs.get(op, 0) + found["runs"]
    told = [
        f"{len(cases)} cases; of operators: cases that have it, times that it runs, mean and largest share of a run"
    ]
    for op, found in sorted(shares.items(), key=lambda item: -sum(item[1])):
        told.append(f"{op:24} {len(found):4} {runs[op]:7} {sum(found) / len(cases):7.2%} {max(found):7.1%}")
    parts = {name: 0.0 for name, _ in _parts(0, 0, 0)}
    for case in cases:
        numpy = sum(found["ms"] for found in case["hosted"].values())
        for name, part in _parts(case["core_ms"], numpy, case["ms"] - case["core_ms"] - numpy):
            parts[name] += part / case["ms"] / len(cases)
    return [*told, "mean share: " + ", ".join(f"{name} {share:.1%}" for name, share in parts.items())]
