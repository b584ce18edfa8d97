"""The plan of a model with open shapes or control flow: the segments of each region are planned, none runs.

It covers both branches of every If, and one iteration of every Loop. It compares the memory of four ways to share the
arena among segments, after Wang et al. (reuse that recurses into sub-graphs, branches in one region).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn import _core
from flexnn.errors import printable
from flexnn.graph.ir import Array, Graph
from flexnn.planning import Plan, Program
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions import Region, Segment
from flexnn.regions.left import Left, told
from flexnn.regions.sampler import Sampler
from flexnn.units import format_bytes

from .bound_segment import BoundSegment
from .segments import BoundSegments

if TYPE_CHECKING:
    from flexnn.planning.explain import Floor

PARTS_TOLD = 12
"""Most parts in a summary; the rest are summed."""
WAYS = {"then_branch": "if true", "else_branch": "if false", "body": "each turn"}
"""Words for the bodies of a node, by attribute."""


@quick_dataclass(frozen=True, slots=True)
class Part:
    """A segment of a region."""

    path: str
    """Nodes and attributes on the way to the region; "" for the whole model."""
    graph: Graph
    plan: Plan

    @property
    def where(self) -> str:
        """Its place in the model, in words."""
        ways = [step.rpartition(".") for step in self.path.split(" > ")] if self.path else []
        return ", ".join([f"{node} {WAYS.get(body, body)}" for node, _, body in ways]) or "always"


class _Planned:
    """Segment runner that plans segments in place of running them."""

    def __init__(self, segments: BoundSegments) -> None:
        self.segments = segments
        self.parts: list[Part] = []
        self.met: list[BoundSegment] = []

    def meet(self, segment: Segment, live_bytes: int) -> None:
        """Plan a segment."""
        bound = self.segments.of(segment)
        around = {
            "values": live_bytes + self.segments.io_bytes(bound),
            "model": self.segments.model_bytes,
            "programs": 4 * self.segments.setting.io_align,
        }
        memory = self.segments.memory
        self.segments.planned(bound, None if memory is None else memory - sum(around.values()), around)
        plan = self.segments.settled(bound, around)
        if bound not in self.met:
            self.met.append(bound)
            self.parts.append(Part(segment.region.path, bound.graph, plan))


@quick_dataclass(slots=True, kw_only=True)
class RegionPlan(Plan):
    """The plans of all segments of a model. Sums and times are of all segments; ``graph`` and ``program``, and with
    them ``steps``, ``loads`` and ``addresses``, are those of the segment with the largest arena.
    """

    region: Region
    """The whole model."""
    parts: list[Part]
    """Segments with their plans, in the order in which they were met."""
    left: list[Left]
    """Layers that are in none of them, so that numpy computes them."""
    floor: Floor | None = None
    """Reason of the smallest budget, if it was asked for."""

    @property
    def is_streaming(self) -> bool:
        """Whether runs read weights."""
        return any(part.plan.is_streaming for part in self.parts)

    @property
    def barriers(self) -> int:
        """Number of moments at which all threads wait for the last."""
        return sum(part.plan.barriers for part in self.parts)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the one buffer that the engine maps."""
        return self.memory_by_strategy()["joint"]

    @property
    def session_bytes(self) -> int:
        """Bytes that the session takes to open and to run its most demanding segment."""
        return max((part.plan.session_bytes for part in self.parts), default=0)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of weights that stay in memory."""
        return sum(part.plan.pinned_bytes for part in self.parts)

    @property
    def bytes_read_per_run(self) -> int:
        """Bytes that the loads of a run read, were it to run every segment once."""
        return sum(part.plan.bytes_read_per_run for part in self.parts)

    @property
    def kernels(self) -> dict[str, int]:
        """Number of nodes by convolution kernel, or by operator."""
        counts: dict[str, int] = {}
        for part in self.parts:
            for name, count in part.plan.kernels.items():
                counts[name] = counts.get(name, 0) + count
        return dict(sorted(counts.items()))

    def check(self) -> None:
        """Check the plan of every segment. Raises PlanError."""
        for part in self.parts:
            part.plan.check()

    def longest_way(self) -> list[Part]:
        """Return the parts of the way that is predicted to take the longest, in the order in which they were met."""
        ways = _way(self.region, self.parts)
        return [part for part in self.parts if part.path in ways]

    def memory_by_strategy(self) -> dict[str, int]:
        """Return the arena bytes of all segments together, by strategy.

        ``naive``: every segment has an arena of its own. In the other strategies the pinned parts lie side by side, and
        working parts are shared: ``apart``, by the segments of one region; ``branches``, by the bodies of an If, too;
        ``joint``, by all segments, which is how the engine runs them (docs/decisions/0017).
        """
        plans = [part.plan for part in self.parts]
        kept = sum(plan.arena_bytes - plan.working_bytes for plan in plans)
        return {
            "naive": sum(plan.arena_bytes for plan in plans),
            "apart": kept + self._working(self.region, sum),
            "branches": kept + self._working(self.region, max),
            "joint": kept + max((plan.working_bytes for plan in plans), default=0),
        }

    def _working(self, region: Region, among: Callable[[list[int]], int]) -> int:
        """Return the bytes of the working parts of a region and of those inside it; ``among`` combines those of the
        bodies of one node.
        """
        own = [part.plan.working_bytes for part in self.parts if part.path == region.path]
        inside = [
            among([self._working(body, among) for body in bodies.values()]) for bodies in region.children.values()
        ]
        return max(own, default=0) + sum(inside)

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON values, as ``flexnn plan --json`` prints it. Times count the longer branch of every
        If, and one iteration of every Loop.
        """
        plans = [part.plan for part in self.parts]
        return {
            "memory_budget": self.memory,
            "minimum_memory": self.minimum_memory,
            "session_bytes": self.session_bytes,
            "arena_bytes": self.arena_bytes,
            "predicted_ms": self.predicted_ms,
            "stall_ms": self.stall_ms,
            "bound_ms": self.bound_ms,
            "plan_ms": self.plan_ms,
            "steps": sum(len(plan.steps) for plan in plans),
            "loads": sum(len(plan.loads) for plan in plans),
            "pinned_bytes": self.pinned_bytes,
            "bytes_read_per_run": self.bytes_read_per_run,
            "kernels": self.kernels,
            "memory_by_strategy": self.memory_by_strategy(),
            "left_to_numpy": [{"layer": layer.name, "why": layer.why} for layer in self.left],
            "regions": [
                {
                    "region": part.path,
                    "nodes": len(part.graph.nodes),
                    "first": part.graph.nodes[0].name,
                    "arena_bytes": part.plan.arena_bytes,
                    "minimum_memory": part.plan.minimum_memory,
                    "predicted_ms": part.plan.predicted_ms,
                    "pinned_bytes": part.plan.pinned_bytes,
                    "bytes_read_per_run": part.plan.bytes_read_per_run,
                }
                for part in self.parts
            ],
        } | (self.floor.describe() if self.floor else {})

    def summary(self) -> str:
        """Return the plan as text: memory, time, and the parts that take the most of it."""
        budget = "no limit" if self.memory is None else format_bytes(self.memory)
        lines = [
            f"memory   {format_bytes(self.session_bytes)} (budget {budget},"
            f" smallest {format_bytes(self.minimum_memory)})",
            f"weights  {format_bytes(self.pinned_bytes)} stay in memory, at most"
            f" {format_bytes(self.bytes_read_per_run)} read per run",
            f"time     {self.predicted_ms:.2f} ms predicted for the longest way through the model, with one turn of"
            f" each loop; {self.stall_ms:.2f} of them waiting for loads",
            f"planned  in {self.plan_ms:.0f} ms",
            *([self.floor.text()] if self.floor else []),
            *([f"slow     {told(self.left)}"] if self.left else []),
            f"parts    {len(self.parts)}, one after the other in the same memory, as the model branches, loops, or"
            " decides shapes while it runs:",
        ]
        ordered = sorted(self.parts, key=lambda part: -part.plan.predicted_ms)
        lines += [
            f"{part.plan.predicted_ms:8.2f} ms {format_bytes(part.plan.arena_bytes):>10}  {part.where}:"
            f" {len(part.graph.nodes)} nodes from {part.graph.nodes[0].name!r}"
            for part in ordered[:PARTS_TOLD]
        ]
        if rest := ordered[PARTS_TOLD:]:
            most = max(part.plan.arena_bytes for part in rest)
            spent = sum(part.plan.predicted_ms for part in rest)
            lines.append(f"{spent:8.2f} ms {format_bytes(most):>10}  {len(rest)} smaller parts together")
        return "\n".join(map(printable, lines))


