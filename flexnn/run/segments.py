"""Bound segments: weights found in the artifact, planned for what a budget leaves (flexnn/regions, flexnn/planning)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from flexnn.artifact.model_section import StoredModel, source_of, weight_key
from flexnn.graph.ir import DTYPES, Array, Graph, Tensor, Weight
from flexnn.graph.sources import ArraySource
from flexnn.measure import Spans, Watch
from flexnn.planning import BudgetError, MachineProfile, Plan, Planner, Setting
from flexnn.planning.types import LINE, align_up
from flexnn.regions import Segment

from .engine import BoundProgram

MODEL_NODE_BYTES = 3 << 10
"""Bytes of an ONNX node in Python, with its attributes and its part of the artifact's section."""
CODE_BYTES = 4 << 20
"""Bytes of the modules that binding imports and of the heap that it leaves: measured 3.6 MiB."""


@dataclass(slots=True, eq=False)
class BoundSegment:
    """A segment bound to shapes, and where it lies in the arena once it is planned and open. Sizes in bytes."""

    graph: Graph
    constants: list[Array]
    """Constants that are not in the artifact, as the graph's last inputs."""
    planner: Planner
    io_align: int
    plan: Plan | None = None
    planned_for: int | None = -1
    """Budget of ``plan`` (None: no limit): while it is the same, so is the plan."""
    least_bytes: int = 0
    """Smallest budget of the segment alone, its inputs and outputs not counted."""
    bound: BoundProgram | None = None
    """The plan's program in the engine, while the segment is open."""
    place: tuple[int, int] | None = None
    """Arena offsets of its pinned part and of its working part, when it was bound last."""
    watch: Watch | None = None
    """Observer of its runs, for what they tell about the machine."""
    is_measured: bool = False
    """Whether its operators were already checked for missing measurements."""

    @property
    def is_bound(self) -> bool:
        """Whether the program of its plan is bound."""
        return self.bound is not None and self.plan is not None and self.bound.plan.program is self.plan.program

    def spans(self) -> Spans | None:
        """Return the times of its last run's steps and loads, as Watch takes them."""
        return self.bound.spans if self.bound is not None else None

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the arena that stay its own: zeros, small constants, pinned weights."""
        assert self.plan is not None
        return align_up(self.plan.arena_bytes - self.plan.working_bytes, self.io_align)

    @property
    def working_bytes(self) -> int:
        """Bytes of the arena that segments share: activations, workspaces, streamed weights."""
        assert self.plan is not None
        return align_up(self.plan.working_bytes, self.io_align)

    @property
    def program_bytes(self) -> int:
        """Bytes of the program outside the arena."""
        assert self.plan is not None
        return self.plan.overhead["program"]


class BoundSegments:
    """The bound segments of a stored model for ``memory`` bytes (None: no limit), kept as long as their segments.
    ``rewrite`` changes each plan that is made.
    """

    def __init__(
        self,
        stored: StoredModel,
        memory: int | None,
        setting: Setting,
        rewrite: Callable[[Plan], Plan] | None = None,
    ) -> None:
        self.stored = stored
        self.memory, self.setting, self._rewrite = memory, setting, rewrite
        self._bound: dict[Segment, BoundSegment] = {}
        nodes = sum(len(graph.nodes) for graph in self.stored.model.graph.walk())
        inline = (c for c in self.stored.constants if isinstance(source_of(c).base, ArraySource))
        values = sum(constant.nbytes for constant in inline)
        self.model_bytes = CODE_BYTES + MODEL_NODE_BYTES * nodes + 2 * values

    def __len__(self) -> int:
        return len(self._bound)

    def __iter__(self) -> Iterator[BoundSegment]:
        return iter(self._bound.values())

    def of(self, segment: Segment) -> BoundSegment:
        """Return the bound form of a segment, made when it is first asked for."""
        found = self._bound.get(segment)
        if found is None:
            found = self._bound[segment] = self._bind(segment)
        return found

    def know(self, machine: MachineProfile) -> None:
        """Plan for ``machine`` from now on, also those that are there."""
        self.setting = self.setting._replace(machine=machine)
        for segment in self:
            segment.planner, segment.planned_for = Planner(segment.graph, self.setting), -1

    def pop(self, segment: Segment) -> BoundSegment | None:
        """Forget a segment that will not run again; return its bound form."""
        return self._bound.pop(segment, None)

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of nodes whose weights the artifact does not hold in the form that the segment reads."""
        return {weight.name for weight in segment.weights if not self._has(weight)}

    @property
    def stacks_bytes(self) -> int:
        """Bytes of the threads' stacks."""
        return self.setting.overhead(Graph(), 0, 0, self.setting.threads)["stacks"]

    def io_bytes(self, segment: BoundSegment) -> int:
        """Return the bytes that a plan of the segment counts for its inputs and outputs."""
        return self.setting.overhead(segment.graph, 0, 0, self.setting.threads)["io"]

    def planned(self, segment: BoundSegment, own: int | None, around: dict[str, int]) -> Plan:
        """Return the plan of a segment for ``own`` bytes, its inputs and outputs not counted (None: no limit), beside
        ``around``: bytes of all else, by what takes them. Raises BudgetError.
        """
        if segment.plan is not None and segment.planned_for == own:
            plan = segment.plan
        else:
            io = self.io_bytes(segment)
            try:
                plan = segment.planner.plan(None if own is None else own + io)
            except BudgetError as error:
                raise BudgetError(error.minimum - io + sum(around.values()), self.memory or 0) from None
            plan = self._rewrite(plan) if self._rewrite else plan
            segment.planned_for, segment.least_bytes = own, plan.minimum_memory - io
        minimum = segment.least_bytes + sum(around.values())
        segment.plan = replace(
            plan, memory=self.memory, minimum_memory=minimum, overhead=plan.overhead | {"io": 0} | around
        )
        return segment.plan

    def _bind(self, segment: Segment) -> BoundSegment:
        """Find the weights of the segment's graph in the artifact; constants that are not there become inputs."""
        graph = segment.graph
        if segment.fixed is None:  # not where it is bound again after it was dropped
            segment.fixed = _constants_as_inputs(graph)
        for weight in graph.weights:
            stored = self.stored.weights[self.stored.keys[str(weight_key(weight))]]
            weight.offset, weight.crc_first = stored.offset, stored.crc_first
            weight.source = weight.panels = None
            weight.chunk_bytes = stored.chunk_bytes
        return BoundSegment(graph, segment.fixed, Planner(graph, self.setting), self.setting.io_align)

    def _has(self, weight: Weight) -> bool:
        key = weight_key(weight)
        if key is None:
            return True
        if key not in self.stored.keys:
            return False
        stored = self.stored.weights[self.stored.keys[key]]
        if stored.nbytes != weight.nbytes:
            return False
        return stored.kind == weight.kind == "raw" or stored.chunk_bytes == weight.chunk_bytes


def _constants_as_inputs(graph: Graph) -> list[Array]:
    """Turn constants that are small, or were made while binding, into parts of new inputs, one input for each type.
    Return the arrays of these inputs.
    """
    kept = {i: t for i, t in enumerate(graph.tensors) if t.weight >= 0 and weight_key(graph.weights[t.weight]) is None}
    arrays: list[Array] = []
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
        arrays.append(array)
    for i, tensor in enumerate(graph.tensors):  # the constants and their views
        place = places.get(i) or places.get(tensor.root)
        if place is not None:
            tensor.root, tensor.offset = place[0], tensor.offset + place[1]
    _drop_unused_weights(graph)
    return arrays


def _drop_unused_weights(graph: Graph) -> None:
    used = sorted(({t.weight for t in graph.tensors} | {node.weight for node in graph.nodes}) - {-1})
    place = {old: new for new, old in enumerate(used)} | {-1: -1}
    graph.weights = [graph.weights[w] for w in used]
    for tensor in graph.tensors:
        tensor.weight = place[tensor.weight]
    for node in graph.nodes:
        node.weight = place[node.weight]
