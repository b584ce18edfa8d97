"""Predicted times of a program's steps and loads. The model is that of the planner (planner/timeline.c): steps one
after the other, loads one after the other, two counters, both slower while both go on, and bytes that come a latency
after their load could start.
"""

from __future__ import annotations

import numpy as np

from flexnn.planning import MachineProfile, Plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.machine import load_seconds
from flexnn.planning.program import decode_variant
from flexnn.planning.setting import Setting
from flexnn.planning.types import F64, Costs
from flexnn.quick_dataclass import quick_dataclass

RUNS = 3
"""Runs that are simulated one after the other; the last is the steady state."""


@quick_dataclass(slots=True)
class Timeline:
    """Times of a run in seconds since its start. [n, 2] begin and end."""

    steps: F64
    loads: F64
    """Loads that began while the run before computed have negative times."""
    seconds: float
    """Time of the run."""


def timeline(plan: Plan, machine: MachineProfile, costs: Costs) -> Timeline:
    """Return the predicted times of a plan that was made for ``machine``; ``costs`` are those of its graph."""
    alone = step_seconds(plan, costs)
    loads = load_seconds(machine, plan.loads["bytes"])
    found = _simulated(plan, machine, alone.tolist(), loads.tolist())
    scale = plan.predicted_ms * 1e-3 / found.seconds if found.seconds > 0 else 1.0
    return Timeline(found.steps * scale, found.loads * scale, found.seconds * scale)


def costs_of(plan: Plan, machine: MachineProfile) -> Costs:
    """Return sizes, lifetimes and times of the plan's graph."""
    in_file = len(plan.program.tables) > 0
    return graph_costs(plan.graph, Setting(machine, plan.program.threads), in_file=in_file)


def step_seconds(plan: Plan, costs: Costs) -> F64:
    """Return the time of each step alone: of its node's variant, as much as its window has of the node's channels."""
    program = plan.program
    fixed, channels = np.zeros(len(program.nodes)), np.zeros(len(program.nodes))
    for index, (row, known) in enumerate(zip(program.nodes, costs.nodes, strict=True)):
        kernel, block = decode_variant(row)[2][:2]
        variant = next((v for v in known.variants if (v.kernel, v.tile_block) == (kernel, block)), known.variants[0])
        fixed[index], channels[index] = variant.fixed_s, variant.channels_s
    node = program.steps["node"].astype(np.int64)
    width = (program.steps["window"]["c1"] - program.steps["window"]["c0"]).astype(np.float64)
    whole = np.zeros(len(program.nodes))
    np.add.at(whole, node, width)
    return np.asarray(fixed[node] + channels[node] * width / np.maximum(whole[node], 1), np.float64)


def _simulated(plan: Plan, machine: MachineProfile, alone: list[float], reads: list[float]) -> Timeline:
    loader, total = _Loader(plan, reads, machine.latency_s), len(alone)
    steps, wait_loads = np.zeros((total, 2)), plan.steps["wait_loads"].tolist()
    progress = machine.load_speed / machine.compute_speed
    now = start = 0.0
    for run in range(RUNS):
        start = now
        for j in range(total):
            loader.ends.append(now)
            while loader.done < run * len(reads) + wait_loads[j]:
                now = loader.finish(now + loader.waits(now), loader.left)
            steps[j, 0], work = now, alone[j]
            while loader.may_begin(run * total + j) and (waits := loader.waits(now)) < work:
                now, work = now + waits, work - waits
                if loader.left >= work * progress:
                    loader.goes_on(now, work * progress)
                    now, work = now + work / machine.compute_speed, 0.0
                    break
                took = loader.left / machine.load_speed
                work -= took * machine.compute_speed
                now = loader.finish(now, took)
            now += work
            steps[j, 1] = now
    return Timeline(steps - start, loader.spans - start, now - start)


class _Loader:
    """The loader: its next load, and how far it is."""

    def __init__(self, plan: Plan, reads: list[float], latency: float) -> None:
        self._reads, self._steps, self._latency = reads, len(plan.steps), latency
        self.ends: list[float] = []
        """When the steps before each step have ended, in all runs."""
        self._wait_steps = plan.loads["wait_steps"].tolist()
        self.done = 0
        """Loads that are done, in all runs."""
        self.left = reads[0] if reads else 0.0
        """Seconds that are left of the next one, when nothing else goes on."""
        self._begun: float | None = None
        self.spans = np.zeros((len(reads), 2))

    def may_begin(self, step: int) -> bool:
        """Return whether the next load may begin before a step, counted over all runs; those of a run after the last
        one, too.
        """
        if not self._reads:
            return False
        return self.done < (RUNS + 1) * len(self._reads) and self._after() <= step

    def _after(self) -> int:
        run, load = divmod(self.done, len(self._reads))
        return run * self._steps + int(self._wait_steps[load])

    def waits(self, now: float) -> float:
        """Return the seconds from ``now`` until the bytes of the next load come, which may begin."""
        after = self._after()
        if self._begun is not None or after < 0:
            return 0.0
        return max(self.ends[after] + self._latency - now, 0.0)

    def goes_on(self, now: float, seconds: float) -> None:
        """Let the load go on from ``now``, for seconds of it alone."""
        self._begun = now if self._begun is None else self._begun
        self.left -= seconds

    def finish(self, now: float, seconds: float) -> float:
        """End the load that goes on for so many seconds from ``now``; return its end."""
        run, load = divmod(self.done, len(self._reads))
        end = now + seconds
        if run < RUNS:
            self.spans[load] = now if self._begun is None else self._begun, end
        self.done += 1
        self._begun, self.left = None, self._reads[self.done % len(self._reads)]
        return end
