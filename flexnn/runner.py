"""Running a model whose shapes or path are known only at run time (flexnn/regions), inside the budget.

Each segment, bound and planned, is a program of its own. What is open at once keeps to the budget together: values
between segments, programs, arenas. A program is planned for what the others leave; where that is too little, those
used longest ago are closed. After a run only the programs of that run stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flexnn.artifact import Artifact, StoredModel, source_of, weight_key
from flexnn.graph.ir import DTYPES, Graph, Tensor, Weight
from flexnn.graph.sources import ArraySource
from flexnn.plan import BudgetError, Plan, make_plan
from flexnn.plan.overhead import BASE_BYTES, NODE_BYTES, overhead_bytes
from flexnn.regions import Segment, Walker

from .engine import Engine, SessionError, Switches

Array = np.ndarray[Any, Any]

MODEL_NODE_BYTES = 3 << 10
"""An ONNX node in Python, with its attributes and its part of the section."""
CODE_BYTES = 4 << 20
"""What binding imports and leaves in the heap: measured 3.4 MiB."""
_OWN_PARTS = ("program", "stacks")
"""Of a plan's overhead, what each open program takes for itself."""
_ALIGN = 64
"""Bytes between the starts of held constants."""


@dataclass(slots=True, eq=False)
class Program:
    """A bound segment."""

    graph: Graph
    held: list[Array]
    """Constants that are not in the artifact, as the graph's last inputs."""
    plan: Plan | None = None
    planned_for: tuple[int | None, int] = (None, -1)
    """Budget, and what lived and was open beside it, when it was planned."""
    engine: Engine | None = None
    live_bytes: int = -1
    """Of the values that lived when it was planned."""


@dataclass(slots=True)
class Totals:
    """Of one run, over all programs."""

    run_ns: int = 0
    stall_ns: int = 0
    bytes_read: int = 0
    plan_ms: float = 0.0
    used: list[Program] = field(default_factory=list)


