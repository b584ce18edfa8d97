"""Scales of operators and kernels, measured over analytic time, from some milliseconds of samples.

A sample is a step over some rows of a node, so short that on a busy machine one of its runs is likely undisturbed: the
shortest counts. So ratios of kernels come out right where a single run of whole nodes would be off by factors.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.median import median
from flexnn.planning.types import LINE, Costs, align_up

from .compute import REFUSED_MAX, Bench, Case

CASES_MAX = 2
"""Most samples of an operator or kernel: of the nodes that take longest."""
SAMPLE_S = 80e-6
"""Seconds that a sample should take at most, by analytic time."""
RUNS_MIN, RUNS_MAX = 4, 12
"""Runs of all samples; the first one, which touches memory for the first time, does not count."""
ROWS_MIN = 8
"""Fewest rows: all threads should have a part, also where kernels work on tiles of rows."""
PANELS_BYTES = 1 << 20
"""Most bytes of a sample's panels."""


class Sample(NamedTuple):
    """A window of a case."""

    case: Case
    rows: int
    panels: int
    seconds: float
    """Its analytic time."""


def scale_name(case: Case) -> str:
    """Return the name of a variant's scale: its kernel, or its operator."""
    return case.variant.kernel or case.key.partition(".")[0]


def sampled_scales(
    graph: Graph, costs: Costs, cases: list[Case], *, arena_bytes: int, seconds: float, step_s: float
) -> dict[str, float]:
    """Return the scales of those operators and kernels of ``cases`` that an arena of ``arena_bytes`` can hold, in about
    ``seconds``. ``step_s``: what a step takes in addition to its work.
    """
    end = time.perf_counter() + seconds
    room = (arena_bytes - costs.zeros_bytes) // LINE * LINE
    refused: set[int] = set()
    while len(refused) <= REFUSED_MAX:
        left = [case for case in cases if case.index not in refused]
        samples, weights = _samples(graph, left, room, seconds, step_s)
        if not samples:
            break
        bench = Bench(graph, costs, weights)
        for sample in samples:
            bench.add(sample.case, sample.panels, sample.rows)
        try:
            runs = bench.times(end, RUNS_MIN, RUNS_MAX)
        except _core.EngineError as error:
            if error.status not in ("index", "params"):
                raise
            refused.add(samples[error.index - 1].case.index)
            continue
        ratios: dict[str, list[float]] = {}
        for sample, *taken in zip(samples, *runs[1:], strict=True):
            ratios.setdefault(scale_name(sample.case), []).append(max(min(taken), 1e-9) / sample.seconds)
        return {name: median(found) for name, found in ratios.items()}
    return {}


def _samples(graph: Graph, cases: list[Case], room: int, seconds: float, step_s: float) -> tuple[list[Sample], int]:
    """Return samples of each operator and kernel that fit in ``room`` bytes, and the bytes of their weights."""
    by_name: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: -case.variant.seconds()):
        if case.beside_bytes + align_up(max(case.costs.panel_bytes, 1)) <= room:
            by_name.setdefault(scale_name(case), []).append(case)
    most_s = min(seconds / (CASES_MAX * RUNS_MIN * max(len(by_name), 1)), SAMPLE_S)
    samples: list[Sample] = []
    for found in by_name.values():
        every = [_sample(graph.nodes[case.index].op, case, room - case.beside_bytes, most_s, step_s) for case in found]
        short = [sample for sample in every if sample.seconds <= 2 * most_s]
        samples += short[:CASES_MAX] or [min(every, key=lambda sample: sample.seconds)]
    sizes = [align_up(sample.panels * sample.case.costs.panel_bytes) for sample in samples]
    weights = min(sum(sizes), room - max((sample.case.beside_bytes for sample in samples), default=0))
    return [sample for sample, size in zip(samples, sizes, strict=True) if size <= weights], weights


def _sample(op: str, case: Case, weights: int, most_s: float, step_s: float) -> Sample:
    """Return the longest window of a case that takes ``most_s`` and whose panels take ``weights`` bytes, at most."""
    known, work_s = case.costs, max(case.variant.seconds() - step_s, 0.0)
    panels = min(case.large, max(min(weights, PANELS_BYTES) // known.panel_bytes, 1)) if case.large else 0
    work_s *= panels / known.panels if panels else 1.0
    first, last, *_ = _core.op_full_window(op, known.params)
    rows = whole = last - first
    if "rows" in _core.op_traits(op) and work_s > most_s:
        rows = min(max(align_up(int(whole * most_s / work_s), ROWS_MIN), ROWS_MIN), whole)
    return Sample(case, rows, panels, step_s + work_s * rows / max(whole, 1))
