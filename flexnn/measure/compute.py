"""Times of each node's variants, measured by the engine itself on programs made for it.

A program runs every variant of every different node in two steps: a small window, which also brings the inputs into the
cache as the node before would have done, and a large window. Weights are zeros at addresses that rotate through the
rest of the arena, so they are as cold as those of a run. The two times, medians of several runs, give a fixed part and
one per channel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.median import median
from flexnn.planning.machine import variant_key
from flexnn.planning.program import encode_variant
from flexnn.planning.types import LINE, Costs, NodeCosts, Variant, align_up
from flexnn.quick_dataclass import quick_dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS_MAX = 7
WARM_RUNS = 1
"""Runs that are not counted if there is time for others: the first one touches memory for the first time."""
WEIGHTS_MAX = 64 << 20
"""Most bytes of rotating weights: more than the caches of the intended CPUs."""
WEIGHTS_PART = 4
"""Divisor of the arena that gives the part left for weights; variants that leave less are not measured."""
SMALL_PANELS = 2
FIXED_MAX = 3.0
"""Largest fixed part, as a multiple of the analytic one, that is believed when times are extrapolated."""
REFUSED_MAX = 8
"""Nodes that fail on zeros (an index out of range) before measuring gives up."""

Times = dict[str, tuple[float, float]]
"""(fixed, channels) seconds by ``variant_key``."""


@quick_dataclass(slots=True)
class Case:
    """A variant of a node, and the windows to measure."""

    key: str
    index: int
    """Index of the node."""
    variant: Variant
    costs: NodeCosts
    beside_bytes: int
    """Bytes of the node's operands and workspace."""
    small: int
    large: int
    """Panels of the two windows; 0 and 0 without panels."""


def cases_of(graph: Graph, costs: Costs, known: Times) -> list[Case]:
    """Return each different variant once, without those in ``known``."""
    cases = {}
    for index, (node, of_node) in enumerate(zip(graph.nodes, costs.nodes, strict=True)):
        operands = sum(align_up(size) for size in _roots(graph, index).values())
        for variant in of_node.variants:
            key = variant_key(node.op, of_node.params, variant)
            if key not in known and key not in cases:
                beside = operands + variant.workspace_bytes * costs.threads
                panels = of_node.panels
                cases[key] = Case(key, index, variant, of_node, beside, min(panels, SMALL_PANELS), panels)
    return list(cases.values())


def measure_variants(graph: Graph, costs: Costs, cases: list[Case], *, arena_bytes: int, seconds: float) -> Times:
    """Return times of those ``cases`` that an arena of ``arena_bytes`` can hold, with ``costs.threads`` threads,
    measured in about ``seconds``.
    """
    end = time.perf_counter() + seconds
    refused: set[int] = set()
    while len(refused) <= REFUSED_MAX:
        chosen, weights = _fitting([case for case in cases if case.index not in refused], costs, arena_bytes)
        if not chosen:
            break
        _shorten(chosen, seconds / (RUNS_MAX + WARM_RUNS))
        bench = Bench(graph, costs, weights)
        for case in chosen:
            bench.add(case, case.small)
            bench.add(case, case.large)
        try:
            spans = bench.run(end)
        except _core.EngineError as error:
            if error.status not in ("index", "params"):
                raise
            refused.add(chosen[error.index - 1].index)
            continue
        return {case.key: _fit(case, *spans[2 * i : 2 * i + 2]) for i, case in enumerate(chosen)}
    return {}


def _roots(graph: Graph, index: int) -> dict[int, int]:
    """Return the bytes of each tensor whose storage a node touches."""
    node = graph.nodes[index]
    return {root: max(graph.tensors[root].nbytes, 1) for root in map(graph.root, (*node.inputs, node.outputs[0]))}