class Runner:
    """Runs the model of an artifact. ``memory``: bytes for everything, or None."""

    def __init__(self, artifact: Artifact, memory: int | None, switches: Switches, io_align: int) -> None:
        assert isinstance(artifact.contents, StoredModel)
        self.artifact, self.stored = artifact, artifact.contents
        self.memory = memory
        self.switches = switches
        self.io_align = io_align
        self.walker = Walker(self.stored.model, self)
        self.totals = Totals()
        self._programs: dict[int, Program] = {}
        self._open: list[Program] = []
        """Open ones, the one used last at the end."""
        self._shapes: dict[str, tuple[int, ...]] = {}
        """Of the inputs of the last run."""
        self._usual: list[Program] = []
        """Programs of the last run that went through."""
        nodes = sum(len(graph.nodes) for graph in self.stored.model.graph.walk())
        inline = (c for c in self.stored.constants if isinstance(source_of(c).base, ArraySource))
        values = sum(constant.nbytes for constant in inline)
        self.model_bytes = CODE_BYTES + MODEL_NODE_BYTES * nodes + 2 * values

    def __call__(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs, in the model's order. Raises BudgetError, SessionError, GraphError."""
        self.totals = Totals()
        shapes = {name: array.shape for name, array in feeds.items()}
        if shapes != self._shapes:
            self.close()  # first: what other shapes needed must not stay beside what these need
            self._shapes = shapes
        with np.errstate(all="ignore"):
            outputs = self.walker.run(feeds)
        self._usual = self.totals.used
        for program in [program for program in self._open if program not in self.totals.used]:
            self._close(program)
        return outputs

    @property
    def plan(self) -> Plan:
        """Of the last run's largest program. Raises SessionError before the first run."""
        plans = [program.plan for program in self.totals.used if program.plan is not None]
        if not plans:
            raise SessionError("the model's shapes are open: it is planned when it runs")
        return max(plans, key=lambda plan: plan.arena_bytes)

    @property
    def session_bytes(self) -> int:
        """Of everything open, and the model."""
        plans = [program.plan for program in self._open if program.plan is not None]
        most = max((plan.overhead["values"] + plan.overhead["io"] for plan in plans), default=0)
        return self.model_bytes + BASE_BYTES + most + sum(map(_own_bytes, plans))

    @property
    def last_run(self) -> dict[str, int]:
        """As of a session."""
        totals = self.totals
        return {"run_ns": totals.run_ns, "stall_ns": totals.stall_ns, "bytes_read": totals.bytes_read}

    def close(self) -> None:
        """Closes all programs."""
        for program in list(self._open):
            self._close(program)

    # ---- what the walker asks for ----

    def run(self, segment: Segment, inputs: Sequence[Array], held: int) -> list[Array]:
        """Runs a segment in its program, which is made, planned and opened when it is not."""
        program = self.bound(segment)
        live = held - sum(array.nbytes for array in inputs)
        engine = self._opened(program, live)
        graph = program.graph
        outputs = [np.empty(graph.tensors[i].shape, DTYPES[graph.tensors[i].dtype]) for i in graph.outputs]
        ready = [np.require(array, requirements=["C", "ALIGNED"]) for array in inputs]
        spent = engine.run([*ready, *program.held, *outputs])
        self.totals.run_ns += spent["run_ns"]
        self.totals.stall_ns += spent["stall_ns"]
        self.totals.bytes_read += spent["bytes_read"]
        if program not in self.totals.used:
            self.totals.used.append(program)
        return outputs

    def bound(self, segment: Segment) -> Program:
        """The program of a segment."""
        program = self._programs.get(id(segment))
        if program is None:
            program = self._programs[id(segment)] = self._bind(segment)
        return program

    def planned(self, program: Program, live: int) -> Plan:
        """The plan of a program for what is left beside ``live`` bytes of values and the open programs. Raises
        BudgetError.
        """
        others = sum(_own_bytes(other.plan) for other in self._open if other.plan is not None)
        memory = self._share(program, live, others)
        counted = sum(len(other.graph.nodes) for other in {program, *self._open})
        kept = NODE_BYTES * max(0, self.walker.kept_nodes - counted)
        beside = (memory, live + others + kept if memory is not None else 0)
        if program.plan is not None and program.planned_for == beside:
            return program.plan
        parts = {"values": live, "model": self.model_bytes, "programs": others, "kept": kept}

        def overhead(graph: Graph, steps: int, loads: int, threads: int) -> dict[str, int]:
            return overhead_bytes(graph, steps, loads, threads) | parts

        program.plan = make_plan(
            program.graph,
            memory=memory,
            threads=self.switches.threads,
            io_align=self.io_align,
            overhead=overhead,
        )
        program.planned_for = beside
        self.totals.plan_ms += program.plan.plan_ms
        return program.plan

    def lacking(self, segment: Segment) -> set[str]:
        """Names of nodes whose weights the artifact does not hold in the form that the segment reads."""
        return {weight.name for weight in segment.graph.weights if not self._has(weight)}

    def forget(self, segment: Segment) -> None:
        """Closes the program of a segment that will not run again."""
        program = self._programs.pop(id(segment), None)
        if program is not None:
            self._close(program)

    # ---- programs ----

    def _bind(self, segment: Segment) -> Program:
        """The segment's graph with its weights found in the artifact; those that are not there become inputs."""
        graph = segment.graph
        held = _hold_constants(graph)
        for weight in graph.weights:
            stored = self.stored.weights[self.stored.keys[str(weight_key(weight))]]
            weight.offset, weight.crc_first, weight.source = stored.offset, stored.crc_first, None
            weight.chunk_bytes = stored.chunk_bytes
        return Program(graph, held)

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

    def _opened(self, program: Program, live: int) -> Engine:
        if program.engine is not None and live <= program.live_bytes:
            self._open.remove(program)
            self._open.append(program)
            return program.engine
        self._close(program)
        trimmed = False
        while True:
            try:
                plan = self.planned(program, live)
                break
            except BudgetError:
                if self._open:
                    self._close(self._open[0])
                elif not trimmed:
                    self.walker.trim(0)
                    trimmed = True
                else:
                    raise
        program.engine = Engine(self.artifact, program.graph, plan, self.switches)
        program.live_bytes = live
        self._open.append(program)
        return program.engine

    def _share(self, program: Program, live: int, others: int) -> int | None:
        """The budget for one program: of what all programs of the last run leave beside their minima, a share by its
        weights, so that none of them has to be closed for another. All of it where their minima are too much together.
        """
        if self.memory is None or program.plan is None or program not in self._usual or len(self._usual) == 1:
            return self.memory
        plans = [other.plan for other in self._usual if other.plan is not None]
        fixed = max(sum(plan.overhead.values()) - _own_overhead(plan) - plan.overhead["programs"] for plan in plans)
        least = [plan.minimum_memory - sum(plan.overhead.values()) + _own_overhead(plan) for plan in plans]
        spare = self.memory - fixed - sum(least)
        if spare < 0:
            return self.memory
        weights = [sum(weight.nbytes for weight in other.graph.weights) + 1 for other in self._usual]
        mine = self._usual.index(program)
        own = least[mine] + spare * weights[mine] // sum(weights)
        beside = sum(program.plan.overhead.values()) - _own_overhead(program.plan) - program.plan.overhead["programs"]
        beside += live - program.plan.overhead["values"]
        return min(self.memory, beside + others + own)

    def _close(self, program: Program) -> None:
        if program.engine is not None:
            program.engine.close()
            program.engine = None
            self._open.remove(program)


def _own_overhead(plan: Plan) -> int:
    return sum(plan.overhead[part] for part in _OWN_PARTS)


def _own_bytes(plan: Plan) -> int:
    return plan.arena_bytes + _own_overhead(plan)


def _hold_constants(graph: Graph) -> list[Array]:
    """Makes constants that are small, or were made while binding, inputs: one for each type, which all of that type are
    parts of. Returns their arrays.
    """
    kept = {i: t for i, t in enumerate(graph.tensors) if t.weight >= 0 and weight_key(graph.weights[t.weight]) is None}
    held: list[Array] = []
    for dtype in sorted({tensor.dtype for tensor in kept.values()}):
        alike = {i: tensor for i, tensor in kept.items() if tensor.dtype == dtype}
        step = _ALIGN // DTYPES[dtype].itemsize
        sizes = [-(-tensor.size // step) * step for tensor in alike.values()]
        array = np.zeros(sum(sizes), DTYPES[dtype])
        graph.tensors.append(Tensor(f"constants.{dtype}", (len(array),), dtype))
        graph.inputs.append(len(graph.tensors) - 1)
        at = 0
        for tensor, size in zip(alike.values(), sizes, strict=True):
            source = graph.weights[tensor.weight].source
            assert source is not None
            array[at : at + tensor.size] = source.load().reshape(-1)
            tensor.root, tensor.offset, tensor.weight = graph.inputs[-1], at, -1
            at += size
        held.append(array)
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
