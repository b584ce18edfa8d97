"""Memory, stalls and rate on standard error while a model runs: a table where rich is installed and somebody looks,
else a line every second.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import flexnn
from flexnn.median import median, quantile
from flexnn.system.process import resident
from flexnn.units import format_bytes

from .terminal import say

REFRESH_S, LINE_S = 0.25, 1.0
LATEST = 200
"""Runs that the figures are of."""


class Live:
    """Figures of the latest runs, shown as they change."""

    def __init__(self, session: flexnn.Session, baseline: int, table: Any) -> None:
        self._session, self._baseline, self._table = session, baseline, table
        self._runs: deque[tuple[float, float, int]] = deque(maxlen=LATEST)
        self._begun = self._shown = time.monotonic()
        self._count = 0

    def ran(self, run_ms: float, last_run: dict[str, int]) -> None:
        """Note a run; show the figures when it is time."""
        self._runs.append((run_ms, last_run["stall_ns"] / 1e6, last_run["bytes_read"]))
        self._count += 1
        now = time.monotonic()
        if now - self._shown >= (REFRESH_S if self._table else LINE_S) or self._count == 1:
            self._shown = now
            self.show()

    def rows(self) -> dict[str, str]:
        """Return the figures in words."""
        latencies, stalls, reads = zip(*self._runs, strict=True)
        spent = max(sum(latencies), 1e-6)
        budget = "no limit" if self._session.memory is None else format_bytes(self._session.memory)
        now, peak = (max(rss - self._baseline, 0) for rss in resident())
        return {
            "memory": f"{format_bytes(now)} added now, {format_bytes(peak)} at most (budget {budget})",
            "rate": f"{1e3 * len(latencies) / spent:.1f} runs per second, p50 {median(list(latencies)):.2f} ms,"
            f" p95 {quantile(list(latencies), 0.95):.2f} ms",
            "stalls": f"{sum(stalls) / len(stalls):.2f} ms per run, {sum(stalls) / spent:.1%} of the time",
            "reading": f"{format_bytes(sum(reads) // len(reads))} per run,"
            f" {format_bytes(int(1e3 * sum(reads) / spent))} per second",
            "runs": f"{self._count} in {time.monotonic() - self._begun:.0f} s",
        }

    def show(self) -> None:
        """Show the figures now."""
        if self._table is not None:
            self._table(self.rows())
        elif sys.stderr is not None:
            say("  ".join(f"{name} {text}" for name, text in self.rows().items()), sys.stderr)


def load() -> bool:
    """Import what shows a table, before memory is measured; return whether there is one, and somebody looks."""
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    try:
        import rich.live
        import rich.table  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


@contextlib.contextmanager
def shown(session: flexnn.Session, baseline: int) -> Iterator[Live]:
    """Show figures of ``session`` while the block runs; ``baseline``: resident bytes before it was opened."""
    if not load():
        yield Live(session, baseline, None)
        return
    from rich.console import Console
    from rich.live import Live as Screen
    from rich.table import Table
    from rich.text import Text

    with Screen(console=Console(stderr=True), auto_refresh=False, transient=True) as screen:

        def table(rows: dict[str, str]) -> None:
            made = Table(show_header=False, box=None)
            for name, text in rows.items():
                made.add_row(name, Text(text))
            screen.update(made, refresh=True)

        yield Live(session, baseline, table)
