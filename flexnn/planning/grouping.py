"""Plans in groups of independent nodes (groups.py): what they would take, by the costs, and which are the fastest.

A group takes as long as its units need on the threads: all of their work shared evenly, or its longest unit where that
is more, and one barrier. A node's time, as it was measured with these threads, has a barrier of its own, and threads
that wait while the last of its units are computed: where its units do not divide by the threads, a group fills these
gaps. So nodes with the longest units go first in their group, and short ones are left for its end.

All weights are pinned: a group needs those of all its nodes at once, and were they streamed, a load for one of its
nodes could only begin once the whole group before it is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph

from .costs import graph_costs, with_tile_block
from .groups import at_once, group_sizes, in_order, layers
from .report import Plan
from .setting import Setting
from .types import F64, Variant
from .variant_planner import VariantPlanner

WORTH = 0.99
"""Groups are taken when they are predicted to need at most this share of the time without: what is less is noise, and
would cost memory.
"""


@dataclass(slots=True, frozen=True)
class _Times:
    """Seconds of each node with all threads."""

    seconds: F64
    """Alone."""
    barrier: F64
    """Of these, what handing over and waiting for the last thread takes."""
    unit: F64
    """One unit, on one thread."""
    even: F64
    """What all units add to a group whose threads have equal parts of them."""


class Grouping:
    """A graph's plans in groups, everything pinned, on one machine."""

    def __init__(self, graph: Graph, setting: Setting) -> None:
        started = time.perf_counter_ns()
        self._setting = setting
        layered = layers(graph)
        self._layers = [len(layer) for layer in layered]
        self._graph = in_order(graph, [node for layer in layered for node in layer])
        self._costs = graph_costs(self._graph, setting)
        self._fastest = self._times([node.variants[0] for node in self._costs.nodes])
        self._prepared_ns = time.perf_counter_ns() - started

    @property
    def ks(self) -> list[int]:
        """The powers of two below the widest layer: from there on nodes run one by one."""
        widest = max(self._layers, default=0)
        return [1 << i for i in range(max(widest - 1, 0).bit_length())]

    @property
    def bound_ms(self) -> float:
        """No plan that pins everything is faster, in groups or without: all work shared evenly, and no barrier."""
        return float(self._fastest.even.sum()) * 1e3

    def predicted_ms(self, k: int) -> float:
        """Of a run in ``k`` groups."""
        return self._predicted_ms(k, self._fastest)

    def _predicted_ms(self, k: int, times: _Times) -> float:
        sizes = np.array(group_sizes(self._layers, k))
        first = np.cumsum(sizes) - sizes
        if not len(sizes):
            return 0.0

        def longest(of: F64) -> F64:
            return np.asarray(np.maximum.reduceat(of, first), np.float64)

        together = np.maximum(np.add.reduceat(times.even, first), longest(times.unit)) + longest(times.barrier)
        return float(np.where(sizes > 1, together, times.seconds[first]).sum()) * 1e3

    def plan(self, k: int) -> Plan:
        """Of a run in ``k`` groups, each node by its fastest kernel."""
        return self._planned(k, self._fastest)

    def smallest(self, k: int) -> Plan:
        """Of a run in ``k`` groups, each node by the kernel with the smallest workspace, whatever rates it has."""
        return self._planned(k, self._times([node.variants[-1] for node in self._costs.nodes]), smallest=True)

    def _planned(self, k: int, times: _Times, *, smallest: bool = False) -> Plan:
        started = time.perf_counter_ns()
        sizes = group_sizes(self._layers, k)
        group = np.repeat(np.arange(len(sizes)), sizes)
        order = list(range(len(group))) if smallest else np.lexsort((-times.unit, group)).tolist()
        costs = replace(self._costs, nodes=[self._costs.nodes[i] for i in order])
        costs = at_once(costs, sizes, smallest=smallest)
        planner = VariantPlanner(in_order(self._graph, order), self._setting, costs=costs)
        plan = planner.plan(None)
        steps = np.bincount(group[plan.program.steps["node"]], minlength=len(sizes)).astype(np.uint32)
        spent = self._prepared_ns + time.perf_counter_ns() - started
        self._prepared_ns = 0
        return replace(
            plan,
            program=replace(plan.program, groups=steps),
            predicted_ms=self._predicted_ms(k, times),
            bound_ms=self.bound_ms,
            plan_ms=spent / 1e6,
            groups=k,
        )

    def better(self, plan: Plan) -> Plan:
        """``plan``, which pins everything one by one, or the plan in groups that is predicted to be the fastest where
        that is worth it and within the same budget. It says what all were predicted to take.
        """
        predicted = {k: self.predicted_ms(k) for k in self.ks}
        best = plan
        for k in sorted(predicted, key=lambda k: predicted[k]):
            if predicted[k] > WORTH * plan.predicted_ms:
                break
            grouped = self.plan(k)
            if plan.memory is None or grouped.session_bytes <= plan.memory:
                spent = plan.plan_ms + grouped.plan_ms
                best = replace(grouped, memory=plan.memory, minimum_memory=plan.minimum_memory, plan_ms=spent)
                break
        forecasts: list[tuple[int | None, float]] = [(None, plan.predicted_ms), *predicted.items()]
        return replace(best, forecasts_ms=dict(forecasts))

    def _times(self, variants: list[Variant]) -> _Times:
        """Of the nodes, each computed its variant."""
        threads = self._costs.threads
        seconds = np.array([variant.seconds() for variant in variants])
        # One thread hands nothing over: its steps cost what they cost in a group.
        barrier = np.minimum(seconds, self._setting.machine.step_s if threads > 1 else 0.0)
        alike: dict[tuple[int, str, int], int] = {}
        units = np.empty(len(variants))
        for i, (item, node, variant) in enumerate(zip(self._graph.nodes, self._costs.nodes, variants, strict=True)):
            key = id(node.params), variant.kernel, variant.tile_block
            if key not in alike:
                params = with_tile_block(node.params, variant.tile_block) if variant.kernel else node.params
                alike[key] = max(_core.op_units(item.op, variant.kernel, params, None, threads, self._setting.isa), 1)
            units[i] = alike[key]
        unit = (seconds - barrier) / -(-units // threads)
        return _Times(seconds, barrier, unit, unit * units / threads)
