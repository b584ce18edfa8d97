"""A model of open shapes in a pool: its budget is what the others leave, its segments lie where the pool has room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flexnn._core import OpenFile
from flexnn.graph.ir import Array, GraphError
from flexnn.planning import BudgetError, Planner
from flexnn.planning.overhead import BASE_BYTES
from flexnn.planning.types import align_up

from .bases import Base
from .choosing import Point
from .engine import Engine, SessionError
from .model_file import ModelFile
from .open_shapes import OpenShapesRun
from .options import RunOptions
from .segments import AGAIN, CODE_BYTES
from .sharing import Seat, SharedArena, made
from .teams import segments_of

PARTS = 4
"""Parts of the way from the smallest plans to the fastest at which a session's times are known."""
CLOSED_MS, FORGOTTEN_MS = 50.0, 500.0
"""Milliseconds that a run takes longer, as the pool counts, where nothing is open, and where nothing is kept either."""
ATTEMPTS = 6
"""Times that a run is tried: others may take less after a refusal, which then would name a budget that they leave."""
MORE_BYTES = 1 << 20
"""Bytes by which a budget is raised that was refused although it seems to do."""
NEAR = 16
"""Part of the pinned bytes by which a choice may differ from what is open, which then stays."""


def _between(least: int, full: int, part: int) -> int:
    return least + max(full - least, 0) * part // PARTS


