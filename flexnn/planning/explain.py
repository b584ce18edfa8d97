"""Explanations of a plan: its memory at the fullest moment, what limits its smallest budget, what more memory would
buy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flexnn.errors import printable
from flexnn.graph.ir import Graph
from flexnn.units import format_bytes

from .costs import graph_costs
from .groups import at_once
from .machine import MachineProfile, load_seconds
from .planner import Planner
from .report import Plan
from .setting import Setting
from .types import I64, Costs, Placement, Program

OFFERS = 0.125, 0.5, 1.0
"""Fractions of the budget that are added to it to see what that would buy."""
TENSORS_TOLD = 4
"""Number of activations that are named, the largest ones; the rest are summed."""


@dataclass(slots=True, frozen=True)
class Moment:
    """A node and the contents of the arena while it runs. Sizes in bytes."""

    node: str
    step: int
    """Index of the plan's step; -1 without a plan."""
    activations: dict[str, int]
    """Bytes by tensor: the largest ones, then "…" for all others together."""
    workspace: int
    weights: int
    """Bytes of streamed slices and constants, those of this step and those loaded ahead."""
    pinned: int
    """Bytes of pinned weights, zeros and small constants."""

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        return sum(self.activations.values()) + self.workspace + self.weights + self.pinned

    def text(self) -> str:
        """Return one line without the node."""
        tensors = ", ".join(f"{name!r} {format_bytes(size)}" for name, size in self.activations.items())
        parts = [
            f"activations {format_bytes(sum(self.activations.values()))}" + (f" ({tensors})" if tensors else ""),
            f"workspace {format_bytes(self.workspace)}",
            f"streamed weights {format_bytes(self.weights)}",
        ]
        return ", ".join([*parts, f"pinned {format_bytes(self.pinned)}"] if self.pinned else parts)


@dataclass(slots=True, frozen=True)
class Floor:
    """Reason of a smallest budget, which runs steps one by one, whatever groups were asked for. Sizes in bytes."""

    moment: Moment
    """Node that needs the most, with its smallest workspace and one panel of its weights: no budget holds less."""
    nodes: int
    """Number of nodes that need as much as it does: nodes that walk a graph in bands are one need."""
    minimum: int
    """The smallest budget."""
    without: int
    """Smallest budget if those nodes needed no more than the next one does."""

    def describe(self) -> dict[str, Any]:
        """Return the floor for JSON."""
        return {
            "smallest": asdict(self.moment) | {"nbytes": self.moment.nbytes},
            "smallest_nodes": self.nodes,
            "smallest_without": self.without,
        }

    def text(self) -> str:
        """Return a line for people."""
        alike = self.nodes - 1
        nodes = f"node {self.moment.node!r}" + (f" and {alike} that need as much" if alike > 0 else "")
        return (
            f"smallest {format_bytes(self.minimum)} because of {nodes}: {self.moment.text()};"
            f" without {'them' if alike > 0 else 'it'} {format_bytes(self.without)}"
        )


@dataclass(slots=True, frozen=True)
class Offer:
    """Predicted time of another budget."""

    memory: int
    predicted_ms: float


@dataclass(slots=True, frozen=True)
class Explanation:
    """Explanation of one plan."""

    peak: Moment
    """Moment at which the arena holds the most, if the loader is always as far ahead as it may be."""
    floor: Floor
    """Reason of the smallest budget."""
    compute_ms: float
    """Time of a run without its stalls."""
    read_ms: float
    """Time of a run's loads one after the other, with nothing computed."""
    offers: list[Offer]
    """Larger budgets, the last with everything pinned; none if this plan pins everything."""

    def describe(self) -> dict[str, Any]:
        """Return the explanation for JSON."""
        return {
            "peak": asdict(self.peak) | {"nbytes": self.peak.nbytes},
            **self.floor.describe(),
            "compute_ms": self.compute_ms,
            "read_ms": self.read_ms,
            "offers": [asdict(offer) for offer in self.offers],
        }

    def summary(self, plan: Plan) -> str:
        """Return lines for people, to follow those of the plan."""
        memory, predicted_ms = plan.memory, plan.predicted_ms
        lines = [
            f"peak     step {self.peak.step}, node {self.peak.node!r}: {self.peak.text()}",
            self.floor.text(),
            f"ruled by {'reading' if self.read_ms > self.compute_ms else 'computing'}:"
            f" computing takes {self.compute_ms:.2f} ms, reading {self.read_ms:.2f} ms",
        ]
        if self.offers and memory is not None:
            told = [
                f"+{format_bytes(offer.memory - memory)} {offer.predicted_ms - predicted_ms:+.2f} ms"
                for offer in self.offers
            ]
            lines.append(f"more     {', '.join(told)} (the last: everything pinned)")
        return "\n".join(map(printable, lines))


def explain(planner: Planner, plan: Plan, machine: MachineProfile) -> Explanation:
    """Return the explanation of ``plan``, which ``planner`` made for ``machine``."""

    def offer(memory: int | None) -> Offer:
        other = planner.plan(memory)
        return Offer(memory or other.session_bytes, other.predicted_ms)

    offers = []
    if plan.memory is not None:
        everything = offer(None)
        budgets = [int(plan.memory * (1 + more)) for more in OFFERS]
        offers = [offer(memory) for memory in budgets if memory < everything.memory]
        offers += [everything] if plan.memory < everything.memory else []
    return Explanation(
        peak_of(plan, machine),
        floor_of(planner, planner.minimum),
        plan.predicted_ms - plan.stall_ms,
        float(load_seconds(machine, plan.loads["bytes"]).sum()) * 1e3,
        offers,
    )


