"""A bound graph in a pool: its plans are for what the pool leaves it, its program lies where the pool has room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flexnn import _core
from flexnn.graph.ir import Array
from flexnn.planning import Plan, Planner
from flexnn.planning.relocate import relocated
from flexnn.planning.types import align_up

from .choosing import Point
from .engine import BoundProgram, SessionError
from .fixed import Bound, FixedRun
from .model_file import ModelFile
from .options import RunOptions
from .sharing import Seat, SharedArena, made

PARTS = 8
"""Parts of the way from the smallest plan to the fastest at which a session's times are known."""


class PooledFixedRun(FixedRun):
    """The ``Run`` of a bound graph in a pool."""

    code_bytes = 0

    def __init__(self, file: ModelFile, options: RunOptions, shared: SharedArena) -> None:
        self._take(file, options)
        self._shared, self._engine, self.threads = shared, shared.engine, shared.engine.threads
        self._seat = Seat(shared, self)
        plan = self._plan_first()
        self._fastest = self._point(plan, None)
        self._smallest: Point | None = None
        """None: nobody has asked; finding it takes most of the time of opening."""
        self._curve: list[Point] = []
        self._bound = Bound(plan, None, None)
        self.now = self._fastest
        self._planner.rest()
        shared.join(self._seat)

    def _plan_first(self) -> Plan:
        """Make the planner; measure the machine for it, where nobody did, in memory that all sessions give back."""
        if self._parts is not None and self._parts.is_new:
            arena = self._arena_to_measure()
            lack = self._parts.lacks_any(self._graph, arena)
            if lack is not None:
                self._parts.measure(self._graph, arena, lack)
        setting = self._options.setting(self._machine, self._file.io_align)
        self._planner = Planner(self._graph, setting, groups=self._options.groups)
        return self._planner.plan(None)

    def _arena_to_measure(self) -> int:
        setting = self._options.setting(self._machine, self._file.io_align)
        planner, memory = Planner(self._graph, setting), self._shared.memory
        least = planner.minimum
        self._shared.clear()
        return planner.plan(None if memory is None else max(least, memory - self._shared.beside_bytes)).arena_bytes

    # ---- what the pool asks for ----

    @property
    def input_bytes(self) -> int:
        """Bytes of its inputs."""
        return sum(self._graph.tensors[i].nbytes for i in self._graph.inputs)

    @property
    def value_bytes(self) -> int:
        """Bytes of two sets of outputs, or of one where they are reused."""
        return self._bound.plan.overhead["io"] - self.input_bytes

    def smallest(self) -> Point:
        """Return the point that takes least."""
        if self._smallest is None:
            self._smallest = self._point(self._planner.plan(self._planner.minimum))
            self._planner.rest()
        return self._smallest

    def fastest(self) -> Point:
        """Return the point without a limit."""
        return self._fastest

    def curve(self) -> Sequence[Point]:
        """Return points to choose from, the smallest first."""
        if not self._curve:
            least, most = self._planner.minimum, self._planner.plan(None).session_bytes
            between = [least + (most - least) * part // PARTS for part in range(1, PARTS)] if most > least else []
            self._curve = [self.smallest(), *(self._point(self._planner.plan(m)) for m in between), self.fastest()]
            self._planner.rest()
        return self._curve

    def _point(self, plan: Plan, memory: int | None = -1) -> Point:
        align = self._file.io_align
        return Point(
            plan.memory if memory == -1 else memory,
            align_up(plan.arena_bytes - plan.working_bytes, align),
            align_up(plan.working_bytes, align),
            plan.overhead["program"] + plan.overhead.get("groups", 0),
            plan.predicted_ms,
        )

    def adopt(self, point: Point) -> Callable[[], None]:
        """Plan for a point, unbound; return what takes that back."""
        plan = self._plan_for(point.memory)
        before, now = self._bound.plan, self.now

        def back() -> None:
            self._take_plan(before, now)

        self._take_plan(plan, point)
        return back

    def _take_plan(self, plan: Plan, point: Point) -> None:
        self.unbind()
        self._bound, self.now = Bound(plan, None, None), point

    @property
    def is_bound(self) -> bool:
        """Whether the program is bound."""
        return self._bound.program is not None

    def bind(self, pinned_at: int, shared_at: int) -> None:
        """Bind the program at these offsets. Raises SessionError."""
        plan = self._bound.plan
        split = plan.arena_bytes - plan.working_bytes
        program = relocated(plan.program, split, pinned_at, shared_at - split)
        bound = BoundProgram(self._engine, self.artifact, plan, program, direct_fd=self._file.direct_fd)
        self._bound = Bound(plan, bound, self._watch(plan))

    def unbind(self) -> None:
        """Unbind the program; its weights stay in the arena until something else needs their place."""
        program = self._bound.program
        if program is not None:
            self._bound = self._bound._replace(program=None)
            program.close()

    @property
    def files(self) -> tuple[_core.OpenFile, ...]:
        """Files that the program reads."""
        return self._file.files

    def needed_bytes(self, floor_bytes: int) -> int:
        """Return 0: all runs need the same."""
        return 0

    def drop_values(self) -> None:
        """Drop arrays that are kept for the next outputs."""
        self._results.clear()

    # ---- what the session asks for ----

    @property
    def memory(self) -> int | None:
        """The pool's budget."""
        return self._shared.memory

    @property
    def session_bytes(self) -> int:
        """Bytes that the session owns, the part of the arena that all sessions share among them."""
        return self._bound.plan.session_bytes

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Return all outputs, in the model's order; ``into``: the array of each, None where it is to be made. Raises
        BudgetError, SessionError.
        """
        self._shared.begin(self._seat)
        outputs = super().run(inputs, into)
        self._shared.end(self._seat, made(outputs, into))
        return outputs

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last; None where there was none or the feed is not like its."""
        if self._signature is None:
            return None
        self._shared.begin(self._seat)
        outputs = super().repeat(feed)
        if outputs is not None:
            self._shared.end(self._seat, outputs)
        return outputs

    def rebudget(self, memory: int | None) -> None:
        """Refuse: the budget is the pool's."""
        raise SessionError("the session's memory is its pool's: set that")

    def ending(self) -> _core.Ending:
        """Return what closes nothing: engine and files are the pool's."""
        return _core.Ending(None)

    def close(self, *, learn: bool = True) -> None:
        """Give back what the pool has of the session."""
        if self._seat in self._shared.seats:
            self._shared.leave(self._seat, self.artifact.fd)
        if learn:
            self._learn()
        self.release()