def _fitting(cases: list[Case], costs: Costs, arena_bytes: int) -> tuple[list[Case], int]:
    """Return the cases that fit, their large windows shrunk where they must be, and the bytes left for weights."""
    arena_bytes = (arena_bytes - costs.zeros_bytes) // LINE * LINE
    chosen = [case for case in cases if case.beside_bytes <= arena_bytes - arena_bytes // WEIGHTS_PART]
    weights = min(arena_bytes - max((case.beside_bytes for case in chosen), default=0), WEIGHTS_MAX)
    needed = sum((c.small + c.large) * c.costs.panel_bytes for c in chosen)
    weights = min(weights, align_up(needed))
    fitting = []
    for case in chosen:
        panels = weights // case.costs.panel_bytes if case.large else 0
        if panels or not case.large:
            case.large = min(case.large, panels)
            case.small = min(case.small, case.large)
            fitting.append(case)
    return fitting, weights


def _shorten(cases: list[Case], seconds: float) -> None:
    """Shrink the large windows if a slow machine would take more than ``seconds`` for all of them."""
    fraction = seconds / max(sum(case.variant.seconds() for case in cases), 1e-9)
    if fraction < 1:
        for case in cases:
            case.large = max(int(case.large * fraction), case.small)


def _fit(case: Case, small_s: float, large_s: float) -> tuple[float, float]:
    """Return (fixed, channels) seconds from the times of two windows."""
    if case.large <= case.small:
        fixed = min(case.variant.fixed_s, large_s)
        part = case.large / case.costs.panels if case.large else 1.0
        return fixed, (large_s - fixed) / part
    panel_s = max(large_s - small_s, 0.0) / (case.large - case.small)
    panel_s = min(panel_s, large_s / case.large)
    fixed_s = max(large_s - panel_s * case.large, 0.0)
    if case.large < case.costs.panels:  # noise in the small window would make what is beyond the large one free
        expected = case.variant.fixed_s + case.variant.channels_s * case.large / case.costs.panels
        fraction = case.variant.fixed_s / max(expected, 1e-12)
        if fixed_s > FIXED_MAX * fraction * large_s:
            fixed_s = fraction * large_s
            panel_s = (large_s - fixed_s) / case.large
    return fixed_s, panel_s * case.costs.panels


class Bench:
    """A program of single windows. The arena holds zeros, rotating weights, then one node's operands and workspace."""

    def __init__(self, graph: Graph, costs: Costs, weights: int) -> None:
        self._graph, self._costs = graph, costs
        self._weights_at = costs.zeros_bytes
        self._weights_end = self._beside_at = self._weights_at + weights
        self._cursor = self._weights_at
        self._node_of: dict[str, int] = {}
        self._nodes: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []
        self._steps: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []
        self._arena = self._beside_at
        self._fill(weights // 4)

    def _fill(self, count: int) -> None:
        """Add the first step, which writes zeros to the weights: unwritten memory would be one page in the cache."""
        boxes = {f"d{i}": 1 for i in range(6)} | {f"{s}{i}": 1 for s in ("xs", "ys") for i in range(6)}
        values: dict[str, float] = {**boxes, "d5": max(count, 1), "kind": _core.ENUMS["unary_kind"].index("relu")}
        node = _blank_node()
        params = _core.encode_params("unary", values | {"alpha": 0.0, "beta": 0.0})
        encode_variant(node[0], "unary", params, Variant("", 0, 0, 0.0, 0.0))
        for operand in (node["in"][0, 0], node["out"][0]):
            operand["base"], operand["offset"] = 0, self._weights_at
        self._arena = max(self._arena, self._weights_at + 64)
        self._nodes.append(node)
        self._step(0, "unary", params, 0, -1)

    def add(self, case: Case, panels: int, rows: int | None = None) -> int:
        """Add a step over so many panels and ``rows`` (None: all); return its number among those added."""
        if case.key not in self._node_of:
            self._node_of[case.key] = len(self._nodes)
            self._nodes.append(self._encode(case))
        at = -1
        if panels:
            size = panels * case.costs.panel_bytes
            self._cursor = self._cursor if self._cursor + size <= self._weights_end else self._weights_at
            at, self._cursor = self._cursor, align_up(self._cursor + size)
        op = self._graph.nodes[case.index].op
        self._step(self._node_of[case.key], op, case.costs.params, panels, at, rows)
        return len(self._steps) - 2

    def _step(
        self, node: int, op: str, params: NDArray[np.int32], panels: int, at: int, rows: int | None = None
    ) -> None:
        step = np.zeros(1, _core.STEP_DTYPE)
        y0, y1, c0, c1 = _core.op_full_window(op, params)
        window = (y0, y1 if rows is None else y0 + rows, c0, min(c1, panels * _core.NR) if panels else c1)
        step["node"], step["window"], step["panel_offset"] = node, window, at
        self._steps.append(step)

    def _encode(self, case: Case) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        graph, source = self._graph, self._graph.nodes[case.index]
        node = _blank_node()
        encode_variant(node[0], source.op, case.costs.params, case.variant)
        at, places = self._beside_at, {}
        for root, size in _roots(graph, case.index).items():
            places[root], at = at, at + align_up(size)
        for number, tensor in enumerate((*source.inputs, source.outputs[0])):
            operand = node["out"][0] if number == len(source.inputs) else node["in"][0, number]
            known = graph.tensors[tensor]
            operand["base"] = 0
            operand["offset"] = places[graph.root(tensor)] + known.offset * (known.nbytes // max(known.size, 1))
        node["workspace_offset"], node["workspace_bytes"] = at, case.variant.workspace_bytes
        self._arena = max(self._arena, at + case.variant.workspace_bytes * self._costs.threads)
        return node

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena that the steps need."""
        return self._arena

    def run(self, end: float) -> list[float]:
        """Return the median seconds of each step added, over runs until ``end`` (of perf_counter), at least one."""
        times = self.times(end, 1, RUNS_MAX + WARM_RUNS)
        return [median(step) for step in zip(*(times[WARM_RUNS:] or times), strict=True)]

    def times(self, end: float, least: int, most: int) -> list[list[float]]:
        """Return the seconds of each step added, in runs until ``end`` (of perf_counter), ``least`` to ``most``."""
        session = self.open(np.zeros(0, _core.LOAD_DTYPE), np.zeros(0, np.uint32), -1)
        times: list[list[float]] = []
        try:
            while len(times) < most and (len(times) < least or time.perf_counter() < end):
                session.run([])
                assert session.trace
                times.append([(last - first) * 1e-9 for first, last in session.trace[0][1:]])
        finally:
            session.close()
        return times

    def open(
        self, loads: NDArray[np.void], crcs: NDArray[np.uint32], fd: int, direct_fd: int = -1, arena: int = 0
    ) -> _core.EngineSession:
        """Return an engine that runs the steps and keeps their times."""
        return _core.EngineSession(
            nodes=np.concatenate(self._nodes),
            steps=np.concatenate(self._steps),
            pinned=np.zeros(0, _core.LOAD_DTYPE),
            loads=loads,
            crcs=crcs,
            arena_bytes=max(self._arena, arena),
            zeros_offset=0,
            zeros_count=self._costs.zeros_count,
            io_bytes=[],
            input_count=0,
            fd=fd,
            direct_fd=direct_fd,
            threads=self._costs.threads,
            trace=True,
        )


def _blank_node() -> np.ndarray[tuple[int], np.dtype[np.void]]:
    node = np.zeros(1, _core.NODE_DTYPE)
    node["in"]["base"] = -1
    return node
