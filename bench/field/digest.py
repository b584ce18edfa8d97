"""Figures of the whole field: geometric means over its cases, the worst ones, and those beyond a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.process import MIB
from bench.summary import geometric_mean

LIMIT, LIMIT_SHORT, SHORT_MS = 1.10, 1.20, 0.1
"""Times over onnxruntime's that a case may take, and where onnxruntime takes less than SHORT_MS."""
SHOWN = 12
"""Cases beyond a limit that the text names; ``--json`` has all, and the text all of the warm ones."""
LONG_MS = 1.0
"""Time above which cases have a geometric mean of their own."""
FIRST_LIMIT, FIRST_MS = 2.0, 3.0
"""First runs: times over onnxruntime's where that is above FIRST_MS, elsewhere FIRST_MS more."""
BIND_MS, BIND_NODE_MS = 1.0, 0.02
"""Time to bind and plan new shapes: of a model, and of each node."""
BUDGET_LIMIT = 1.15
"""Times over that without limit in 1.5 of the smallest budget, where the device's bound is not above it."""


class Pair(NamedTuple):
    """A case's milliseconds, FlexNN's and what they are held against, and their ratio."""

    name: str
    own: float
    other: float
    ratio: float

    def text(self) -> str:
        """Return it as text."""
        return f"{self.name} {self.ratio:.2f} ({self.own:.3g} / {self.other:.3g} ms)"


def case_name(model: str, case: dict[str, Any]) -> str:
    """Return the model's name with the sizes of the first input that has any."""
    sizes = next((shape for shape in case["shapes"].values() if shape), ())
    return f"{model} {'×'.join(map(str, sizes))}"


def _means(pairs: Sequence[Pair], beyond: Callable[[Pair], bool]) -> dict[str, Any]:
    """Return geometric means of ratios, the worst and those beyond a limit."""
    if not pairs:
        return {"cases": 0}
    long = [pair.ratio for pair in pairs if pair.other > LONG_MS]
    above = sorted((pair for pair in pairs if beyond(pair)), key=lambda pair: -pair.ratio)
    return {
        "cases": len(pairs),
        "geometric_mean": geometric_mean([pair.ratio for pair in pairs]),
        "cases_above_1_ms": len(long),
        "geometric_mean_above_1_ms": geometric_mean(long) if long else None,
        "worst": max(pairs, key=lambda pair: pair.ratio).text(),
        "beyond": [pair.text() for pair in above],
    }


def _is_slow(pair: Pair) -> bool:
    return pair.ratio > (LIMIT if pair.other >= SHORT_MS else LIMIT_SHORT)


def _is_late(pair: Pair) -> bool:
    return pair.ratio > FIRST_LIMIT if pair.other > FIRST_MS else pair.own > pair.other + FIRST_MS


def _bounded(name: str, case: dict[str, Any]) -> str:
    """Return a case's name, with the bound of its plan where that is above the limit."""
    bound = _bound(case)
    return f"{name} (bound {bound:.2f})" if bound > BUDGET_LIMIT else name


def _bound(case: dict[str, Any]) -> float:
    """Return the least time that the device allows the plan in a budget, over that without limit."""
    return float(case["in_budget_bound_ms"] / case["unlimited"]["p50"])


def _firsts(cases: Sequence[tuple[str, dict[str, Any]]], kind: str) -> list[Pair]:
    found = [(name, case[kind]["own"], case[kind]["onnxruntime"]) for name, case in cases if kind in case]
    return [Pair(name, own, other, own / other) for name, own, other in found]


