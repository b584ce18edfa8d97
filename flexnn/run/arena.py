"""The arena of a session: open segments, their places in it, and the recordings of stretches over them.

Each segment is a program of its own. Pinned parts of all open programs lie side by side, those that are equal in one
place; then come the slots, and the working part, which is as big as the largest needs.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from flexnn import _core
from flexnn.measure import Watch
from flexnn.measure.parts import Parts
from flexnn.planning import MachineProfile
from flexnn.planning.overhead import BASE_BYTES
from flexnn.planning.relocate import held_apart, relocated
from flexnn.planning.types import align_up
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions import Stretch

from .bases import Pins
from .bound_segment import BoundSegment
from .engine import BoundProgram, Engine, SessionError
from .holding import Loop, crcs_apart, holder_of
from .model_file import ModelFile
from .options import RunOptions
from .recording import ReadyStretch, kept_bytes
from .segments import BoundSegments
from .tally import Tally


class Home(Protocol):
    """The part of a pool's arena that a session has."""

    @property
    def engine(self) -> Engine:
        """The engine."""
        ...

    def settle(self, pinned_bytes: int, shared_bytes: int) -> tuple[int, int]:
        """Return the offsets of the session's own part of the arena and of the part that it shares, which have these
        sizes from now on.
        """
        ...

    def clear(self) -> None:
        """Give back what all sessions have of the arena."""
        ...

    def leave(self) -> None:
        """Give back all that the session has in the engine."""
        ...


@quick_dataclass(slots=True, eq=False)
class Layout:
    """Places of the arena that open segments have. Sizes in bytes."""

    pinned: dict[Pins, tuple[int, int]]
    """Offset of each pinned part, and its number."""
    slots_at: int
    """Offset of the slots of stretches: where pinned parts end."""
    slots: int
    working_at: int
    """Offset of the working part."""
    working: int

    def takes(self, segments: Collection[BoundSegment], slot_bytes: int) -> bool:
        """Return whether planned segments, and a stretch's slots, have room where nothing moves."""
        return slot_bytes <= self.slots and all(
            segment.shared_bytes <= self.working and (segment.pins in self.pinned or not segment.pins.nbytes)
            for segment in segments
        )

    def place(self, segment: BoundSegment) -> tuple[int, int, int]:
        """Return a segment's place. Neighbours that read weights work at opposite ends, where they leave room."""
        pinned_at, number = self.pinned.setdefault(segment.pins, (self.slots_at, len(self.pinned)))
        base = segment.base
        far = number % 2 and base is not None and base.plan.is_streaming
        own = segment.shared_bytes - segment.working_bytes  # behind what its loop holds
        end = self.working_at + (self.working - segment.working_bytes if far else own)
        held_at = segment.loop.place(base.held) if segment.loop and base and base.held else 0
        return pinned_at, end, self.working_at + held_at


