"""``flexnn run --energy``: joules per run, where the system measures them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from flexnn.measure.energy import Meter, NotOfferedError, Used, find_source

IDLE_S, LEAST_S = 0.5, 1.0
"""Time that is measured before the session opens, and the least that runs are measured for: sensors are slow."""


class EnergyUse:
    """Energy of runs. It is that of all that the sensor sees, so the power before the session opened is told, too."""

    def __init__(self) -> None:
        self._meter: Meter | None = None
        self._lacking = ""
        self._idle = self._used = Used(0.0, 0.0)
        self._runs = 0
        self._begun = 0.0
        try:
            self._meter = Meter(find_source())
            self._meter.start()
            time.sleep(IDLE_S)
            self._idle = self._meter.stop()
        except (NotOfferedError, OSError) as error:
            self._lacks(error)

    def _lacks(self, error: Exception) -> None:
        self._meter = None
        self._lacking = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)

    @contextlib.contextmanager
    def measured(self, count: Callable[[], int]) -> Iterator[None]:
        """Measure while the block runs; ``count`` returns how often the model ran so far."""
        if self._meter is None:
            yield
            return
        self._begun, before = time.perf_counter(), count()
        try:
            self._meter.start()
        except OSError as error:
            self._lacks(error)
        try:
            yield
        finally:
            self._runs = count() - before
            if self._meter is not None:
                try:
                    self._used = self._meter.stop()
                except OSError as error:
                    self._lacks(error)

    def run_on(self, run: Callable[[], None]) -> None:
        """Run until enough time is measured."""
        while self._meter is not None and time.perf_counter() - self._begun < LEAST_S:
            run()

    def describe(self) -> dict[str, Any]:
        """Return the energy for JSON."""
        if self._meter is None or not self._runs:
            return {"source": None, "lacking": self._lacking or "nothing ran"}
        return {
            "source": self._meter.source.name,
            "joules_per_run": self._used.joules / self._runs,
            "watts": self._used.watts,
            "watts_before": self._idle.watts,
            "seconds": self._used.seconds,
        }


def energy_told(found: dict[str, Any]) -> str:
    """Return the energy in words."""
    if found["source"] is None:
        return f"not offered here: {found['lacking']}"
    return (
        f"{found['joules_per_run']:.4g} J per run ({found['watts']:.2f} W while running, {found['watts_before']:.2f} W"
        f" before; {found['source']})"
    )
