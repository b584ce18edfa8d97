"""Functions timed in turns: what a shared machine does to one, it does to all, so their ratios hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.summary import median, quantile

BLOCK_SECONDS = 0.02
"""Time of a block of runs, if its runs are short."""
SETTLE_SECONDS = 0.05
"""Pause before a block: onnxruntime's threads look for work, each on a core of its own, for 35 ms after a run."""
ROUNDS = 3
"""Fewest rounds."""


@dataclass(slots=True)
class Timed:
    """Milliseconds of a function's runs."""

    ms: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)
    """Median of each block."""

    @property
    def p50(self) -> float:
        """Median of all runs."""
        return median(self.ms)

    @property
    def p95(self) -> float:
        """Time that 95 of 100 runs keep."""
        return quantile(self.ms, 0.95)

    def row(self) -> dict[str, Any]:
        """Return its figures for ``--json``."""
        return {"p50": self.p50, "p95": self.p95, "min": min(self.ms), "runs": len(self.ms), "blocks": self.blocks}


def milliseconds(run: Callable[[], object]) -> float:
    """Return the time that one run takes."""
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def in_turns(
    runs: Mapping[str, Callable[[], object]], seconds: float, block_seconds: float = BLOCK_SECONDS
) -> dict[str, Timed]:
    """Return the times of functions by name: at least ROUNDS rounds, and for ``seconds``.

    A round has a block of runs of each, in an order that changes. The first run of a block is not counted: it brings
    the caches back.
    """
    taken = {name: Timed() for name in runs}
    names, end, number = list(runs), time.perf_counter() + seconds, 0
    while number < ROUNDS or time.perf_counter() < end:
        for name in names if number % 2 == 0 else reversed(names):
            time.sleep(SETTLE_SECONDS)
            runs[name]()
            block: list[float] = []
            stop = time.perf_counter() + block_seconds
            while not block or time.perf_counter() < stop:
                block.append(milliseconds(runs[name]))
            taken[name].ms += block
            taken[name].blocks.append(median(block))
        number += 1
    return taken


def ratio(own: Timed, other: Timed) -> float:
    """Return the median over the rounds of one's time over the other's."""
    return median([a / b for a, b in zip(own.blocks, other.blocks, strict=True)])