def digest(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the models' rows."""
    cases = [(case_name(row["model"], case), case) for row in rows for case in row.get("cases", ())]
    nodes = {case_name(row["model"], case): row["nodes"] for row in rows for case in row.get("cases", ())}
    warm = [Pair(n, c["own"]["p50"], c["onnxruntime"]["p50"], c["ratio"]) for n, c in cases]
    tail = [Pair(n, c["own"]["p95"], c["onnxruntime"]["p95"], c["ratio_p95"]) for n, c in cases]
    tight = [Pair(_bounded(n, c), c["in_budget"]["p50"], c["unlimited"]["p50"], c["in_budget_ratio"]) for n, c in cases]
    limits = {_bounded(n, c): max(BUDGET_LIMIT, _bound(c)) for n, c in cases}
    bind = {name: case["bind_ms"] for name, case in cases if "bind_ms" in case}
    over = sorted(((ms / (BIND_MS + BIND_NODE_MS * nodes[name]), name) for name, ms in bind.items()), reverse=True)
    bound = [f"{name} {bind[name]:.1f} ms, {nodes[name]} nodes" for times, name in over if times > 1]
    return {
        "models": len(rows),
        "failed": [row["model"] for row in rows if "failed" in row],
        "warm": _means(warm, _is_slow),
        "warm_p95": _means(tail, _is_slow),
        "first": _means(_firsts(cases, "first_ms"), _is_late),
        "new": _means(_firsts(cases, "new_ms"), _is_late) | {"bound_slowly": bound},
        "in_budget": _means(tight, lambda pair: pair.ratio > limits[pair.name]),
        "budgets": _budgets(cases),
    }


def _budgets(cases: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return how the smallest budgets were found, and those that are above what the session takes without limit."""
    most = max(cases, key=lambda item: int(item[1]["refusals"]), default=None)
    mib = [(name, case["smallest_bytes"] / MIB, case["unlimited_bytes"] / MIB) for name, case in cases]
    return {
        "cases": len(cases),
        "first_refusal_works": sum(case["refusals"] == 1 for _, case in cases),
        "most_refusals": f"{most[1]['refusals']}, {most[0]}" if most else "",
        "above_unlimited": [f"{name} {least:.1f} of {whole:.1f} MiB" for name, least, whole in mib if least > whole],
        "session_above_memory": [
            name
            for name, case in cases
            if case["smallest_session_bytes"] > case["smallest_bytes"] or case["in_budget_bytes"] > case["budget"]
        ],
    }


TITLES = {
    "warm": "time over onnxruntime's, warm (limit 1.10; 1.20 below 0.1 ms)",
    "warm_p95": "the same of the 95th percentiles",
    "first": "first run after opening (limit 2 above 3 ms; below, 3 ms more)",
    "new": "first run at new shapes (the same limits)",
    "in_budget": "1.5 of the smallest budget over no limit (limit 1.15, or the plan's bound)",
}


def _listed(found: Sequence[str], shown: int = SHOWN) -> list[str]:
    """Return names below a line, and how many more there are."""
    more = [f"    … and {len(found) - shown} more"] if len(found) > shown else []
    return [*(f"    {text}" for text in found[:shown]), *more]


def lines(figures: dict[str, Any]) -> list[str]:
    """Return the figures as text."""
    told = [f"{figures['models']} models; failed: {', '.join(figures['failed']) or 'none'}"]
    for kind, title in TITLES.items():
        found = figures[kind]
        if not found["cases"]:
            continue
        told.append(f"{title}: {found['cases']} cases, geometric mean {found['geometric_mean']:.2f}")
        if found["cases_above_1_ms"]:
            mean, number = found["geometric_mean_above_1_ms"], found["cases_above_1_ms"]
            told[-1] += f", of {number} above 1 ms {mean:.2f}"
        told[-1] += f"; worst {found['worst']}; beyond the limit {len(found['beyond'])}"
        told += _listed(found["beyond"], len(found["beyond"]) if kind == "warm" else SHOWN)
    slow = figures["new"].get("bound_slowly", [])
    told.append(f"bound and planned in more than 1 ms + 20 µs a node: {len(slow)}")
    told += _listed(slow)
    budgets = figures["budgets"]
    told.append(
        f"smallest budgets: the first refusal's number works in {budgets['first_refusal_works']} of "
        f"{budgets['cases']} cases; most refusals {budgets['most_refusals']}"
    )
    for kind, title in (
        ("above_unlimited", "smallest budget above what the session takes without limit"),
        ("session_above_memory", "session_bytes above memory"),
    ):
        told.append(f"{title}: {len(budgets[kind])}")
        told += _listed(budgets[kind])
    return told


def line(row: dict[str, Any]) -> str:
    """Return a model's row as text."""
    cells = [f"{row['nodes']} nodes, artifact {row['artifact_bytes'] / 1e6:.1f} MB"]
    for case in row["cases"]:
        first = [
            f"{title} {case[kind]['own']:.1f} ({case[kind]['onnxruntime']:.1f})"
            for kind, title in (("first_ms", "first"), ("new_ms", "new"))
            if kind in case
        ]
        sizes = " of ".join(f"{case[key] / MIB:.1f}" for key in ("smallest_bytes", "unlimited_bytes"))
        cells.append(
            f"{case['error']}, {case['own']['p50']:.2f} ms (onnxruntime {case['onnxruntime']['p50']:.2f}; "
            f"{case['ratio']:.2f}), {', '.join(first)}; smallest {sizes} MiB, {case['refusals']} refusals; "
            f"{case['error_in_budget']} and {case['in_budget_ratio']:.2f} in {case['budget'] / MIB:.1f}"
        )
    return f"{row['model']:20} {' | '.join(cells)}"
