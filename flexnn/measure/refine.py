"""Refinement of a profile by real runs, of which the engine keeps some times of steps and loads.

One factor corrects all computing and one all reading. They cover effects that measuring each kernel alone misses, like
caches that the node before has filled and a busy machine, and do not favour the kernels that ran.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, compress
from typing import TYPE_CHECKING

import numpy as np

from flexnn import _core
from flexnn.median import median
from flexnn.planning import MachineProfile, Program
from flexnn.planning.machine import load_seconds, variant_key
from flexnn.planning.program import decode_variant
from flexnn.planning.types import F64

if TYPE_CHECKING:
    Times = memoryview | array[float]
    """Start, end, start, …"""
Spans = tuple[memoryview, memoryview]
"""Times of a run's steps and of its loads in ns, as the engine keeps them until the next run."""
SAMPLES_MIN, SAMPLES_MAX = 3, 12
WEIGHT = 0.5
"""Weight of the new factor against what was known."""
FACTOR_MAX = 1.5
"""Largest correction in one session; a profile that is wrong by more is corrected in several."""
WORTH_KEEPING = 0.02


class Watch:
    """Observer of the 2nd, 4th, 8th, … run of a program that was planned for ``machine``."""

    def __init__(self, program: Program, machine: MachineProfile) -> None:
        self.program, self._machine = program, machine
        self._runs = 0
        self._computed: list[array[float]] = []
        self._read: list[float] = []

    def ran(self, times: Callable[[], Spans | None]) -> None:
        """Note that a run succeeded; ``times`` returns its times (BoundProgram.spans)."""
        self._runs += 1
        if self._runs & (self._runs - 1) or self._runs < 2 or len(self._computed) >= SAMPLES_MAX:
            return
        spans = times()
        if not spans:
            return
        machine, (steps, loads) = self._machine, spans
        self._computed.append(_alone(steps, loads, machine.compute_speed))
        self._read.append(sum(_alone(loads, steps, machine.load_speed)))

    @property
    def seconds(self) -> float:
        """Approximate seconds that the steps of all runs took."""
        return self._runs * median([sum(times) for times in self._computed]) if self._computed else 0.0

    def learnt(self, machine: MachineProfile) -> MachineProfile | None:
        """Return the corrected profile; None if there were too few runs, or if they went as predicted. ``machine`` is
        the profile that the program was planned for, or that one without its throttle.
        """
        if len(self._computed) < SAMPLES_MIN:
            return None
        predicted = _step_seconds(self.program, machine).tolist()
        seen = [sum(compress(times, predicted)) for times in self._computed]
        compute = _factor(seen, sum(predicted))
        loads = load_seconds(self._machine, self.program.loads["bytes"])
        read = _factor(self._read, float(loads.sum())) if self._machine is machine else 1.0
        if max(abs(compute - 1), abs(read - 1)) < WORTH_KEEPING:
            return None
        return replace(
            machine,
            times={
                variant: (fixed * compute, channels * compute) for variant, (fixed, channels) in machine.times.items()
            },
            scales={name: scale * compute for name, scale in machine.scales.items()},
            storage_bytes_per_second=machine.storage_bytes_per_second / read,
            request_s=machine.request_s * read,
            latency_s=machine.latency_s * read,
        )


def _factor(seen: list[float], predicted: float) -> float:
    if predicted <= 0:
        return 1.0
    factor = 1 + WEIGHT * (median(seen) / predicted - 1)
    return min(max(factor, 1 / FACTOR_MAX), FACTOR_MAX)


def _step_seconds(program: Program, machine: MachineProfile) -> F64:
    """Return the seconds of each step; 0 where its variant was not measured."""
    variants = []
    for node in program.nodes:
        op, params, variant = decode_variant(node)
        fixed, channels = machine.times.get(variant_key(op, params, variant), (0.0, 0.0))
        variants.append((fixed, channels, max(_core.op_full_window(op, params)[3], 1)))
    fixed_s, channels_s, whole = np.array(variants).reshape(-1, 3)[program.steps["node"]].T
    window = program.steps["window"]
    return np.asarray(fixed_s + channels_s * (window["c1"] - window["c0"]) / whole, np.float64)


def _alone(spans: Times, others: Times, speed: float) -> array[float]:
    """Return the seconds that each of ``spans``, in ns, would have taken alone. ``speed``: that of spans beside others,
    as a fraction.
    """
    rows = zip(lengths(spans), overlaps(spans, others), strict=True)
    return array("d", (1e-9 * (taken - lost * (1 - speed)) for taken, lost in rows))


def lengths(spans: Times) -> array[float]:
    """Return how long each span is."""
    return array("d", (end - start for start, end in zip(spans[::2], spans[1::2], strict=True)))


def overlaps(spans: Times, others: Times) -> array[float]:
    """Return the time of each span in which one of ``others``, which do not overlap each other, goes on. It runs while
    budgets are tight, so it makes no object that stays for a number.
    """
    starts, ends = others[::2], others[1::2]
    total = array("d", accumulate(lengths(others), initial=0.0))

    def until(moment: float) -> float:
        begun = bisect_right(starts, moment)
        if not begun:
            return 0.0
        start, end = starts[begun - 1], ends[begun - 1]
        return total[begun - 1] + max(min(moment, end) - start, 0.0)

    return array("d", (until(end) - until(start) for start, end in zip(spans[::2], spans[1::2], strict=True)))