def floor_of(planner: Planner, minimum: int, others: int = 0) -> Floor:
    """Return what limits the smallest budget ``minimum`` of what ``planner`` plans; ``others``: bytes that it cannot
    fall below, as what is planned apart needs them.
    """
    tightest = planner.tightest
    moment, count, beyond = smallest_of(tightest.graph, tightest.costs, tightest.placement)
    return Floor(moment, count, minimum, max(minimum - beyond, others))


def peak_of(plan: Plan, machine: MachineProfile) -> Moment:
    """Return the moment of the plan at which the arena holds the most."""
    graph, program = plan.graph, plan.program
    in_file = len(program.tables) > 0
    costs = graph_costs(graph, Setting(machine, program.threads), in_file=in_file)
    if len(program.groups):
        group = np.repeat(np.arange(len(program.groups)), program.groups)
        nodes = np.unique(np.stack((group, program.steps["node"])), axis=1)[0]
        costs = at_once(costs, np.bincount(nodes, minlength=len(program.groups)).tolist())
    node = program.steps["node"]
    activations = live_bytes(costs)[node]
    workspace = program.nodes["workspace_bytes"].astype(np.int64)[node] * costs.threads
    weights = _streamed(program)
    step = int(np.argmax(activations + workspace + weights)) if len(node) else 0
    if not len(node):
        return Moment("", 0, {}, 0, 0, int(program.pinned["bytes"].sum()))
    index = int(node[step])
    return Moment(
        graph.nodes[index].name,
        step,
        _tensors(graph, costs, index),
        int(workspace[step]),
        int(weights[step]),
        int(program.pinned["bytes"].sum()) + costs.zeros_bytes,
    )


def smallest_of(graph: Graph, costs: Costs, placement: Placement) -> tuple[Moment, int, int]:
    """Return the node that limits the smallest arena, the number of nodes that need as much, and the bytes by which
    they need more than any other. Of nodes that need as much, one that itself holds the most is returned.
    """
    tight = np.asarray(placement.tight_bytes, np.int64)
    if not len(tight):
        return Moment("", -1, {}, 0, 0, 0), 0, 0
    workspaces = [node.variants[-1].workspace_bytes * costs.threads for node in costs.nodes]
    panels = [costs.room_bytes(node.panel_bytes) if node.panels else 0 for node in costs.nodes]
    streamed = [room + sum(own for _, _, own in node.constants) for room, node in zip(panels, costs.nodes, strict=True)]
    neediest = tight == tight.max()
    held = live_bytes(costs) + np.asarray(workspaces, np.int64) + np.asarray(streamed, np.int64)
    index = int(np.argmax(np.where(neediest, held, -1)))
    moment = Moment(graph.nodes[index].name, -1, _tensors(graph, costs, index), workspaces[index], streamed[index], 0)
    second = int(tight[~neediest].max(initial=0))
    return moment, int(neediest.sum()), int(tight.max()) - second


def live_bytes(costs: Costs) -> I64:
    """Return the bytes of activations alive at each node."""
    change = np.zeros(len(costs.nodes) + 1, np.int64)
    sizes = np.asarray(costs.root_bytes, np.int64)
    np.add.at(change, np.asarray(costs.first_node, np.int64), sizes)
    np.subtract.at(change, np.asarray(costs.last_node, np.int64) + 1, sizes)
    return np.cumsum(change)[:-1]


def _tensors(graph: Graph, costs: Costs, node: int) -> dict[str, int]:
    """Return bytes of the activations alive at a node, the largest by name."""
    alive: Iterable[tuple[int, str]] = (
        (size, graph.tensors[root].name)
        for root, size, first, last in zip(
            costs.roots, costs.root_bytes, costs.first_node, costs.last_node, strict=True
        )
        if first <= node <= last
    )
    ordered = sorted(alive, key=lambda pair: (-pair[0], pair[1]))
    named = {name: size for size, name in ordered[:TENSORS_TOLD]}
    rest = sum(size for size, _ in ordered[TENSORS_TOLD:])
    return named | ({"…": rest} if rest else {})


def _streamed(program: Program) -> I64:
    """Return the bytes of streamed weights in memory at each step if each is loaded as early as its threshold permits:
    from then on, in this run or (a negative threshold) in the run before, up to the step that uses it.
    """
    steps, loads = len(program.steps), program.loads
    change = np.zeros(steps + 1, np.int64)
    use = np.searchsorted(program.steps["wait_loads"].astype(np.int64), np.arange(len(loads)), side="right")
    begin = loads["wait_steps"].astype(np.int64)
    np.add.at(change, np.maximum(begin, 0), loads["bytes"])
    np.subtract.at(change, use + 1, loads["bytes"])
    early = begin < 0
    np.add.at(change, begin[early] + steps, loads["bytes"][early])
    change[steps] = 0  # what was begun in the run before's tail stays to its end
    return np.cumsum(change)[:steps]
