"""Segments as programs: weights found in the artifact, planned for what a budget leaves (flexnn/regions, plan)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flexnn.artifact import Artifact
from flexnn.artifact.model_section import StoredModel, source_of, weight_key
from flexnn.graph.ir import DTYPES, Graph, Tensor, Weight
from flexnn.graph.sources import ArraySource
from flexnn.measure import Watch
from flexnn.planning import BudgetError, MachineProfile, Plan, Planner, Setting
from flexnn.planning.overhead import NODE_BYTES
from flexnn.planning.types import LINE, align_up
from flexnn.regions import Segment

from .engine import BoundProgram

Array = np.ndarray[Any, Any]

MODEL_NODE_BYTES = 3 << 10
"""An ONNX node in Python, with its attributes and its part of the section."""
CODE_BYTES = 4 << 20
"""What binding imports and leaves in the heap: measured 3.6 MiB."""


@dataclass(slots=True, eq=False)
class Program:
    """A bound segment, and where it lies in the arena once it is planned and open. Sizes in bytes."""

    graph: Graph
    held: list[Array]
    """Constants that are not in the artifact, as the graph's last inputs."""
    planner: Planner
    io_align: int
    plan: Plan | None = None
    planned_for: tuple[int | None, int] = (None, -1)
    """Budget, and what lived and was open beside it, when it was planned."""
    engine: BoundProgram | None = None
    place: tuple[int, int] | None = None
    """Arena offsets of what it keeps and of where it works, when it was bound last."""
    number: int = 0
    """Of the order in which programs were opened."""
    live_bytes: int = -1
    """Of the values that lived when it was planned."""
    then: Program | None = None
    """What ran after it the last time."""
    is_followed: bool = False
    """And the time before."""
    watch: Watch | None = None
    """What its runs tell about the machine."""
    is_profiled: bool = False
    """Whether it was looked at for what of it is not measured."""

    @property
    def front(self) -> int:
        """What it keeps: zeros, small constants, pinned weights."""
        assert self.plan is not None
        return align_up(self.plan.arena_bytes - self.plan.working_bytes, self.io_align)

    @property
    def region(self) -> int:
        """Where it works: activations, workspaces, streams."""
        assert self.plan is not None
        return align_up(self.plan.working_bytes, self.io_align)

    @property
    def beside(self) -> int:
        """What it takes beside the arena."""
        assert self.plan is not None
        return self.plan.overhead["program"]