class PooledOpenRun(OpenShapesRun):
    """The ``Run`` of a model of open shapes in a pool."""

    code_bytes = CODE_BYTES

    def __init__(
        self,
        file: ModelFile,
        options: RunOptions,
        shared: SharedArena,
        look_ahead: Callable[[OpenShapesRun, Sequence[Array]], int],
    ) -> None:
        self._shared, self._seat = shared, Seat(shared, self)
        self.now = Point(None, 0, 0, 0, FORGOTTEN_MS)
        self.input_bytes = self.value_bytes = 0
        self._planned_for: int | None = None
        """Budget for which what is open was planned."""
        self._limit: int | None = None
        """Budget that the pool chose; None: what is left."""
        self._is_inside = False
        self._known: tuple[list[Base | None], list[Point]] = [], []
        """Points of the last run's stretches, and what they were for."""
        self._fastest: tuple[list[Base | None], list[Point]] = [], []
        """The last of them, which is all that is asked for where the pool has room for everything."""
        shared.seats.append(self._seat)
        try:
            memory = shared.left_bytes(self._seat)
            super().__init__(file, options._replace(memory=memory), look_ahead, self)
            self._count()
            shared.seats.remove(self._seat)
            shared.join(self._seat)
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Leave the pool, which the session has not joined: opening it may have bound programs, which would be in the
        way of others' until garbage is collected.
        """
        if hasattr(self, "_open"):
            self.unbind()
        if self._seat in self._shared.seats:
            self._shared.seats.remove(self._seat)
        del self._seat.member  # which has the seat

    # ---- the home of its arena ----

    @property
    def engine(self) -> Engine:
        """The pool's engine."""
        return self._shared.engine

    def settle(self, pinned_bytes: int, shared_bytes: int) -> tuple[int, int]:
        """Return the offsets of the session's own part of the arena and of the part that it shares."""
        align = self._file.io_align
        self.now = self.now._replace(pinned=align_up(pinned_bytes, align), shared=align_up(shared_bytes, align))
        return self._shared.settle(self._seat)

    def clear(self) -> None:
        """Give back what all sessions have of the arena."""
        self._shared.clear()

    def leave(self) -> None:
        """Give back all that the session has in the engine."""
        if self._seat in self._shared.seats:
            self._shared.leave(self._seat, self.artifact.fd)

    # ---- what the pool asks for ----

    def _count(self) -> None:
        """Count what the session has outside the arena, and values of the last run."""
        found = self._open.bytes(again=False)
        own = sum(found.values()) - sum(found[name] for name in ("base", "stacks", "arena", "values")) - CODE_BYTES
        if self._open.has_open:
            self.now = self.now._replace(memory=self._limit, own=own, ms=self._ms_of(self.now.pinned))
        else:
            self.now = Point(self._limit, 0, 0, own, self._closed().ms)
        self.value_bytes = max(found["values"] - self.input_bytes, 0)

    def _ms_of(self, pinned: int) -> float:
        """Return the time of a run with so many bytes pinned."""
        return min((point.ms for point in self._seen if point.pinned <= pinned), default=self._slowest_ms)

    def smallest(self) -> Point:
        """Return the point that takes least: nothing is open or kept."""
        return Point(None, 0, 0, self._open.segments.model_bytes - CODE_BYTES, self._slowest_ms + FORGOTTEN_MS)

    def _closed(self) -> Point:
        """Return the point at which nothing is open."""
        return Point(None, 0, 0, self._open.closed_bytes - CODE_BYTES, self._slowest_ms + CLOSED_MS)

    def fastest(self) -> Point:
        """Return the point without a limit: runs at other shapes than the last one's may take more."""
        bases = self._bases
        if bases and bases not in (self._known[0], self._fastest[0]):
            self._fastest = bases, self._points([PARTS])
        points = self._fastest[1] if bases and bases != self._known[0] else self._seen
        return (points or [self.now])[-1]._replace(memory=None)

    @property
    def _bases(self) -> list[Base | None]:
        return [segment.base for segment in segments_of(self._open.usual)]

    @property
    def _seen(self) -> list[Point]:
        return self._known[1] or self._fastest[1]

    @property
    def _slowest_ms(self) -> float:
        return max((point.ms for point in self._seen), default=0.0)

    def curve(self) -> Sequence[Point]:
        """Return points to choose from, the smallest first."""
        bases = self._bases
        if bases and bases != self._known[0]:
            self._known = bases, self._points(range(PARTS + 1))
        return [self.smallest(), self._closed(), *(self._seen or [self.now])]

    def _points(self, parts: Sequence[int]) -> list[Point]:
        """Return the points at some parts of the way to the fastest plans, for the stretches of the last run, all open
        together.
        """
        usual = self._open.usual
        segments = [segment for segment in segments_of(usual) if segment.base is not None]
        if not segments:
            return []
        store, align = self._open.segments, self._file.io_align
        slots = align_up(max(found.slot_bytes for found in usual), align)
        planners = [Planner(segment.base.graph, store.setting) for segment in segments if segment.base is not None]
        fulls = [planner.plan(None).session_bytes for planner in planners]
        points = []
        for part in parts:
            pinned = shared = 0
            ms = 0.0
            for planner, full in zip(planners, fulls, strict=True):
                plan = planner.plan(None if part == PARTS else _between(planner.minimum, full, part))
                pinned += align_up(plan.arena_bytes - plan.working_bytes, align)
                shared = max(shared, align_up(plan.working_bytes, align))
                ms += plan.predicted_ms
            budget = BASE_BYTES + store.stacks_bytes + CODE_BYTES + self.now.own + self.value_bytes + self.input_bytes
            points.append(Point(budget + pinned + slots + shared, pinned + slots, shared, self.now.own, ms))
        return points

    def adopt(self, point: Point) -> Callable[[], None]:
        """Plan again for a point at the next run; return what takes that back."""
        before = self._limit

        def back() -> None:
            self._limit = before
            self._count()

        try:
            self._limit = point.memory
            if not point.shared or abs(point.pinned - self.now.pinned) > self.now.pinned // NEAR:
                self._shut(forgets=point == self.smallest())
        except BaseException:
            back()
            raise
        return back

    @property
    def is_bound(self) -> bool:
        """True: runs bind what they need."""
        return True

    def bind(self, pinned_at: int, shared_at: int) -> None:
        """Do nothing: runs bind what they need."""

    def unbind(self) -> None:
        """Unbind all programs; weights stay in the arena until something else needs their place."""
        self._repeats = None
        self._open.unbind()

    def _shut(self, *, forgets: bool = False) -> None:
        """Close what is open, and drop its plans, or all that is kept."""
        self._repeats = None
        if forgets:
            for key in list(self._first):
                self._drop(key)
            self._open.forget_all()
            self._open.segments.drop_templates()
            self._recorder.keep_templates(wanted=False)
        self._open.shut()
        self._count()

    def needed_bytes(self, floor_bytes: int) -> int:
        """Return the smallest budget of its last run beside others that need so much of the shared part of the arena; 0
        before the first.
        """
        segments = self._open.segments
        before, segments.floor_bytes = segments.floor_bytes, floor_bytes
        try:
            return self._open.minimum_bytes if self.last_run else 0
        finally:
            segments.floor_bytes = before

    @property
    def files(self) -> tuple[OpenFile, ...]:
        """Files that the programs read."""
        return self._file.files

    def drop_values(self) -> None:
        """Drop arrays that are kept for the next outputs."""
        self._results.clear()

    # ---- what the session asks for ----

    @property
    def memory(self) -> int | None:
        """The pool's budget."""
        return self._shared.memory

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Return all outputs, in the model's order; ``into``: the array of each, None where it is to be made. Where the
        budget is too small for them, the others give back. Raises BudgetError, SessionError, GraphError, and ValueError
        where an array does not fit.
        """
        before, self.input_bytes = self.input_bytes, sum(array.nbytes for array in inputs)
        try:
            return self._run_in_pool(inputs, into)
        except (BudgetError, GraphError):  # what is refused has broken nothing; its inputs and values go
            self.input_bytes = before
            self._shared.refused(self._seat)
            self._count()
            for forgets in (False, True):  # what it has kept may take more than was there before
                if self.memory is not None and self._shared.session_bytes > self.memory:
                    self._shut(forgets=forgets)
            raise
        except BaseException:
            self.input_bytes = before
            self._shut()  # the pool counted what the last whole run left open, not what this one has so far
            raise

    def _run_in_pool(self, inputs: Sequence[Array], into: Sequence[Array | None] | None) -> list[Array]:
        self._shared.begin(self._seat)
        refused, was_refused = 0, False
        for number in range(ATTEMPTS):
            self._take_budget()
            try:
                outputs = self._run_inside(inputs, into)
                break
            except BudgetError as error:
                refused = error.minimum
            finally:
                self._count()
            if number >= 3 or (number == 2 and not self._shared.has_collected()):
                told = self._shared.refusal(self._seat, refused)
                if told.minimum > told.budget:
                    raise told
                if number == ATTEMPTS - 1:
                    raise self._shared.refusal(self._seat, refused + told.budget - told.minimum + MORE_BYTES)
            self._limit = self._raised(refused)
            self._shared.make_room(self._seat, refused, all_of_it=was_refused)
            was_refused = True
        self._shared.end(self._seat, made(outputs, into))
        return outputs

    def _raised(self, refused: int) -> int | None:
        """Return the limit after a refusal. Points are estimates: what the pool chose may be short by a little, and
        without a limit the run would take all that the others left, which they then take back, run by run.
        """
        left = self._shared.left_bytes(self._seat)
        was_chosen = self._limit is not None and left is not None and self._limit < refused <= left
        return refused if was_chosen else None

    def _run_inside(self, inputs: Sequence[Array], into: Sequence[Array | None] | None) -> list[Array]:
        self._is_inside = True
        try:
            return super().run(inputs, into)
        finally:
            self._is_inside = False

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last; None, without a run, where the feed or the budget is another."""
        if self._is_inside or self._repeats is None:
            return super().repeat(feed)
        self._shared.begin(self._seat)
        self._take_budget()
        outputs = super().repeat(feed)
        if outputs is not None:
            self._shared.end(self._seat, outputs)
        return outputs

    def _take_budget(self) -> None:
        """Take the budget that the others leave; close what is open where it does not fit, or where much more would."""
        left = self._shared.left_bytes(self._seat)
        if left is not None and self._limit is not None:
            left = min(left, self._limit)
        fits = self._open.take_budget(left, self._shared.floor_bytes(self._seat), self.value_bytes + self.input_bytes)
        grew = left is not None and self._planned_for is not None and left > AGAIN * self._planned_for
        if not fits or grew:
            self._shut()
        if not self._open.has_open:
            self._planned_for = left

    def rebudget(self, memory: int | None) -> None:
        """Refuse: the budget is the pool's."""
        raise SessionError("the session's memory is its pool's: set that")