class Arena:
    """Open segments in one engine, which is that of ``home`` in a pool."""

    def __init__(self, file: ModelFile, options: RunOptions, home: Home | None = None) -> None:
        stored = file.open_model
        assert stored is not None
        self._file, self._options, self._home = file, options, home
        self._is_pooled = home is not None
        self._parts: Parts | None = None
        if options.measures:
            self._parts = Parts(file.artifact, file.direct_fd, options.threads, options.progress, options.throttled)
        machine = self._parts.machine if self._parts else options.throttled(MachineProfile.measure())
        setting = options.setting(machine, file.io_align)
        self.segments = BoundSegments(stored, options.memory, setting, options.rewrite)
        self._ready: OrderedDict[Stretch, ReadyStretch] = OrderedDict()
        """Stretches with their records; the one used last at the end."""
        self._open: OrderedDict[BoundSegment, None] = OrderedDict()
        """Segments with a plan and a place; those used last at the end."""
        self._layout: Layout | None = None
        """Places of all that is open; None: something was closed since it was arranged."""
        self._opened: dict[str, int] = {}
        """Bytes of everything that is open and kept, values not counted, by what takes them."""
        self._counted: tuple[int, ...] = ()
        """Counts at which they were found."""
        self._tally = Tally.of((), (), 0)
        """Objects that several parts have in common and that were counted."""
        self._open_pins: set[Pins] = set()
        """Pins of all open segments, and of some closed since."""
        self._open_working = 0
        """Largest working part of them."""
        if home is not None:
            self._engine = home.engine
        else:
            self._engine = Engine(options.switches(direct=file.direct_fd >= 0), trace=int(options.measures))
            self._engine.loosen(is_loose=options.memory is None)
        self.threads = self._engine.threads
        """Compute threads that run."""

    def watch(self, look: Callable[[], None] | None) -> None:
        """Have a function called every 20 ms of runs; what it raises breaks the run off. None: no more."""
        self._engine.core.watch = look

    def give_back(self) -> None:
        """Give back what nothing open needs of the arena."""
        self._engine.give_back()

    def _arrange(self, team: Collection[BoundSegment]) -> None:
        """Give every open segment its place, and bind those of the team that are new or move; others that move are
        closed. The order keeps segments from overwriting weights that another one will find there: those that move up,
        highest first; those that move down; new ones.
        """
        layout = self._laid_out()
        places = {segment: layout.place(segment) for segment in self._open}
        for segment in places.keys() - set(team):
            if segment.place != places[segment] or not segment.is_bound:
                self._close(segment)
        changed = [segment for segment in self._open if segment.place != places[segment] or not segment.is_bound]
        up = [segment for segment in changed if segment.place and segment.place[0] < places[segment][0]]
        down = [segment for segment in changed if segment.place and segment not in up]
        new = [segment for segment in changed if not segment.place]
        with self._placing():
            for found in self._ready.values():
                if found.recording is None:
                    continue
                if found.slots_at != layout.slots_at or set(found.segments) & set(changed):
                    found.close()
            for segment in changed:
                self._unbind(segment)
            for segment in (*reversed(up), *down, *new):
                self._bind(segment, *places[segment])
            self._layout = layout
            self._engine.trim()
        self._count_open()

    def _laid_out(self) -> Layout:
        """Return places for all open segments: pinned parts in the order of their last places, new ones behind."""
        sizes: dict[Pins, tuple[int, int]] = {}
        at = 0
        for pins in dict.fromkeys(segment.pins for segment in sorted(self._open, key=_last_place)):
            sizes[pins] = at, len(sizes)
            at += pins.nbytes
        slots, working = self._shared_bytes()
        first, working_at = self._home.settle(at + slots, working) if self._home is not None else (0, at + slots)
        pinned = {pins: (first + offset, number) for pins, (offset, number) in sizes.items()}
        return Layout(pinned, first + at, slots, working_at, working)

    def _join(self, segments: Collection[BoundSegment], slot_bytes: int) -> bool:
        """Bind planned segments of a stretch that has so many bytes of slots beside all that is open, if nothing moves
        for them; return whether. They lie where ``_arrange`` would place them.
        """
        layout = self._layout
        if layout is None or not layout.takes(segments, slot_bytes):
            return False
        places = {segment: layout.place(segment) for segment in segments}
        new = [segment for segment in segments if segment.place != places[segment] or not segment.is_bound]
        if any(segment.bound is not None for segment in new):
            return False
        with self._placing():
            self._take_in(segments)
            for segment in new:
                self._bind(segment, *places[segment])
        self._open_pins.update(segment.pins for segment in segments)
        return True

    def _take_in(self, segments: Collection[BoundSegment]) -> None:
        """Count segments as open, and as those that were used last."""
        for segment in segments:
            self._open[segment] = None
            self._open.move_to_end(segment)

    @contextlib.contextmanager
    def _placing(self) -> Iterator[None]:
        """Close all that is open if placing it fails."""
        try:
            yield
        except BaseException:
            if self._engine.core.rest(patient=False):  # else the next run closes them, when the device has answered
                for segment in list(self._open):
                    self._close(segment)
                self._engine.trim()
            raise

    def _count_open(self) -> None:
        """Count what is open now."""
        if self.segments.memory is not None or self._home is not None:
            self._opened, self._counted = self._opened_bytes(), self._counts()
            self._tally = Tally.of(self._ready.values(), self.segments, self.segments.decided_bytes)
        self._open_pins = {segment.pins for segment in self._open}
        self._open_working = max((segment.shared_bytes for segment in self._open), default=0)

    def _counts(self) -> tuple[int, ...]:
        """Return counts that are others where the bytes of what is open and kept may be others and nothing was placed
        since.
        """
        templates = self.segments.templates
        nodes = templates.nodes if templates is not None else -1
        return len(self._ready), len(self._open), len(self.segments), nodes, self.segments.floor_bytes

    def _is_next(self, found: ReadyStretch) -> bool:
        """Return whether a stretch and its segments, which are not open, are all that came since what is open and kept
        was counted.
        """
        ready, opened, kept, *others = self._counts()
        new = len(set(found.segments))
        return self._counted == (ready - 1, opened, kept - new, *others) and self._tally.has_templates(found.segments)

    def _count_next(self, found: ReadyStretch) -> None:
        """Count the stretch that ``_is_next``, as it joined those that are open."""
        more = self._tally.kept_bytes(found) + sum(segment.program_bytes for segment in set(found.segments))
        more += self.segments.decided_bytes - self._tally.decided
        self._opened = self._opened | {"programs": self._opened["programs"] + more}
        self._tally.add(found, self.segments.decided_bytes)
        self._counted = self._counts()

    def beside_values(self) -> int:
        """Return the bytes of the session, values not counted."""
        return sum(self._counted_bytes().values())

    def _counted_bytes(self) -> dict[str, int]:
        """Return the bytes of what is open and kept as they were counted, or count them where they may be others."""
        if self._counted != self._counts():
            self._count_open()
        return self._opened

    def _shared_bytes(self) -> tuple[int, int]:
        """Return the bytes of the arena for slots, and of the working part, that all open stretches share."""
        slots = max((found.slot_bytes for found in self._with_slots()), default=0)
        working = max((segment.shared_bytes for segment in self._open), default=0)
        return align_up(slots, self.segments.setting.io_align), working

    def _with_slots(self) -> list[ReadyStretch]:
        """Return the open stretches that have slots."""
        return [found for found in self._ready.values() if found.slot_bytes and self._is_open(found)]

    def _end(self) -> int:
        """Return where the last of what is open ends: what was closed since all was placed has left gaps before it. In
        a pool, all sessions have the gaps.
        """
        if self._home is not None:
            return 0
        bound = [segment for segment in self._open if segment.place and segment.is_bound]
        ends = [segment.place[1] + segment.working_bytes for segment in bound if segment.place]
        recorded = [found.slots_at + found.slot_bytes for found in self._ready.values() if found.recording is not None]
        return max([*ends, *recorded], default=0)

    def _is_open(self, found: ReadyStretch) -> bool:
        if not found.segments:
            return found.recording is not None
        return all(segment in self._open for segment in found.segments)

    def _bind(self, segment: BoundSegment, pinned_at: int, working_at: int, held_at: int) -> None:
        plan, base, segment.place = segment.plan, segment.base, (pinned_at, working_at, held_at)
        assert plan is not None
        assert base is not None
        split = plan.arena_bytes - plan.working_bytes
        if base.held is None:
            program = relocated(plan.program, split, pinned_at, working_at - split)
        else:
            program = held_apart(plan.program, base.own_bytes, split, pinned_at, held_at, working_at - split)
        segment.held = program.held
        segment.bound = BoundProgram(
            self._engine, self._file.artifact, base.plan, program, direct_fd=self._file.direct_fd
        )
        segment.bound_base, segment.made = base, None
        if (
            self._parts is not None
            and segment.is_own
            and (segment.watch is None or segment.watch.program is not plan.program)
        ):
            segment.watch = Watch(plan.program, self.segments.setting.machine)

    def _record(self, found: ReadyStretch) -> None:
        """Hand an open stretch to the engine."""
        if found.recording is not None:
            return
        programs = [segment.bound.core for segment in found.segments if segment.bound is not None]
        assert self._layout is not None
        found.slots_at = self._layout.slots_at
        entries = found.entries.copy() if found.loops else found.entries
        for loop in found.loops:
            self._hold(loop)
            if loop.holder is not None:
                programs.append(loop.holder.core)
                entries["holder"][loop.turn] = len(programs)
        try:
            found.recording = _core.Recording(
                self._engine.core,
                programs=programs,
                entries=entries,
                slots=found.placed(found.slots_at),
                operands=found.operands,
                buffer_count=found.buffer_count,
                input_count=found.buffer_count - len(found.stretch.outputs),
                counter_count=found.stretch.tape.counters,
                looks_ahead=self._options.prefetches,
            )
        except _core.EngineError as error:
            raise SessionError(str(error)) from None

    def _hold(self, loop: Loop) -> None:
        """Bind the holder of a loop, if it has one."""
        loop.close()
        plan = holder_of(loop)
        if plan is not None:
            artifact, crcs = self._file.artifact, crcs_apart(plan.program.loads, self._file.artifact.crcs)
            loop.holder = BoundProgram(self._engine, artifact, plan, direct_fd=self._file.direct_fd, crcs=crcs)

    def _unbind(self, segment: BoundSegment) -> None:
        if segment.bound is not None:
            for found in self._ready.values():
                if found.recording is not None and segment in found.segments:
                    found.close()
            bound, segment.bound = segment.bound, None
            bound.close()

    def _close(self, segment: BoundSegment) -> None:
        self._layout = None
        self._unbind(segment)
        self._open.pop(segment, None)

    def _close_all(self) -> None:
        for segment in list(self._open):
            self._close(segment)
        self._counted = ()

    def _opened_bytes(self) -> dict[str, int]:
        """Bytes of what is open and kept, by what takes them."""
        slots, working = self._shared_bytes()
        pinned = sum(pins.nbytes for pins in {segment.pins for segment in self._open})
        closed = [segment for segment in self.segments if segment not in self._open]
        return {
            "model": self.segments.model_bytes,
            "base": BASE_BYTES,
            "stacks": self.segments.stacks_bytes if self._open else 0,
            "arena": max(pinned + slots + max(working, self.segments.floor_bytes), self._end()),
            "programs": sum([segment.program_bytes for segment in self._open]) + kept_bytes(self._ready.values()),
            "kept": sum([segment.kept_bytes for segment in closed])
            + self.segments.bases_bytes
            + self.segments.templates_bytes,
        }

    def _leave_engine(self) -> None:
        """Close the engine, or leave that of the pool."""
        if self._home is not None:
            self._home.leave()
            self._home = None  # which has this
        elif not self._is_pooled:
            self._engine.close(self._file.files)

    def ending(self) -> _core.Ending:
        """Return what closes engine and files when nobody closed the session; neither those of a pool."""
        return _core.Ending(None) if self._is_pooled else _core.Ending(self._engine.core, self._file.files)

    def suspect(self) -> None:
        """Have what is bound checked before the next run."""
        self._engine.suspect()

    @property
    def kept_nodes(self) -> int:
        """Internal nodes of all segments."""
        return sum(segment.nodes for segment in self.segments)

    @property
    def kept_bytes(self) -> int:
        """Bytes of all stretches, segments and plans outside the arena."""
        programs = sum(s.program_bytes if s.base is not None else s.kept_bytes for s in self.segments)
        return programs + self.segments.bases_bytes + kept_bytes(self._ready.values())

    def _explain(self, found: ReadyStretch, error: _core.EngineError) -> str:
        """Return the engine's error with the name of the weight or node that it is about."""
        assert found.recording is not None
        number = found.recording.entry
        entry = found.stretch.tape.entries[number] if number < len(found.stretch.tape.entries) else None
        bound = found.segments[entry.a].bound if entry is not None and entry.kind == "run" else None
        if entry is not None and entry.kind == "turn":
            bound = next((loop.holder for loop in found.loops if loop.turn == number), None)
        return bound.explain(error) if bound is not None else str(error)


def _last_place(segment: BoundSegment) -> tuple[bool, int]:
    """Return what puts segments in the order of the places that they had, new ones behind."""
    return segment.place is None, segment.place[0] if segment.place else 0
