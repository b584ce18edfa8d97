"""Figures of a process under ``flexnn exec``, and the paragraph that it prints at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from flexnn.errors import printable
from flexnn.system.process import resident
from flexnn.units import format_bytes

from .account import account
from .logs import stands_in


class Figures:
    """Figures of one model: openings, runs, and why it did not run."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.open_ns = self.run_ns = self.runs = 0
        self.refusal = ""

    def opened(self, ns: int) -> None:
        """Count an opening."""
        self.open_ns += ns

    def ran(self, ns: int) -> None:
        """Count a run, and look at memory now and then."""
        self.run_ns += ns
        self.runs += 1
        if not self.runs & (self.runs - 1):
            account().look()


class _Report:
    """Figures of this process; a forked one begins anew."""

    def __init__(self) -> None:
        self._pid = -1
        self._start_bytes = 0
        self._models: dict[str, Figures] = {}

    def of(self, model: str) -> Figures:
        """Return the figures of a model, counted on where it was opened before."""
        if self._pid != os.getpid():
            self._pid, self._models, self._start_bytes = os.getpid(), {}, resident()[1]
            if stands_in():
                _at_end(self.show)
        return self._models.setdefault(model, Figures(model))

    def show(self) -> None:
        """Print the paragraph, once."""
        models, self._models = self._models, {}
        if self._pid == os.getpid() and models and sys.stderr is not None:
            sys.stderr.write(
                "".join(f"{printable(line)}\n" for line in self._lines(models))
            )  # at once: others end, too
            sys.stderr.flush()

    def _lines(self, models: dict[str, Figures]) -> list[str]:
        budget = account()
        promised = "no limit" if budget.total is None else f"{format_bytes(budget.total)} promised to this process"
        taken = f"its sessions took at most {format_bytes(budget.most_bytes)}"
        peak = f"the process grew from {format_bytes(self._start_bytes)} to {format_bytes(resident()[1])}"
        lines = [f"flexnn exec: process {self._pid}: {promised}, {taken}; {peak}"]
        for one in models.values():
            runs = f"{one.runs} runs in {one.run_ns / 1e9:.3f} s, opened in {one.open_ns / 1e9:.3f} s"
            lines.append(f"  {one.model}: {one.refusal or runs}" + (f" ({runs})" if one.refusal and one.runs else ""))
        return lines


def _at_end(call: Callable[[], None]) -> None:
    """Have ``call`` called when the process ends; those of multiprocessing end without atexit."""
    import atexit

    atexit.register(call)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, call, exitpriority=0)


report = _Report()
