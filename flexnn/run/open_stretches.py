"""Stretches of a session as runs need them: planned, open, and run.

Stretches of other shapes stay open beside those of the last run as long as they share their pinned weights, and are
closed when a team needs their room.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from flexnn import _core
from flexnn.graph.ir import Array
from flexnn.planning import BudgetError, Plan
from flexnn.regions import Segment, Stretch

from .arena import Home
from .bound_segment import BoundSegment
from .engine import session_error
from .model_file import ModelFile
from .needs import live_bytes
from .options import RunOptions
from .recording import ReadyStretch, ready
from .room import Room
from .statistics import machine_statistics
from .teams import at_once, segments_of

FREED_BYTES = 1 << 20
"""Bytes of values outside the arena from which freed memory is given back before the next run, or a stretch that has no
room beside it.
"""


class OpenStretches(Room):
    """The stretches of a session, and the engine that runs them."""

    def __init__(self, file: ModelFile, options: RunOptions, home: Home | None = None) -> None:
        super().__init__(file, options, home)
        self._spent = [0, 0, 0]
        self.figures: tuple[int, ...] = ()
        """FIGURES of the last complete run; empty before the first."""
        self.has_more = False
        """Whether more or other stretches are kept than when this was set back."""
        self._last: ReadyStretch | None = None
        """The stretch that ran last."""
        self.is_full = False
        """Whether stacks found no room for more rows."""
        self._is_settled = True
        """Whether all that is open is planned for the budget, placed and recorded."""
        self._enough = (0, 0)
        """Most bytes of outputs beside which a run like the last was sure to have room, and the budget then."""
        self._prepared: list[BoundSegment] = []
        """Segments that were opened before the first run, for the weights and plans that runs share with them."""
        self._rehearsed: Stretch | None = None  # opened before the first run, too

    def prepare(self, segments: Sequence[Segment]) -> None:
        """Plan segments that no run has met yet, without a limit; open the first of any that share weights. Raises
        SessionError.
        """
        self._is_settled = False
        self._prepared = [self.segments.of(segment) for segment in segments]
        for bound in self._prepared:
            self.segments.planned(bound, None, {})
        for bound in self._prepared if self._measure(self._prepared) else ():
            self.segments.planned(bound, None, {})
        opened = dict.fromkeys({bound.pins: bound for bound in reversed(self._prepared)}.values())
        self._open.update(opened)
        self._arrange(list(opened))
        self._engine.back()
        self._is_settled = True

    def rehearse(self, stretch: Stretch, values: Mapping[str, Array]) -> None:
        """Open a stretch beside what was prepared. If the first run does not run it, it goes. Raises SessionError."""
        self._rehearsed, _ = stretch, self.ready(stretch, values)
        self._used.clear()
        self._begin_team()
        self._last = None

    def _drop_prepared(self) -> None:
        """Close what was prepared; its plans serve the segments of its templates."""
        if self._rehearsed is not None and not self.is_used(self._rehearsed):
            self.forget(self._rehearsed)
        self._rehearsed = None
        for bound in self._prepared:
            self._close(bound)
            self.segments.pop(bound.segment)
        if self._prepared:
            self._prepared.clear()
            self._engine.trim(keep=True)

    def start(self) -> None:
        """Begin a run of the model."""
        self._settle()
        self._used.clear()
        self._begin_team()
        self._give_back_freed()
        self._spent = [0, 0, 0]
        self.needs.begin()
        self.is_full = False

    def _give_back_freed(self, found: ReadyStretch | None = None) -> None:
        """Give back memory of values that are gone, which the C library keeps: before a stretch only where the budget
        leaves it no room beside it, or may not.
        """
        freed, memory = self.needs.freed_bytes, self.segments.memory
        if freed <= FREED_BYTES or (found is not None and memory is None):
            return
        if found is not None and memory is not None:
            is_known = found.capacities.keys() == found.times.keys()
            taken = self.beside_values() + found.values_bytes + found.stacks_bytes
            if is_known and taken + freed <= memory:
                return
        self._engine.trim(keep=True)
        self.needs.freed_bytes = 0

    def run(self, stretch: ReadyStretch, buffers: Sequence[Array], *, goes_on: bool = False) -> int:
        """Run an open stretch; return the entry that stopped it, or -1. Raises SessionError."""
        recording = stretch.recording
        assert recording is not None
        try:
            stopped, run_ns, stall_ns, bytes_read = recording.run(buffers, goes_on)
        except _core.EngineError as error:
            raise session_error(error, self._explain(stretch, error)) from None
        spent = self._spent
        spent[0] += run_ns
        spent[1] += stall_ns
        spent[2] += bytes_read
        self.needs.run(stretch)
        for segment in stretch.segments:
            if segment.watch is not None:
                segment.watch.ran(segment.spans)
        return stopped

    def take_up(self, stretch: Stretch | None) -> ReadyStretch | None:
        """Make a stretch that was all of a run before the last run's; None where it is not open, has no room, or
        something would be closed for it.
        """
        found = self._ready.get(stretch) if stretch is not None else None
        if found is None or found.signature is None or found.recording is None or not self._is_settled:
            return None
        self._gives_more(found)
        if not self._has_room(found):
            return None
        if not self._may_stay({segment.pins for segment in found.segments}, found.segments):
            return None
        self._touch(found)
        self._used.clear()
        self._used[found] = None
        self._is_parted, self._usual, self._usual_keys, self._last = False, [found], {found}, found
        self.needs.begin()
        self.needs.run(found)
        return found

    def _touch(self, found: ReadyStretch) -> None:
        """Make a stretch the one that is used last."""
        self._ready.move_to_end(found.stretch)
        for segment in found.segments:
            self._open.move_to_end(segment)

    def repeat(
        self, stretch: ReadyStretch, feed: Mapping[str, Any], into: list[Array] | None = None
    ) -> list[Array] | None:
        """Run the stretch that was all of the last run again; return the model's outputs, in ``into`` (those of the
        stretch) if given. None, without a run, where it is not open or the feed is not like that run's. Raises
        SessionError.
        """
        recording, signature = stretch.recording, stretch.signature
        if recording is None or signature is None or not self._is_settled:
            return None
        try:
            repeated = recording.repeat(signature, feed, into)
        except _core.EngineError as error:
            raise session_error(error, self._explain(stretch, error)) from None
        if repeated is None:
            return None
        for segment in stretch.segments:
            if segment.watch is not None:
                segment.watch.ran(segment.spans)
        if self._home is None:
            self.needs.given_bytes = stretch.own_bytes
        outputs, self.figures = repeated
        return outputs if stretch.order is None else [outputs[number] for number in stretch.order]

    def give(self, nbytes: int) -> None:
        """Count the outputs of a complete run, which the caller may hold while the next one runs. Raises BudgetError
        where that one has no room then. A pool looks which of them are held.
        """
        memory, before = self.segments.memory, self.needs.given_bytes
        if self._home is not None:
            return
        self.needs.given_bytes = (self._options.output_sets - 1) * nbytes
        if memory is None or self.needs.given_bytes <= before:
            return
        stays = all(map(self._is_open, self._used))
        fits = stays and self.beside_values() + self.needs.most_values(self._used) <= memory
        is_sure = fits and self.needs.given_bytes <= self._enough[0] and memory >= self._enough[1]
        is_new = any(found.held_beside(self.needs.given_bytes) > found.given_bytes for found in self._used)
        if (is_new and not is_sure) or not fits:
            if self.minimum_bytes > memory:
                raise BudgetError(self.minimum_bytes, memory)
            self._enough = self.needs.given_bytes, memory
        if not fits:
            self.hold(0, 0)

    def finish(self) -> None:
        """End a complete run. Segments that it did not need are closed, unless they share pinned weights with it."""
        self._drop_prepared()
        self.figures = tuple(self._spent)
        if self._is_crowded:  # with room for stacks as long as these, plans may take the rest
            self._is_crowded = False
            self.close_all()
            self.segments.drop_plans()
        if self._used.keys() == self._usual_keys:
            return
        self._is_parted, self._usual, self._usual_keys = False, list(self._used), set(self._used)
        needed = {segment for used in self._usual for segment in used.segments}
        pins = {segment.pins for segment in needed if segment.base is not None}
        if self.divides_anew(self._usual) or self._may_stay(pins, needed):
            return
        most = self._most_working(needed)
        unneeded = [
            segment
            for segment in self._open
            if segment not in needed
            and (segment.pins not in pins or (most is not None and segment.working_bytes > most))
        ]
        for segment in unneeded:
            self._close(segment)
        if unneeded:
            large = {segment for segment in unneeded if segment.pins in pins}
            for found in [found for found in self._ready.values() if found.segments and large >= set(found.segments)]:
                self.forget(found.stretch)  # it is soon recorded again, and planned where its sizes need that
                self.segments.drop_unused_bases()
            self._engine.trim()
        if unneeded or self._counted != self._counts():
            self._count_open()

    def change(self) -> None:
        """Begin a run of other shapes: what those before needed is not this run's team."""
        self._forget_team()

    def close_all(self) -> None:
        """Close all segments; their weights stay in the arena until something needs their place."""
        self._close_all()
        self._engine.trim(keep=True)
        self._forget_team()

    def crowd(self) -> bool:
        """Let plans take the least, if stacks found no room beside them; return whether that is new."""
        if self._is_crowded or not self.is_full:
            self._is_crowded = False
            return False
        self._is_crowded = True
        self.segments.drop_plans()
        self.close_all()
        return True

    def left(self, live_bytes: int) -> int | None:
        """Return the bytes that the budget leaves beside ``live_bytes`` of live values; None: there is no limit."""
        memory = self.segments.memory
        if memory is None:
            return None
        return memory - self.needs.held_bytes - self.needs.given_bytes - live_bytes - self.beside_values()

    def hold(self, nbytes: int, live_bytes: int) -> None:
        """Count values that are about to be made outside the arena, beside ``live_bytes`` of live ones. Raises
        BudgetError where they do not fit, even with nothing else open.
        """
        memory = self.segments.memory
        self.needs.count(live_bytes + nbytes)
        if memory is None:
            return
        needed = self.needs.held_bytes + self.needs.given_bytes + live_bytes + nbytes
        while needed + self.beside_values() > memory:
            used = {segment for found in self._used for segment in found.segments} if self._open else set()
            unused = [segment for segment in self._open if segment not in used]
            if unused or self._open:
                closed = unused or list(self._open)
                for segment in closed[: at_once(closed)]:
                    self._close(segment)
                self._engine.trim()
            elif not self._drop_oldest([]):
                raise BudgetError(needed + self.beside_values(), memory)

    def ready(self, stretch: Stretch, live: Mapping[str, Array]) -> ReadyStretch:
        """Return a stretch, planned and open beside the live values. Raises BudgetError, SessionError."""
        found = self._ready.get(stretch)
        if found is None:
            found = ready(stretch, [self.segments.of(part) for part in stretch.tape.segments])
            self._ready[stretch] = found
            self.has_more = True
        is_new = found.recording is None or self.needs.held_bytes > found.held_bytes
        if is_new:
            found.held_bytes = self.needs.held_bytes
            found.own_bytes = found.given_bytes = (self._options.output_sets - 1) * found.output_bytes
            found.values_bytes = found.held_bytes + live_bytes(live) + found.output_bytes + found.given_bytes
        if self._gives_more(found) or found is not self._last:
            is_new = is_new or not self._has_room(found)
        if is_new:
            was_settled, self._is_settled = self._is_settled, False
            if not (was_settled and self._goes_beside(found)):
                self._make_room(found)
            self._record(found)
            self._is_settled = True
        elif found is not self._last:
            self._touch(found)
        self._give_back_freed(found)
        self._last = found
        self._used[found] = self._team[found] = None
        return found

    def _gives_more(self, found: ReadyStretch) -> bool:
        """Count outputs that the caller may hold, where a stretch was planned beside fewer; return whether it was."""
        more = found.held_beside(self.needs.given_bytes) - found.given_bytes
        if more > 0:
            found.given_bytes, found.values_bytes = found.given_bytes + more, found.values_bytes + more
        return more > 0

    def _has_room(self, found: ReadyStretch) -> bool:
        """Return whether the values of an open stretch fit beside all that is open."""
        memory = self.segments.memory
        return memory is None or sum(self._opened.values()) + found.values_bytes <= memory

    @property
    def minimum_bytes(self) -> int:
        """Smallest budget of the last run."""
        return self.needs.smallest

    @property
    def only(self) -> ReadyStretch | None:
        """The stretch that was all of the last run, if it is still open; None if there is no such stretch."""
        found = self._last if len(self._used) == 1 else None
        return found if found is not None and found.recording is not None else None

    @property
    def plans(self) -> list[Plan]:
        """Plans of the segments of the last run."""
        segments = [segment for segment in segments_of(list(self._used)) if segment.base is not None]
        around = self._around(list(self._used), segments, {segment.pins for segment in segments})
        return [self.segments.settled(segment, around) for segment in segments]

    def empty_plan(self) -> Plan:
        """Return the plan of a run that numpy computed alone."""
        from .region_plan import empty_plan  # few models have no part that the core computes

        return empty_plan(self.segments.setting.threads, self.segments.memory, self.bytes())

    def rebudget(self, memory: int | None) -> None:
        """Plan the stretches of the last run again for another budget. If that fails, the old budget stays, and all
        stretches are closed.
        """
        before, self._is_settled, self._is_parted = self.segments.memory, False, False
        self._drop_prepared()
        try:
            self.segments.memory = memory
            self._engine.loosen(is_loose=memory is None)
            again = [found for found in self._usual if self._is_open(found)]
            self._close_all()
            self.segments.drop_plans()
            with contextlib.suppress(BudgetError):
                if again:
                    self._plan_again(again)
            self._engine.trim()
        except BaseException:
            self.segments.memory = before
            self._engine.loosen(is_loose=before is None)
            self.segments.drop_plans()
            if self._engine.core.rest(patient=False):
                self._settle()
            raise
        self._is_settled = True

    def _plan_again(self, again: Sequence[ReadyStretch]) -> None:
        """Plan, place and record stretches that were open before. Raises BudgetError."""
        for segment in segments_of(again):
            segment.is_measured = False  # streaming depends on more than keeping all weights
        for found in again:
            if found.recording is None and not found.stretch.is_forgotten:
                self._make_room(found)
                self._record(found)

    def _settle(self) -> None:
        """Close what was broken off while it was planned and placed."""
        if not self._is_settled:
            self._close_all()
            self._engine.trim()
            self._is_settled = True

    def bytes(self, *, again: bool = True) -> dict[str, int]:
        """Bytes of the session, by what takes them; counted ``again``, or only where they may be others."""
        found = (self._opened_bytes() if again else self._counted_bytes()) | {"values": 0}
        opened = [found for found in self._used if self._is_open(found)]
        values, memory = self.needs.most_values(opened), self.segments.memory
        if memory is not None:  # they were there when less was open, or will be
            values = min(values, memory - sum(found.values()))
        found["values"] = max(values, 0)
        return found

    def statistics(self) -> dict[str, Any]:
        """Return figures of the open stretches (Session.statistics)."""
        pinning = {"kept": 0, "moved": 0, "read": 0}
        for segment in self._open:
            if segment.bound is not None:
                for name, size in segment.bound.pinning.items():
                    pinning[name] += size
        return {
            "segments": len(self.segments),
            "segments_of_last_run": len({segment for used in self._used for segment in used.segments}),
            "kept_nodes": self.kept_nodes,
            "bytes": self.bytes(),
            "engine_bytes": self._engine.nbytes,
            "pinning": pinning,
            "machine": machine_statistics(self.segments.setting.machine),
        }

    def close(self, *, learn: bool) -> None:
        """Give everything back. With ``learn``, keep what runs showed about the machine for later sessions."""
        self._leave_engine()
        segments = [segment for used in self._usual for segment in used.segments]
        if learn and self._parts is not None and segments:
            longest = max(segments, key=lambda segment: segment.base.plan.predicted_ms if segment.base else 0.0)
            if longest.watch is not None and longest.base is not None and longest.is_own:
                self._parts.learn(longest.watch, longest.graph, longest.planner.costs, longest.base.plan)
