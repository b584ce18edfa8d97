"""What a model with open shapes or control flow would do and cost: each region's programs planned, none run.

Both branches of every If are looked at, and one iteration of every Loop. Memory is what the programs' arenas take by
four ways to share, after Wang et al. (reuse recursing into sub-graphs, branches in one region).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flexnn.graph.ir import Graph
from flexnn.planning import Plan
from flexnn.regions import Region, Segment
from flexnn.regions.sampling import Sampler, made_up
from flexnn.units import format_bytes

from .segments import Program, Programs

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A program of a region."""

    path: str
    """Of the region: nodes and attributes on the way to it; "" for the whole model."""
    graph: Graph
    plan: Plan


class _Plans:
    """Plans segments in place of running them; their outputs are made up."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.parts: list[Part] = []
        self.met: list[Program] = []
        self.random = np.random.default_rng(0)

    def run(self, segment: Segment, inputs: Sequence[Array], held: int) -> list[Array]:
        """The made-up outputs of a segment."""
        program = self.programs.of(segment)
        plan = self.programs.planned(program, held - sum(array.nbytes for array in inputs), [], 0)
        if program not in self.met:
            self.met.append(program)
            self.parts.append(Part(segment.region.path, program.graph, plan))
        tensors = [program.graph.tensors[i] for i in program.graph.outputs]
        return [made_up(self.random, tensor.shape, tensor.dtype) for tensor in tensors]

    def lacking(self, segment: Segment) -> set[str]:
        """As of a run."""
        return self.programs.lacking(segment)

    def forget(self, segment: Segment) -> None:
        """Keeps nothing, so drops nothing."""


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """The programs of all regions, in the order in which they were met."""

    region: Region
    parts: list[Part]
    memory: int | None

    def memory_by_strategy(self) -> dict[str, int]:
        """Bytes that all programs take together. ``naive``: every one has an arena of its own. In the others what each
        keeps (pinned weights, small constants) lies side by side, and memory to work in is shared: ``apart``, by the
        programs of a region, which follow each other, but not by regions; ``branches``, by the bodies of an If, too;
        ``joint``, by all of them, as the engine runs them (docs/decisions/0017).
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
        """Bytes that a region and those inside it work in; ``among``: what the bodies of one node take together."""
        own = [part.plan.working_bytes for part in self.parts if part.path == region.path]
        inside = [
            among([self._working(body, among) for body in bodies.values()]) for bodies in region.children.values()
        ]
        return max(own, default=0) + sum(inside)

    def describe(self) -> dict[str, Any]:
        """What ``flexnn plan --json`` prints. Times are of the longer branch of every If, and of one iteration."""
        plans = [part.plan for part in self.parts]
        kernels: dict[str, int] = {}
        for plan in plans:
            for name, count in plan.kernels.items():
                kernels[name] = kernels.get(name, 0) + count
        memory = self.memory_by_strategy()
        return {
            "memory_budget": self.memory,
            "minimum_memory": max((plan.minimum_memory for plan in plans), default=0),
            "session_bytes": max((plan.session_bytes for plan in plans), default=0),
            "arena_bytes": memory["joint"],
            "predicted_ms": self._fold(self.region, lambda part: part.plan.predicted_ms),
            "stall_ms": self._fold(self.region, lambda part: part.plan.stall_ms),
            "bound_ms": self._fold(self.region, lambda part: part.plan.bound_ms),
            "plan_ms": sum(plan.plan_ms for plan in plans),
            "steps": sum(len(plan.steps) for plan in plans),
            "loads": sum(len(plan.loads) for plan in plans),
            "pinned_bytes": sum(plan.pinned_bytes for plan in plans),
            "bytes_read_per_run": sum(plan.bytes_read_per_run for plan in plans),
            "kernels": dict(sorted(kernels.items())),
            "memory_by_strategy": memory,
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
        }

    def summary(self) -> str:
        """For people: the regions, nested as the model nests them."""
        about = self.describe()
        lines = [
            f"smallest {format_bytes(about['minimum_memory'])}; the longest way takes {about['predicted_ms']:.2f} ms"
        ]
        shares = ", ".join(f"{name} {format_bytes(size)}" for name, size in about["memory_by_strategy"].items())
        lines.append(f"arenas   {shares}")
        for part in self.parts:
            depth = part.path.count(" > ") + 1 if part.path else 0
            where = part.path.rpartition(" > ")[2] or "model"
            lines.append(
                f"{'  ' * depth}{where}: {len(part.graph.nodes)} nodes from {part.graph.nodes[0].name!r},"
                f" arena {format_bytes(part.plan.arena_bytes)}, {part.plan.predicted_ms:.2f} ms"
            )
        return "\n".join(lines)

    def _fold(self, region: Region, cost: Any) -> float:
        """Sum over a region's programs, and over its control-flow nodes the largest of their bodies."""
        total = sum(float(cost(part)) for part in self.parts if part.path == region.path)
        for bodies in region.children.values():
            total += max(self._fold(body, cost) for body in bodies.values())
        return total


def plan_regions(programs: Programs, feeds: Mapping[str, Array]) -> RegionPlan:
    """Plans what a run at the shapes of ``feeds`` could meet. Raises BudgetError, GraphError."""
    plans = _Plans(programs)
    sampler = Sampler(programs.stored.model, plans)
    with np.errstate(all="ignore"):
        sampler.run(feeds)
    return RegionPlan(sampler.region, plans.parts, programs.memory)