class _PlanningSampler(Sampler):
    """Sampler that leaves to numpy what the artifact has no weights for."""

    def __init__(self, segments: BoundSegments, planned: _Planned) -> None:
        super().__init__(segments.stored.model, planned)
        self._segments = segments

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of the segment's nodes whose weights the artifact does not hold."""
        return self._segments.lacking(segment)


def plan_regions(segments: BoundSegments, feeds: Mapping[str, Array], *, explained: bool = False) -> RegionPlan:
    """Plan every segment that a run at the shapes of ``feeds`` could meet; ``explained``: and find what limits the
    smallest budget. Raises BudgetError, GraphError.
    """
    planned = _Planned(segments)
    sampler = _PlanningSampler(segments, planned)
    with np.errstate(all="ignore"):
        sampler.run(feeds)
    region, parts = sampler.region, planned.parts
    plans = [part.plan for part in parts]
    largest = max(plans, key=lambda plan: plan.arena_bytes, default=None)
    return RegionPlan(
        graph=largest.graph if largest else Graph(),
        program=largest.program if largest else no_program(segments.setting.threads),
        memory=segments.memory,
        minimum_memory=max((plan.minimum_memory for plan in plans), default=0),
        overhead=largest.overhead if largest else {},
        predicted_ms=_longest(region, parts, lambda plan: plan.predicted_ms),
        stall_ms=_longest(region, parts, lambda plan: plan.stall_ms),
        bound_ms=_longest(region, parts, lambda plan: plan.bound_ms),
        plan_ms=sum(plan.plan_ms for plan in plans),
        activation_bytes=max((plan.activation_bytes for plan in plans), default=0),
        working_bytes=max((plan.working_bytes for plan in plans), default=0),
        region=region,
        parts=parts,
        left=sampler.walked.left(region),
        floor=_floor(planned) if explained and parts else None,
    )


