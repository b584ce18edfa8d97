"""Plans in groups of independent nodes (groups.py): their predicted times, and the fastest of them.

A group takes as long as its units need on the threads (an equal part of their work for each thread, or the longest unit
if that is more) plus one barrier. A node's measured time includes a barrier of its own, and threads that wait while its
last units are computed, where units do not divide by threads. A group fills these gaps, so the nodes with the longest
units come first in their group and the shortest last.

All weights are pinned: a group needs the weights of all its nodes at once, and a load for one of its nodes could only
begin when the whole group before it is done.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.quick_dataclass import quick_dataclass

from .costs import graph_costs, params_with
from .errors import BudgetError
from .groups import at_once, group_sizes, in_order, layers
from .report import Plan
from .setting import Setting
from .types import F64, Variant
from .variant_planner import VariantPlanner

WORTH = 0.99
"""Largest predicted time of groups, as a fraction of the time without them, at which they are worth their memory."""


@quick_dataclass(slots=True, frozen=True)
class _Times:
    """Times of each node with all threads, in seconds."""

    seconds: F64
    """Time of the node alone."""
    barrier: F64
    """Part of that time for handing over to the threads and waiting for the last one."""
    unit: F64
    """Time of one unit on one thread."""
    even: F64
    """Time that all units add to a group whose threads have equal parts of them."""


class Grouping:
    """Plans of a graph in groups, everything pinned, on one machine."""

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
        """Powers of two below the width of the widest layer: from there on nodes run one by one."""
        widest = max(self._layers, default=0)
        return [1 << i for i in range(max(widest - 1, 0).bit_length())]

    @property
    def bound_ms(self) -> float:
        """Time that no plan which pins everything beats, in groups or without: equal work per thread, no barriers."""
        return float(self._fastest.even.sum()) * 1e3

    def predicted_ms(self, k: int) -> float:
        """Return the predicted time of a run in ``k`` groups per layer."""
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
        """Return the plan of a run in ``k`` groups per layer, each node by its fastest kernel."""
        return self._planned(k, self._fastest)

    def smallest(self, k: int) -> Plan:
        """Return the plan of a run in ``k`` groups per layer, each node by its kernel with the smallest workspace."""
        return self._planned(k, self._times([node.variants[-1] for node in self._costs.nodes]), smallest=True)

    def within(self, k: int, memory: int | None) -> Plan:
        """Return the plan of a run in ``k`` groups per layer for ``memory`` bytes (None: no limit). BudgetError."""
        smallest = self.smallest(k)
        minimum = smallest.session_bytes
        if memory is not None and memory < minimum:
            raise BudgetError(minimum, memory, " in groups, which need all weights pinned,")
        fastest = self.plan(k)
        plan = fastest if memory is None or fastest.session_bytes <= memory else smallest
        spent = smallest.plan_ms + fastest.plan_ms
        return plan.but(memory=memory, minimum_memory=min(minimum, plan.session_bytes), plan_ms=spent)

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
        return plan.but(
            program=replace(plan.program, groups=steps),
            predicted_ms=self._predicted_ms(k, times),
            bound_ms=self.bound_ms,
            plan_ms=spent / 1e6,
            groups=k,
        )

    def better(self, plan: Plan) -> Plan:
        """Return the plan in groups that is predicted to be the fastest, if it is worth it and fits the budget of
        ``plan``, else ``plan``, which pins everything and runs one by one; with the predictions of all.
        """
        predicted = {k: self.predicted_ms(k) for k in self.ks}
        best = plan
        for k in sorted(predicted, key=lambda k: predicted[k]):
            if predicted[k] > WORTH * plan.predicted_ms:
                break
            grouped = self.plan(k)
            if plan.memory is None or grouped.session_bytes <= plan.memory:
                spent = plan.plan_ms + grouped.plan_ms
                best = grouped.but(memory=plan.memory, minimum_memory=plan.minimum_memory, plan_ms=spent)
                break
        forecasts: list[tuple[int | None, float]] = [(None, plan.predicted_ms), *predicted.items()]
        return best.but(forecasts_ms=dict(forecasts))

    def _times(self, variants: list[Variant]) -> _Times:
        """Return times of the nodes, each by its variant."""
        threads = self._costs.threads
        seconds = np.array([variant.seconds() for variant in variants])
        # One thread hands nothing over: its steps cost what they cost in a group.
        barrier = np.minimum(seconds, self._setting.machine.step_s if threads > 1 else 0.0)
        alike: dict[tuple[int, str, int], int] = {}
        units = np.empty(len(variants))
        for i, (item, node, variant) in enumerate(zip(self._graph.nodes, self._costs.nodes, variants, strict=True)):
            key = id(node.params), variant.kernel, variant.tile_block
            if key not in alike:
                params = params_with(node.params, variant)
                alike[key] = max(_core.op_units(item.op, variant.kernel, params, None, threads), 1)
            units[i] = alike[key]
        unit = (seconds - barrier) / -(-units // threads)
        return _Times(seconds, barrier, unit, unit * units / threads)