class Programs:
    """The programs of an artifact's model for ``memory`` bytes (None: no limit), kept as long as their segments."""

    def __init__(self, artifact: Artifact, memory: int | None, setting: Setting) -> None:
        assert isinstance(artifact.contents, StoredModel)
        self.artifact, self.stored = artifact, artifact.contents
        self.memory, self.setting = memory, setting
        self.plan_ms = 0.0
        self._programs: dict[int, Program] = {}
        nodes = sum(len(graph.nodes) for graph in self.stored.model.graph.walk())
        inline = (c for c in self.stored.constants if isinstance(source_of(c).base, ArraySource))
        values = sum(constant.nbytes for constant in inline)
        self.model_bytes = CODE_BYTES + MODEL_NODE_BYTES * nodes + 2 * values

    def __len__(self) -> int:
        return len(self._programs)

    def __iter__(self) -> Iterator[Program]:
        return iter(self._programs.values())

    def of(self, segment: Segment) -> Program:
        """The program of a segment."""
        program = self._programs.get(id(segment))
        if program is None:
            program = self._programs[id(segment)] = self._bind(segment)
        return program

    def know(self, machine: MachineProfile) -> None:
        """Programs are planned for ``machine`` from now on, those that are there anew."""
        self.setting = replace(self.setting, machine=machine)
        for program in self:
            program.planner, program.planned_for = self._planner(program.graph), (None, -1)

    def pop(self, segment: Segment) -> Program | None:
        """Forgets the program of a segment that will not run again."""
        return self._programs.pop(id(segment), None)

    def lacking(self, segment: Segment) -> set[str]:
        """Names of nodes whose weights the artifact does not hold in the form that the segment reads."""
        return {weight.name for weight in segment.graph.weights if not self._has(weight)}

    def planned(
        self, program: Program, live: int, others: Sequence[Program], kept_nodes: int, share: int | None = None
    ) -> Plan:
        """The plan of a program for what is left beside ``live`` bytes of values, the open ``others``, whose arena it
        shares but for what each keeps, and ``kept_nodes`` nodes of other segments; ``share``: at most so much beyond
        its smallest budget. Raises BudgetError.
        """
        planner = program.planner
        region = max((other.region for other in others), default=0)
        parts = {
            "values": live,
            "model": self.model_bytes,
            "programs": sum(other.front + other.beside for other in others)
            + max(0, region - planner.least_working_bytes)
            + 2 * self.setting.io_align * (1 + len(others)),
            "kept": NODE_BYTES * kept_nodes,
        }
        around = sum(parts.values())
        own = None if self.memory is None else self.memory - around
        if own is not None and share is not None:
            own = min(own, planner.minimum + share)
        if program.plan is not None and program.planned_for == (own, around):
            return program.plan
        try:
            plan = planner.plan(own)
        except BudgetError as error:
            raise BudgetError(error.minimum + around, self.memory or 0) from None
        program.plan = replace(
            plan, memory=self.memory, minimum_memory=plan.minimum_memory + around, overhead=plan.overhead | parts
        )
        program.planned_for = own, around
        self.plan_ms += plan.plan_ms
        return program.plan

    def _bind(self, segment: Segment) -> Program:
        """The segment's graph with its weights found in the artifact; those that are not there become inputs."""
        graph = segment.graph
        held = _hold_constants(graph)
        for weight in graph.weights:
            stored = self.stored.weights[self.stored.keys[str(weight_key(weight))]]
            weight.offset, weight.crc_first, weight.source = stored.offset, stored.crc_first, None
            weight.chunk_bytes = stored.chunk_bytes
        return Program(graph, held, self._planner(graph), self.setting.io_align)

    def _planner(self, graph: Graph) -> Planner:
        return Planner(graph, self.setting)

    def _has(self, weight: Weight) -> bool:
        key = weight_key(weight)
        if key is None:
            return True
        if key not in self.stored.keys:
            return False
        stored = self.stored.weights[self.stored.keys[key]]
        if (stored.kind, stored.nbytes) != (weight.kind, weight.nbytes):
            return False
        return stored.kind == "raw" or stored.chunk_bytes == weight.chunk_bytes


def _hold_constants(graph: Graph) -> list[Array]:
    """Makes constants that are small, or were made while binding, inputs: one for each type, which all of that type are
    parts of. Returns their arrays.
    """
    kept = {i: t for i, t in enumerate(graph.tensors) if t.weight >= 0 and weight_key(graph.weights[t.weight]) is None}
    held: list[Array] = []
    places: dict[int, tuple[int, int]] = {}
    for dtype in sorted({tensor.dtype for tensor in kept.values()}):
        alike = {i: tensor for i, tensor in kept.items() if tensor.dtype == dtype}
        step = LINE // DTYPES[dtype].itemsize
        sizes = [-(-tensor.size // step) * step for tensor in alike.values()]
        array = np.zeros(sum(sizes), DTYPES[dtype])
        graph.tensors.append(Tensor(f"constants.{dtype}", (len(array),), dtype))
        graph.inputs.append(len(graph.tensors) - 1)
        at = 0
        for (i, tensor), size in zip(alike.items(), sizes, strict=True):
            source = graph.weights[tensor.weight].source
            assert source is not None
            array[at : at + tensor.size] = source.load().reshape(-1)
            tensor.weight, places[i] = -1, (graph.inputs[-1], at)
            at += size
        held.append(array)
    for i, tensor in enumerate(graph.tensors):  # the constants and their views
        place = places.get(i) or places.get(tensor.root)
        if place is not None:
            tensor.root, tensor.offset = place[0], tensor.offset + place[1]
    _drop_unused_weights(graph)
    return held


def _drop_unused_weights(graph: Graph) -> None:
    used = sorted(({t.weight for t in graph.tensors} | {node.weight for node in graph.nodes}) - {-1})
    place = {old: new for new, old in enumerate(used)} | {-1: -1}
    graph.weights = [graph.weights[w] for w in used]
    for tensor in graph.tensors:
        tensor.weight = place[tensor.weight]
    for node in graph.nodes:
        node.weight = place[node.weight]
