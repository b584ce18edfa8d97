"""Stretches open in an engine: their segments planned together for a budget, placed in one arena, and recorded.

Each segment is a program of its own. Pinned parts of all open programs lie side by side in the arena; all share the
working part, which is as big as the largest needs, and the slots behind it. The stretches of one run are a team: they
are planned together, so that none has to be closed for another. Others are closed when a team needs their room.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from flexnn import _core
from flexnn.graph.ir import Array, Graph
from flexnn.measure import Watch
from flexnn.measure.parts import Parts
from flexnn.planning import BudgetError, MachineProfile, Plan
from flexnn.planning.overhead import BASE_BYTES, NODE_BYTES
from flexnn.planning.relocate import relocated
from flexnn.planning.types import align_up
from flexnn.regions import Stretch

from .engine import BoundProgram, Engine, SessionError
from .growing import GUESS, Growing
from .model_file import ModelFile
from .needs import Needs, alone_bytes, least_bytes, rounding_bytes
from .options import RunOptions
from .recording import ReadyStretch, ready
from .segments import BoundSegment, BoundSegments
from .statistics import machine_statistics


class OpenStretches:
    """The stretches of a session, and the engine that runs them."""

    def __init__(self, file: ModelFile, options: RunOptions) -> None:
        stored = file.open_model
        assert stored is not None
        self._options = options
        self._parts: Parts | None = None
        if options.measures:
            self._parts = Parts(file.artifact, file.direct_fd, options.threads, options.progress, options.throttled)
        machine = self._parts.machine if self._parts else options.throttled(MachineProfile.measure())
        setting = options.setting(machine, file.io_align)
        self.segments = BoundSegments(stored, options.memory, setting, options.rewrite)
        self._ready: dict[Stretch, ReadyStretch] = {}
        """Stretches with their records; the one used last at the end."""
        self._open: dict[BoundSegment, None] = {}
        """Segments with a plan and a place, in the order in which they were opened."""
        self._used: dict[ReadyStretch, None] = {}
        """Stretches of the run under way, or of the last."""
        self._usual: list[ReadyStretch] = []
        """Stretches of the last complete run."""
        self._usual_keys: set[ReadyStretch] = set()
        self._spent = [0, 0, 0]
        self._slots_at = 0
        """Arena offset of the slots of stretches."""
        self.needs = Needs(self.segments)
        """Needs of the run under way, or of the last."""
        self._is_full = self._is_crowded = False
        """Whether stacks found no room for more rows, and whether plans take the least for that."""
        self._engine = Engine(file.artifact, options.switches(file.direct_fd), trace=int(options.measures))

    # ---- runs ----

    def start(self) -> None:
        """Begin a run of the model."""
        self._used.clear()
        self._spent = [0, 0, 0]
        self.needs.begin()
        self._is_full = False

    def run(self, stretch: ReadyStretch, buffers: Sequence[Array], *, goes_on: bool = False) -> int:
        """Run an open stretch; return the entry that stopped it, or -1. Raises SessionError."""
        recording = stretch.recording
        assert recording is not None
        try:
            stopped, run_ns, stall_ns, bytes_read = recording.run(buffers, goes_on)
        except _core.EngineError as error:
            raise SessionError(self._explain(stretch, error)) from None
        spent = self._spent
        spent[0] += run_ns
        spent[1] += stall_ns
        spent[2] += bytes_read
        self.needs.run(stretch)
        for segment in stretch.segments:
            if segment.watch is not None:
                segment.watch.ran(segment.spans)
        return stopped

    def finish(self) -> dict[str, int]:
        """End a complete run; return its figures. Stretches that it did not need are closed."""
        spent = dict(zip(("run_ns", "stall_ns", "bytes_read"), self._spent, strict=True))
        if self._is_crowded:  # with room for stacks as long as these, plans may take the rest
            self._is_crowded = False
            self.change()
        if self._used.keys() == self._usual_keys:
            return spent
        self._usual, self._usual_keys = list(self._used), set(self._used)
        needed = {segment for used in self._usual for segment in used.segments}
        if len(needed) < len(self._open):
            for segment in [segment for segment in self._open if segment not in needed]:
                self._close(segment)
            self._engine.trim()
        return spent

    def change(self) -> None:
        """Make room for other shapes: what those before needed must not stay beside what these need."""
        for segment in list(self._open):
            self._close(segment)
        self._engine.trim(keep=True)
        self._usual, self._usual_keys = [], set()

    def crowd(self) -> bool:
        """Let plans take the least, if stacks found no room beside them; return whether that is new."""
        if self._is_crowded or not self._is_full:
            self._is_crowded = False
            return False
        self._is_crowded = True
        self.change()
        return True

    def left(self, live_bytes: int) -> int | None:
        """Return the bytes that the budget leaves beside ``live_bytes`` of live values; None: there is no limit."""
        memory = self.segments.memory
        return None if memory is None else memory - self.needs.held_bytes - live_bytes - self._beside_values()

    def hold(self, nbytes: int, live_bytes: int) -> None:
        """Count values that are about to be made outside the arena, beside ``live_bytes`` of live ones. Raises
        BudgetError where they do not fit, even with nothing else open.
        """
        memory = self.segments.memory
        self.needs.count(live_bytes + nbytes)
        if memory is None:
            return
        needed = self.needs.held_bytes + live_bytes + nbytes
        while needed + self._beside_values() > memory:
            unused = [segment for segment in self._open if not any(segment in used.segments for used in self._used)]
            if unused or self._open:
                self._close((unused or list(self._open))[0])
                self._engine.trim()
            elif not self._drop_oldest([]):
                raise BudgetError(needed + self._beside_values(), memory)

    def _beside_values(self) -> int:
        return sum(size for part, size in self.bytes().items() if part != "values")

    def room(self, found: ReadyStretch, stacks_bytes: int) -> int | None:
        """Return the bytes that the budget leaves to one more stack of a stretch; None: there is no limit."""
        memory = self.segments.memory
        if memory is None:
            return None
        return memory - max(self._beside_values() + found.values_bytes, found.alone_bytes) - stacks_bytes

    def grow(self, found: ReadyStretch, grown: Growing, stacks_bytes: int) -> None:
        """Make a stack of a stretch twice as large, or as large as the budget allows, which leaves ``stacks_bytes`` to
        all its stacks now. Raises BudgetError.
        """
        wanted = max(2 * grown.nbytes, grown.nbytes + grown.row_bytes)
        room, memory = self.room(found, stacks_bytes - grown.times * grown.nbytes), self.segments.memory
        if room is not None and memory is not None:
            wanted = min(wanted, room // grown.times)
            if wanted < grown.nbytes + grown.row_bytes:
                self._is_full = True
                raise BudgetError(memory - room + grown.times * (GUESS * grown.nbytes + grown.row_bytes), memory)
        try:
            grown.grow(wanted)
        except (OSError, MemoryError):
            raise SessionError(f"the system has no memory for a stack of {wanted} bytes") from None

    # ---- opening ----

    def ready(self, stretch: Stretch, live: Mapping[str, Array]) -> ReadyStretch:
        """Return a stretch, planned and open beside the live values. Raises BudgetError, SessionError."""
        found = self._ready.get(stretch)
        if found is None:
            found = self._ready[stretch] = ready(stretch, [self.segments.of(part) for part in stretch.tape.segments])
            found.times = dict.fromkeys(found.grown.values(), 1 if stretch.region.path else 2)
        if found.recording is None or self.needs.held_bytes > found.held_bytes:
            found.held_bytes = self.needs.held_bytes
            found.values_bytes = self.needs.held_bytes + self._values(found, live)
            found.alone_bytes = alone_bytes(self.segments, found)
            self._make_room(found)
            self._record(found)
        self._used[found] = None
        return found

    def _values(self, found: ReadyStretch, live: Mapping[str, Array]) -> int:
        """Return the bytes of live values and of a stretch's outputs."""
        times = 1 if self._options.reuse_outputs else 2
        outputs = sum(o.dtype.itemsize * prod(o.shape) for o in found.stretch.outputs if o.counter < 0)
        return sum({id(array): array.nbytes for array in live.values()}.values()) + times * outputs

    def _make_room(self, found: ReadyStretch) -> None:
        """Plan and place a stretch with its team. Close others and drop kept stretches where that is needed; raise
        BudgetError if it is not enough.
        """
        while self._is_crowded and found.grown and self._drop_oldest([found]):
            pass
        team = [*self._usual] if found in self._usual else [*(used for used in self._used if used != found), found]
        self._measure(found)
        while True:
            try:
                self._plan_team(team)
                break
            except BudgetError:
                mine = {segment for member in team for segment in member.segments}
                others = [segment for segment in self._open if segment not in mine]
                if others:
                    self._close(others[0])
                elif len(team) > 1:
                    team = [found]
                    for segment in [segment for segment in self._open if segment not in found.segments]:
                        self._close(segment)
                elif not self._drop_oldest(team):
                    raise
        for other in self._ready.values():  # one without segments does not close with them
            if other not in team and not other.segments:
                other.close()
        for segment in (segment for member in team for segment in member.segments):
            self._open.setdefault(segment)
        self._arrange()

    def _plan_team(self, team: Sequence[ReadyStretch]) -> None:
        """Plan the segments of stretches that are to be open together."""
        segments = list(dict.fromkeys(segment for member in team for segment in member.segments))
        others = [segment for segment in self._open if segment not in segments]
        around = self._around(team, segments, others)
        memory = self.segments.memory
        owns: list[int | None] = [None] * len(segments)
        if memory is not None:
            owns = list(self._shares(segments, memory - sum(around.values())))
        for segment, own in zip(segments, owns, strict=True):
            self.segments.planned(segment, own, around)

    def _around(
        self, team: Sequence[ReadyStretch], segments: Sequence[BoundSegment], others: Sequence[BoundSegment]
    ) -> dict[str, int]:
        """Return the bytes beside a team's plans, by what takes them."""
        align = self.segments.setting.io_align
        kept = sum(len(other.graph.nodes) for other in self.segments if other not in segments and other not in others)
        return {
            "values": max((member.values_bytes + member.stacks_bytes for member in team), default=0)
            + align_up(max((member.slot_bytes for member in team), default=0), align),
            "model": self.segments.model_bytes,
            "programs": sum(other.pinned_bytes + other.program_bytes for other in others)
            + sum(member.nbytes for member in self._ready.values())
            + rounding_bytes(align, len(segments) + len(others)),
            "kept": NODE_BYTES * kept,
        }

    def _shares(self, segments: Sequence[BoundSegment], left: int) -> list[int]:
        """Return the budget of each segment out of the bytes that are ``left``: its smallest, and a part of the rest in
        proportion to its weights. Raises BudgetError.
        """
        minimum = [segment.planner.minimum - self.segments.io_bytes(segment) for segment in segments]
        spare = left - least_bytes(self.segments, segments)
        if spare < 0:
            memory = self.segments.memory or 0
            raise BudgetError(memory - spare, memory)
        spare = 0 if self._is_crowded else spare
        weights = [sum(weight.nbytes for weight in segment.graph.weights) + 1 for segment in segments]
        return [least + spare * weight // sum(weights) for least, weight in zip(minimum, weights, strict=True)]

    @property
    def minimum_bytes(self) -> int:
        """Smallest budget of the last run."""
        return self.needs.smallest

    def _drop_oldest(self, team: Sequence[ReadyStretch]) -> bool:
        """Forget the stretch that was used longest ago, but none of the team, and one of the run under way only where
        there is no other; return whether there was one.
        """
        others = [stretch for stretch, found in self._ready.items() if found not in team]
        if others:
            self.forget(next((other for other in others if self._ready[other] not in self._used), others[0]))
        return bool(others)

    @property
    def kept_nodes(self) -> int:
        """Internal nodes of all segments."""
        return sum(len(segment.graph.nodes) for segment in self.segments)

    def is_used(self, stretch: Stretch) -> bool:
        """Return whether the last run, or the one under way, ran a stretch."""
        return self._ready.get(stretch) in self._used

    def forget(self, stretch: Stretch) -> None:
        """Close a stretch, and drop its records and those of its segments."""
        stretch.is_forgotten = True
        found = self._ready.pop(stretch, None)
        if found is None:
            return
        found.close()
        self._used.pop(found, None)
        if found in self._usual_keys:
            self._usual.remove(found)
            self._usual_keys.remove(found)
        for part, segment in zip(stretch.tape.segments, found.segments, strict=True):
            self._close(segment)
            self.segments.pop(part)

    def _measure(self, found: ReadyStretch) -> None:
        """Measure the operators of new segments that were never measured, in the memory of all open segments."""
        if self._parts is None:
            return
        for segment in found.segments:
            if segment.is_measured:
                continue
            segment.is_measured = True
            if not self._parts.lacks(segment.planner.tightest.graph, segment.planner.tightest.costs):
                continue
            for other in list(self._open):
                self._close(other)
            self._engine.trim()
            with contextlib.suppress(BudgetError):  # planning says it, after all else was tried
                self._plan_team([found])
                assert segment.plan is not None
                self._parts.measure(segment.graph, segment.plan.arena_bytes)
                self.segments.know(self._parts.machine)

    # ---- places ----

    def _arrange(self) -> None:
        """Give every open segment its place, and bind those that are new or move. The order keeps them from overwriting
        weights that another segment will find there: those that move up, highest first; those that move down; new ones.
        """
        align = self.segments.setting.io_align
        working = max((segment.working_bytes for segment in self._open), default=0)
        slots = max((found.slot_bytes for found in self._ready.values() if self._is_open(found)), default=0)
        at, places = working + align_up(slots, align), {}
        for number, segment in enumerate(self._open):  # neighbours work at opposite ends, where they leave room
            places[segment] = (at, working - segment.working_bytes if number % 2 else 0)
            at += segment.pinned_bytes
        changed = [segment for segment in self._open if segment.place != places[segment] or not segment.is_bound]
        up = [segment for segment in changed if segment.place and segment.place[0] < places[segment][0]]
        down = [segment for segment in changed if segment.place and segment not in up]
        new = [segment for segment in changed if not segment.place]
        try:
            for found in self._ready.values():
                if found.recording is not None and (found.slots_at != working or set(found.segments) & set(changed)):
                    found.close()
            for segment in changed:
                self._unbind(segment)
            for segment in (*reversed(up), *down, *new):
                segment.place = places[segment]
                self._bind(segment, *segment.place)
            self._slots_at = working
            self._engine.trim()
        except BaseException:
            for segment in list(self._open):
                self._close(segment)
            self._engine.trim()
            raise

    def _is_open(self, found: ReadyStretch) -> bool:
        if not found.segments:
            return found.recording is not None
        return all(segment in self._open for segment in found.segments)

    def _bind(self, segment: BoundSegment, pinned_at: int, working_at: int) -> None:
        plan = segment.plan
        assert plan is not None
        split = plan.arena_bytes - plan.working_bytes
        program = relocated(plan.program, split, pinned_at, working_at - split)
        segment.bound = BoundProgram(self._engine, plan, program)
        if self._parts is not None and (segment.watch is None or segment.watch.program is not plan.program):
            segment.watch = Watch(plan.program, self.segments.setting.machine)

    def _record(self, found: ReadyStretch) -> None:
        """Hand an open stretch to the engine."""
        if found.recording is not None:
            return
        programs = [segment.bound.core for segment in found.segments if segment.bound is not None]
        found.slots_at = self._slots_at
        try:
            found.recording = _core.Recording(
                self._engine.core,
                programs=programs,
                entries=found.entries,
                slots=found.placed(found.slots_at),
                operands=found.operands,
                buffer_count=found.buffer_count,
                input_count=found.buffer_count - len(found.stretch.outputs),
                counter_count=found.stretch.tape.counters,
                looks_ahead=self._options.prefetches,
            )
        except _core.EngineError as error:
            raise SessionError(str(error)) from None

    def _unbind(self, segment: BoundSegment) -> None:
        if segment.bound is not None:
            for found in self._ready.values():
                if found.recording is not None and segment in found.segments:
                    found.close()
            segment.bound.close()
            segment.bound = None

    def _close(self, segment: BoundSegment) -> None:
        self._unbind(segment)
        self._open.pop(segment, None)

    # ---- the session's figures ----

    @property
    def plans(self) -> list[Plan]:
        """Plans of the segments of the last run."""
        return [segment.plan for used in self._used for segment in used.segments if segment.plan is not None]

    def empty_plan(self) -> Plan:
        """Return the plan of a run that numpy computed alone."""
        from .region_plan import no_program  # few models have no part that the core computes

        return Plan(
            graph=Graph(),
            program=no_program(self.segments.setting.threads),
            memory=self.segments.memory,
            minimum_memory=0,
            overhead=self.bytes(),
            predicted_ms=0.0,
            stall_ms=0.0,
            bound_ms=0.0,
            plan_ms=0.0,
            activation_bytes=0,
            working_bytes=0,
        )

    def rebudget(self, memory: int | None) -> None:
        """Plan the stretches of the last run again for another budget."""
        self.segments.memory = memory
        again = [found for found in self._usual if self._is_open(found)]
        for segment in list(self._open):
            self._close(segment)
        with contextlib.suppress(BudgetError):
            if again:
                self._plan_team(again)
                for found in again:
                    self._open.update(dict.fromkeys(found.segments))
                self._arrange()
                for found in again:
                    self._record(found)
        self._engine.trim()

    def bytes(self) -> dict[str, int]:
        """Bytes of the session, by what takes them."""
        align = self.segments.setting.io_align
        opened = [found for found in self._ready.values() if self._is_open(found)]
        working = max((segment.working_bytes for segment in self._open), default=0)
        slots = align_up(max((found.slot_bytes for found in opened), default=0), align)
        found = {
            "model": self.segments.model_bytes,
            "base": BASE_BYTES,
            "stacks": self.segments.stacks_bytes if self._open else 0,
            "values": 0,
            "arena": working + slots + sum(segment.pinned_bytes for segment in self._open),
            "programs": sum(segment.program_bytes for segment in self._open)
            + sum(found.nbytes for found in self._ready.values()),
        }
        held, memory = self.needs.values_bytes, self.segments.memory
        if memory is not None:  # they were there when less was open
            held = min(held, memory - sum(found.values()))
        found["values"] = max([held, 0, *(each.values_bytes + each.stacks_bytes for each in opened)])
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
        self._engine.close()
        segments = [segment for used in self._usual for segment in used.segments]
        if learn and self._parts is not None and segments:
            longest = max(segments, key=lambda segment: segment.plan.predicted_ms if segment.plan else 0.0)
            if longest.watch is not None:
                self._parts.learn(longest.watch)

    def _explain(self, found: ReadyStretch, error: _core.EngineError) -> str:
        """Return the engine's error with the name of the weight or node that it is about."""
        assert found.recording is not None
        number = found.recording.entry
        entry = found.stretch.tape.entries[number] if number < len(found.stretch.tape.entries) else None
        bound = found.segments[entry.a].bound if entry is not None and entry.kind == "run" else None
        return bound.explain(error) if bound is not None else str(error)
