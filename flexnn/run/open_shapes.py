"""Running a model whose shapes or path are known only at run time (flexnn/regions), inside the budget.

Each segment, bound and planned, is a program of its own; all of them run in one host. What programs keep (pinned
weights, small constants) lies side by side in the arena; where they work is the same memory for all, so the arena is as
big as the biggest needs, and branches that exclude each other share theirs. A program is planned for what the others
leave; where that is too little, those used longest ago are closed. After a run only the programs of that run stay open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flexnn.graph.ir import DTYPES, Tensor
from flexnn.measure import Watch
from flexnn.measure.parts import Parts
from flexnn.planning import BudgetError, Plan
from flexnn.planning.overhead import BASE_BYTES
from flexnn.planning.relocate import relocated
from flexnn.regions import Segment, Walker
from flexnn.run.outputs import Outputs

from .engine import AHEAD_MAX, BoundProgram, Engine, SessionError
from .segments import Program, Programs

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Totals:
    """Of one run, over all programs."""

    run_ns: int = 0
    stall_ns: int = 0
    bytes_read: int = 0
    used: dict[Program, None] = field(default_factory=dict)


class Runner:
    """Runs the model of an artifact in ``host``, by its ``programs``, with arrays of ``results``; ``parts`` measures
    what is not known of the machine (None: nothing is measured).
    """

    def __init__(self, host: Engine, programs: Programs, results: Outputs, parts: Parts | None) -> None:
        self.host, self.programs, self.parts = host, programs, parts
        self.walker = Walker(programs.stored.model, self)
        self.totals = Totals()
        self._results = results
        self.prefetches = True
        """Whether loads of the next program begin while one runs."""
        self._open: dict[Program, None] = {}
        """Open ones, the one used last at the end."""
        self._opened_count = 0
        self._last: Program | None = None
        """The program that ran last."""
        self._feeds: list[Array] = []
        """The inputs of the run under way."""
        self._shapes: dict[str, tuple[int, ...]] = {}
        """Of the inputs of the last run."""
        self._usual: list[Program] = []
        """Programs of the last run that went through."""

    def __call__(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs, in the model's order. Raises BudgetError, SessionError, GraphError."""
        self.totals = Totals()
        shapes = {name: array.shape for name, array in feeds.items()}
        if shapes != self._shapes:
            for program in list(self._open):  # first: what other shapes needed must not stay beside what these need
                self._close(program)
            self._results.clear()
            self.host.trim(keep=True)
            self._shapes = shapes
        self._feeds = list(feeds.values())
        try:
            with np.errstate(all="ignore"):
                outputs = self.walker.run(feeds)
        finally:
            self._feeds = []
        self._usual = list(self.totals.used)
        unused = [program for program in self._open if program not in self.totals.used]
        if unused:
            for program in unused:
                self._close(program)
            self.host.trim()
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
        arena = max((program.region for program in self._open), default=0)
        arena += sum(program.front + program.beside for program in self._open)
        stacks = max((plan.overhead["stacks"] for plan in plans), default=0)
        return self.programs.model_bytes + BASE_BYTES + stacks + most + arena

    @property
    def last_run(self) -> dict[str, int]:
        """As of a session."""
        totals = self.totals
        return {"run_ns": totals.run_ns, "stall_ns": totals.stall_ns, "bytes_read": totals.bytes_read}

    def rebudget(self, memory: int | None) -> None:
        """Plans the programs of the last run for another budget; weights that stay pinned stay in the arena. Where they
        do not fit any more all of them are closed.
        """
        self.programs.memory = memory
        again = [program for program in self._usual if program in self._open]
        for program in list(self._open):
            self._close(program)
        try:
            for program in again:
                self._planned(program, program.live_bytes)
                self._open[program] = None
            self._arrange()
        except BudgetError:
            self._open.clear()
        self.host.trim()

    def learn(self) -> None:
        """Keeps what runs of the longest program have told, for sessions to come."""
        if self.parts is not None and self._usual:
            longest = max(self._usual, key=lambda program: program.plan.predicted_ms if program.plan else 0.0)
            if longest.watch is not None:
                self.parts.learn(longest.watch)

    def close(self) -> None:
        """Closes all programs."""
        for program in list(self._open):
            self._close(program)
        self._results.clear()
        self.host.trim()

    # ---- what the walker asks for ----

    def run(self, segment: Segment, inputs: Sequence[Array], held: int) -> list[Array]:
        """Runs a segment in its program, which is made, planned and opened when it is not."""
        program = self.programs.of(segment)
        engine = self._opened(program, held - sum(array.nbytes for array in inputs))
        graph = program.graph
        outputs = [
            self._empty(segment, name, graph.tensors[i]) for name, i in zip(segment.makes, graph.outputs, strict=True)
        ]
        ready = [np.require(array, requirements=["C", "ALIGNED"]) for array in inputs]
        self._follow(program)
        spent = engine.run([*ready, *program.held, *outputs], self._following(program) if self.prefetches else [])
        if program.watch is not None:
            program.watch.ran(lambda: engine.spans)
        self.totals.run_ns += spent["run_ns"]
        self.totals.stall_ns += spent["stall_ns"]
        self.totals.bytes_read += spent["bytes_read"]
        self.totals.used[program] = None
        return outputs

    def _empty(self, segment: Segment, name: str, tensor: Tensor) -> Array:
        """An array that a segment will fill: of the model's outputs, or a value between."""
        region, dtype = segment.region, DTYPES[tensor.dtype]
        if region is self.walker.region and name in region.outputs:
            return self._results.array(name, tensor.shape, dtype, self._feeds)
        return np.empty(tensor.shape, dtype)

    def lacking(self, segment: Segment) -> set[str]:
        """As of Programs."""
        return self.programs.lacking(segment)

    def forget(self, segment: Segment) -> None:
        """Closes the program of a segment that will not run again."""
        program = self.programs.pop(segment)
        if program is not None:
            self._close(program)
            for other in self.programs:
                if other.then is program:
                    other.then = None
            if self._last is program:
                self._last = None

    def _follow(self, program: Program) -> None:
        """Notes that a program runs after the last one. What follows is expected once it has followed twice: behind a
        branch it always does, into a branch only while the same one is taken.
        """
        if self._last is not None:
            self._last.is_followed = self._last.then is program
            self._last.then = program
        self._last = program

    def _following(self, program: Program) -> list[BoundProgram]:
        """What is expected to run after a program, as far as that is open."""
        engines: list[BoundProgram] = []
        while program.is_followed and program.then is not None and len(engines) < AHEAD_MAX:
            program = program.then
            if program.engine is None:
                break
            engines.append(program.engine)
        return engines

    # ---- programs ----

    def _opened(self, program: Program, live: int) -> BoundProgram:
        if program.engine is not None and live <= program.live_bytes:
            self._open[program] = self._open.pop(program)
            return program.engine
        self._close(program)
        if self.parts is not None and not program.is_profiled:
            self._profile(self.parts, program, live)
        trimmed = False
        while True:
            try:
                self._planned(program, live)
                break
            except BudgetError:
                if self._open:
                    self._close(next(iter(self._open)))
                elif not trimmed:
                    self.walker.trim(0)
                    trimmed = True
                else:
                    raise
        program.live_bytes = live
        self._opened_count += 1
        program.number = self._opened_count
        self._open[program] = None
        self._arrange()
        assert program.engine is not None
        return program.engine

    def _profile(self, parts: Parts, program: Program, live: int) -> None:
        """Measures what a new program has that is not known, in the place of all that is open."""
        program.is_profiled = True
        if not parts.lacks(program.planner.tightest.graph, program.planner.tightest.costs):
            return
        for other in list(self._open):
            self._close(other)
        self.host.trim()
        with contextlib.suppress(BudgetError):  # planning says it, after all else was tried
            parts.measure(program.graph, self._planned(program, live).arena_bytes)
            self.programs.know(parts.machine)

    def _planned(self, program: Program, live: int) -> Plan:
        counted = sum(len(other.graph.nodes) for other in {program, *self._open})
        kept = max(0, self.walker.kept_nodes - counted)
        return self.programs.planned(program, live, list(self._open), kept, self._share(program))

    def _share(self, program: Program) -> int | None:
        """Bytes beyond its smallest budget for one program: of what the programs of the last run leave beside their
        minima, a share by its weights, so that none has to be closed for another. None: all there is, as where their
        minima are too much together.
        """
        memory = self.programs.memory
        if memory is None or program not in self._usual or len(self._usual) == 1:
            return None
        plans = [other.plan for other in self._usual if other.plan is not None]
        around = max(sum(p.overhead.values()) - p.overhead["program"] - p.overhead["programs"] for p in plans)
        regions = [other.planner.least_working_bytes for other in self._usual]
        least = [
            other.planner.minimum - sum(plan.overhead[part] for part in ("io", "stacks", "base"))
            for other, plan in zip(self._usual, plans, strict=True)
        ]
        slack = 2 * self.programs.setting.io_align * len(self._usual)
        spare = memory - around - slack - sum(least) + sum(regions) - max(regions)
        if spare < 0:
            return None
        weights = [sum(weight.nbytes for weight in other.graph.weights) + 1 for other in self._usual]
        return spare * weights[self._usual.index(program)] // sum(weights)

    def _arrange(self) -> None:
        """Gives every open program its place and binds those that are not there: first the one that lies highest of
        those that move up, last the ones that are new, so that none writes over weights that another will find there.
        """
        programs = sorted(self._open, key=lambda program: program.number)
        region = max((program.region for program in programs), default=0)
        at, places = region, {}
        for program in programs:  # neighbours in the order of runs work at opposite ends, where they leave room
            places[program] = (at, region - program.region if program.number % 2 else 0)
            at += program.front
        changed = [program for program in programs if program.engine is None or program.place != places[program]]
        up = [program for program in changed if program.place and program.place[0] < places[program][0]]
        down = [program for program in changed if program.place and program not in up]
        new = [program for program in changed if not program.place]
        try:
            for program in changed:
                self._unbind(program)
            for program in (*reversed(up), *down, *new):
                program.place = places[program]
                self._bind(program, *program.place)
            self.host.trim()
        except BaseException:
            self.close()
            raise

    def _bind(self, program: Program, front: int, work: int) -> None:
        plan = program.plan
        assert plan is not None
        split = plan.arena_bytes - plan.working_bytes
        program.engine = BoundProgram(self.host, plan, relocated(plan.program, split, front, work - split))
        if self.parts is not None and (program.watch is None or program.watch.program is not plan.program):
            program.watch = Watch(plan.program, self.programs.setting.machine)

    def _unbind(self, program: Program) -> None:
        if program.engine is not None:
            program.engine.close()
            program.engine = None

    def _close(self, program: Program) -> None:
        self._unbind(program)
        self._open.pop(program, None)