def _floor(planned: _Planned) -> Floor:
    """Return what limits the smallest budget of the segment that needs the most."""
    from flexnn.planning.explain import floor_of

    needs = [part.plan.minimum_memory for part in planned.parts]
    most = needs.index(max(needs))
    return floor_of(planned.met[most].least, needs[most], max(needs[:most] + needs[most + 1 :], default=0))


def _longest(region: Region, parts: Sequence[Part], cost: Callable[[Plan], float]) -> float:
    """Return the costs of a region's segments and, for each node with bodies, of its most costly body, summed."""
    total = sum(cost(part.plan) for part in parts if part.path == region.path)
    for bodies in region.children.values():
        total += max(_longest(body, parts, cost) for body in bodies.values())
    return total


def _way(region: Region, parts: Sequence[Part]) -> set[str]:
    """Return the paths of a region and, for each node with bodies, of its most costly body."""
    ways = {region.path}
    for bodies in region.children.values():
        ways |= _way(
            max(bodies.values(), key=lambda body: _longest(body, parts, lambda plan: plan.predicted_ms)), parts
        )
    return ways


def no_program(threads: int) -> Program:
    """The program of a model that numpy computes alone."""
    steps, loads = np.zeros(0, _core.STEP_DTYPE), np.zeros(0, _core.LOAD_DTYPE)
    nodes, io_bytes = np.zeros(0, _core.NODE_DTYPE), np.zeros(0, np.int64)
    return Program(nodes, steps, loads, loads, 0, 0, 0, io_bytes, threads)


def empty_plan(threads: int, memory: int | None, overhead: dict[str, int]) -> Plan:
    """Return the plan of a run that numpy computed alone; ``overhead``: bytes of the session, by what takes them."""
    return Plan(
        graph=Graph(),
        program=no_program(threads),
        memory=memory,
        minimum_memory=0,
        overhead=overhead,
        predicted_ms=0.0,
        stall_ms=0.0,
        bound_ms=0.0,
        plan_ms=0.0,
        activation_bytes=0,
        working_bytes=0,
    )
