"""Teams: the stretches of one run are planned together, so that none has to be closed for another."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

from flexnn.measure.parts import Lack
from flexnn.planning import BudgetError
from flexnn.planning.decisions import ROW_BYTES
from flexnn.planning.overhead import BASE_BYTES, NODE_BYTES
from flexnn.planning.types import align_up
from flexnn.planning.variant_planner import DRAFTING_BYTES

from .arena import Arena, Home
from .bases import Pins
from .bound_segment import BoundSegment
from .holding import WORTH, parts_of, streamed_bytes
from .model_file import ModelFile
from .needs import Needs, least_bytes, rounding_bytes
from .options import RunOptions
from .recording import ReadyStretch, kept_bytes
from .team_count import DECIDED, TeamCount

SHAPES = 64
"""Shapes that plans leave room for where a segment was met at several, in at most a sixteenth of the budget."""
SPREAD, SPREAD_BYTES = 2, 4 << 20
"""Without a limit, programs of other shapes stay open whose working part is at most this many times, and this many
bytes, larger than what the last run needed.
"""

AT_ONCE = 32
"""Share of what may be closed or dropped that goes at once: what is left is counted anew each time."""


class Teams(Arena):
    """Plans of stretches that are to be open together."""

    def __init__(self, file: ModelFile, options: RunOptions, home: Home | None = None) -> None:
        super().__init__(file, options, home)
        self.needs = Needs(self.segments)
        """Needs of the run under way, or of the last."""
        self._usual: list[ReadyStretch] = []
        """Stretches of the last complete run."""
        self._held_for: int | None = None
        """Budget in which it was asked whether loops should be planned at once."""
        self._is_crowded = False
        """Whether plans take the least, as stacks found no room beside them."""

    @property
    def usual(self) -> list[ReadyStretch]:
        """Stretches of the last complete run that are open."""
        return [found for found in self._usual if self._is_open(found)]

    @property
    def has_open(self) -> bool:
        """Whether segments or stretches are open."""
        return bool(self._open) or any(found.recording is not None for found in self._ready.values())

    @property
    def closed_bytes(self) -> int:
        """Bytes of the model and of what is kept, if all were closed."""
        return (
            self.segments.model_bytes
            + self.segments.templates_bytes
            + kept_bytes(self._ready.values())
            + sum([segment.kept_bytes for segment in self.segments])
        )

    def take_budget(self, memory: int | None, floor_bytes: int, values_bytes: int) -> bool:
        """Take another budget for the runs to come, beside others that need so much of the shared part of the arena.
        Return whether what is open fits into it beside values.
        """
        self.segments.memory, self.segments.floor_bytes = memory, floor_bytes
        return memory is None or self.beside_values() + values_bytes <= memory

    def unbind(self) -> None:
        """Close everything; plans stay."""
        self._close_all()
        for found in self._ready.values():
            found.close()

    def shut(self) -> None:
        """Close everything, and forget plans."""
        self.unbind()
        self.segments.drop_plans()

    def _may_stay(self, pins: set[Pins], needed: Collection[BoundSegment]) -> bool:
        """Return whether all that is open may stay so beside the segments that a run needed, which have ``pins``."""
        most = self._most_working(needed)
        return self._open_pins <= pins and (most is None or self._open_working <= most)

    def _most_working(self, needed: Collection[BoundSegment]) -> int | None:
        """Return the largest working part of programs that stay open beside those that a run needed; None: any."""
        if self.segments.memory is not None:
            return None
        return SPREAD * max((segment.working_bytes for segment in needed), default=0) + SPREAD_BYTES

    def _fits(self, team: Sequence[ReadyStretch]) -> bool:
        """Return whether all segments of a team have plans, or take over those of others, that fit beside what is open
        and kept.
        """
        segments = segments_of(team)
        lacking = [segment for segment in segments if segment.base is None and not self.segments.refit(segment)]
        if lacking:
            return False
        memory = self.segments.memory
        return memory is None or self._team_bytes(team) <= memory

    def _team_bytes(self, team: Sequence[ReadyStretch]) -> int:
        """Return the bytes of the session with those segments of a team open that have plans, beside what is open and
        kept.
        """
        segments = [segment for segment in segments_of(team) if segment.base is not None]
        pins = {segment.pins for segment in segments}
        working = max((segment.shared_bytes for segment in segments), default=0)
        own = sum(pin.nbytes for pin in pins) + working + sum(segment.program_bytes for segment in segments)
        around = self._around(team, segments, pins, working)
        return sum(around.values()) + BASE_BYTES + self.segments.stacks_bytes + own

    def _plan_lacking(self, team: Sequence[ReadyStretch]) -> bool:
        """Plan those segments of a team that have no plan, each as the last one of its template was planned, or in a
        part of what the others leave; return whether they have one now. What others have stays.
        """
        memory, segments = self.segments.memory, segments_of(team)
        lacking = [segment for segment in segments if segment.base is None]
        if memory is None or not lacking:
            return False
        has_loops = any(segment.loop is not None for segment in segments)
        if lacking == segments and has_loops and not self._weights_to_come(team):
            return False  # their loops may take turns in one place: _plan_team
        self._make_room_to_plan(team, lacking)
        count = TeamCount(self.segments, segments, list(self._open), self._team_bytes(team))
        rest, to_come = sum(map(weight_bytes, lacking)), None
        for segment in lacking:
            if not self.segments.follow(segment):
                most = count.most_of(segment)
                if not self._planned_like_last(segment, most):
                    to_come = self._weights_to_come(team) if to_come is None else to_come
                    if not self._plan_part(segment, most, to_come + rest):
                        return False
            count.add(segment)
            rest -= weight_bytes(segment)
        return True

    def _plan_part(self, segment: BoundSegment, most: int, rest: int) -> bool:
        """Plan a segment in its part of ``most`` bytes, by its weights out of ``rest`` bytes of all that is to come;
        return whether that is enough.
        """
        holds, segment.holds = segment.holds, None
        if rest == weight_bytes(segment) and self._planned_in(segment, most):
            return True
        least = segment.planner.minimum - self.segments.io_bytes(segment)
        if most < least:
            segment.holds = holds
            return False
        part = 0 if self._is_crowded else (most - least) * weight_bytes(segment) // rest
        self.segments.planned(segment, least + part, {})
        return True

    def _planned_like_last(self, segment: BoundSegment, most: int) -> bool:
        """Plan a segment in as many bytes as the last one of its kind had, at ``most`` these; return whether that is
        enough.
        """
        share = self.segments.share(segment)
        return share is not None and self._planned_in(segment, min(share, most))

    def _planned_in(self, segment: BoundSegment, most: int) -> bool:
        """Plan a segment in all of so many bytes, without a search for the least that it needs, which may take as long
        as binding it; return whether that is enough.
        """
        if not self._is_crowded:
            with contextlib.suppress(BudgetError):
                self.segments.planned(segment, most, {})
        return segment.base is not None

    def _plan_in_form(self, team: Sequence[ReadyStretch]) -> bool:
        """Plan the only segment of a team again, whose plan does not fit, in all that is left and in the form that was
        chosen for other sizes: to search all forms may take longer than binding. Return whether that makes a plan.
        """
        memory, segments = self.segments.memory, segments_of(team)
        if memory is None or len(segments) != 1 or segments[0].loop is not None or self._is_crowded:
            return False
        segment = segments[0]
        if segment in self._open:
            self._close(segment)
        base, segment.base = segment.base, None
        most = TeamCount(self.segments, segments, list(self._open), self._team_bytes(team)).most_of(segment)
        is_new = base is None or base.planned_for != most
        if is_new and self.segments.in_form(segment, most):
            return True
        segment.base = base
        return False

    def _weights_to_come(self, team: Sequence[ReadyStretch]) -> int:
        """Return the bytes of weights that a run's nodes behind a team read: none where it is all of the run."""
        last = team[-1].stretch
        return 0 if team[0] in self._usual else last.region.constant_bytes(last.remaining)

    def _make_room_to_plan(self, team: Sequence[ReadyStretch], lacking: Sequence[BoundSegment]) -> None:
        """Close segments that are open beside a team until there is room for planning those that are ``lacking``."""
        memory, mine = self.segments.memory, segments_of(team)
        needed = sum(NODE_BYTES * segment.nodes for segment in lacking)
        needed += max((member.values_bytes + member.stacks_bytes for member in team), default=0)
        others = [segment for segment in self._open if segment not in mine]
        while others and memory is not None and needed + sum(self._opened_bytes().values()) > memory:
            for other in others[: at_once(others)]:
                self._close(other)
            others = others[at_once(others) :]

    def _plan_team(self, team: Sequence[ReadyStretch]) -> None:
        """Plan the segments of stretches that are to be open together."""
        segments = segments_of(team)
        least = max((segment.least.least_working_bytes for segment in segments), default=0) if self._home else 0
        around = self._around(team, segments, working_bytes=least)
        memory = self.segments.memory
        if memory is None:
            for segment in segments:
                if segment.base is None and not self.segments.refit(segment):
                    self.segments.planned(segment, None, around)
            return
        left = memory - sum(around.values())
        spare = min(memory // 16, SHAPES * sum(map(self.segments.more_bytes, segments)))
        to_come = self._weights_to_come(team)
        for may_hold in (False,) if to_come else (True, False):
            try:
                owns = self._shares(segments, left - spare, to_come, may_hold=may_hold)
            except BudgetError:
                owns = self._shares(segments, left, to_come, may_hold=may_hold)
            for segment, own in zip(segments, owns, strict=True):
                self.segments.planned(segment, own, around)
            if all(segment.holds is None for segment in segments):
                break
            if self._team_bytes(team) <= memory:
                self._hold_more(team, around)
                break

    def _hold_more(self, team: Sequence[ReadyStretch], around: dict[str, int]) -> None:
        """Plan segments that hold weights in loops again, in what their team's plans leave of the budget."""
        memory = self.segments.memory or 0
        rest = memory - self._team_bytes(team) - DRAFTING_BYTES
        if rest < DRAFTING_BYTES:
            return
        before = []
        for segment in segments_of(team):
            base, loop = segment.base, segment.loop
            if base is None or base.held is None or loop is None or base.planned_for is None:
                continue
            before.append((segment, base, segment.working_bytes))
            self.segments.planned(segment, base.planned_for + rest // loop.holding, around)
        if self._team_bytes(team) > memory:
            for segment, base, working_bytes in before:
                segment.base, segment.working_bytes = base, working_bytes

    def divides_anew(self, team: Sequence[ReadyStretch]) -> bool:
        """Drop all plans where a team's loops, which were met one by one, should hold weights and do not, or read much
        less if all were planned at once, once in each budget; return whether.
        """
        memory, segments = self.segments.memory, segments_of(team)
        if memory is None or memory == self._held_for or any(segment.base is None for segment in segments):
            return False
        if not any(segment.loop is not None for segment in segments) or any(s.base and s.base.held for s in segments):
            return False
        self._held_for = memory
        try:
            owns = self._shares(segments, memory - sum(self._around(team, segments).values()), 0, may_hold=True)
        except BudgetError:
            return False
        if all(segment.holds is None for segment in segments):
            bases = [segment.base for segment in segments if segment.base is not None]
            given = [base.planned_for for base in bases if base.planned_for is not None]
            if len(given) < len(owns) or streamed_bytes(segments, owns) >= WORTH * streamed_bytes(segments, given):
                return False
        self._close_all()
        self.segments.drop_plans()
        self._engine.trim(keep=True)
        return True

    def _around(
        self,
        team: Sequence[ReadyStretch],
        segments: Sequence[BoundSegment],
        pins: Collection[Pins] = (),
        working_bytes: int = 0,
    ) -> dict[str, int]:
        """Return the bytes beside a team's plans, by what takes them; ``pins`` and ``working_bytes``: what the team's
        plans have of the arena, if they are known.
        """
        align = self.segments.setting.io_align
        mine = set(segments)
        others = [segment for segment in self._open if segment not in mine]
        closed = [other for other in self.segments if other not in mine and other not in self._open]
        slots = align_up(max((each.slot_bytes for each in (*team, *self._with_slots())), default=0), align)
        working = max([self.segments.floor_bytes, *(other.shared_bytes for other in others)])
        return {
            "values": max((member.values_bytes + member.stacks_bytes for member in team), default=0) + slots,
            "model": self.segments.model_bytes,
            "programs": sum(other.program_bytes for other in others)
            + sum(pin.nbytes for pin in {other.pins for other in others}.difference(pins))
            + max(working - working_bytes, 0)
            + kept_bytes(self._ready.values())
            + rounding_bytes(align, len(segments) + len(others)),
            "kept": sum(other.kept_bytes for other in closed)
            + self.segments.bases_bytes
            + self.segments.templates_bytes,
        }

    def _shares(self, segments: Sequence[BoundSegment], left: int, to_come: int, *, may_hold: bool) -> list[int]:
        """Return the budget of each segment out of the bytes that are ``left``: its smallest, and a part of the rest in
        proportion to its weights, unless loops need more (run/holding.py); so have weights that are ``to_come``. Raises
        BudgetError.
        """
        minimum = [segment.planner.minimum - self.segments.io_bytes(segment) for segment in segments]
        spare = left - least_bytes(self.segments, segments)
        if spare < 0:
            memory = self.segments.memory or 0
            raise BudgetError(memory - spare, memory)
        spare = 0 if self._is_crowded else spare
        weights = list(map(weight_bytes, segments))
        parts = parts_of(segments, weights, spare, to_come, may_hold=may_hold)
        for segment, part in zip(segments, parts, strict=True):
            segment.holds = part.kept
        return [least + part.nbytes for least, part in zip(minimum, parts, strict=True)]

    def _measure(self, segments: Sequence[BoundSegment]) -> bool:
        """Measure what the plans of segments depend on and was never tried, in the memory of all open segments.
        Return whether plans must be made again.
        """
        changed = False
        for segment in segments:
            lack, base = self._lack_of(segment), segment.base
            segment.is_measured = True
            if self._parts is None or lack is None or base is None:
                continue
            self._close_all()
            if self._home is not None:
                self._home.clear()
            self._engine.trim()
            changed |= self._parts.measure(segment.graph, base.plan.arena_bytes, lack)
        if changed and self._parts is not None:
            self.segments.know(self._parts.machine)
        return changed

    def _goes_beside(self, found: ReadyStretch) -> bool:
        """Plan, place and bind a stretch beside all that is open, if that needs no look at it; return whether. Parts of
        a run come one by one, and to look at all others for each takes the square of their number.
        """
        if self._home is not None or self._is_crowded or found.loops:
            return False
        if self.segments.memory is not None:
            return self._follows_beside(found, self.segments.memory)
        for segment in found.segments:
            if segment.base is None and not self.segments.refit(segment):
                self.segments.planned(segment, None, {})
            if self._lack_of(segment) is not None:
                return False
            segment.is_measured = True  # nothing is asked again while plans have no limit
        return self._join(found.segments, found.slot_bytes)

    def _follows_beside(self, found: ReadyStretch, memory: int) -> bool:
        """Do so in a budget, for a stretch that is new, if its segments are planned as others of their kind were, and
        that fits beside the values of each stretch of the run.
        """
        if not self._open or self._layout is None or found in self._usual or not self._is_next(found):
            return False
        segments = dict.fromkeys(found.segments)
        values = max(self.needs.most_beside, found.values_bytes + found.stacks_bytes)
        left = memory - sum(self._opened.values()) - self._tally.kept_bytes(found) - values
        if left < sum(NODE_BYTES * segment.nodes for segment in segments):
            return False
        left -= rounding_bytes(self.segments.setting.io_align, len(self._open) + len(segments))
        beside = BASE_BYTES + self.segments.stacks_bytes + self._layout.working  # what plans count, and is there
        self.segments.plans_larger = True
        for segment in segments:
            if segment.base is None and not self._planned_as_others(segment, beside + left):
                return False
            left -= segment.program_bytes
            if left < 0 or self._lack_of(segment) is not None:
                return False
        if not self._join(found.segments, found.slot_bytes):
            return False
        self._count_next(found)
        return True

    def _planned_as_others(self, segment: BoundSegment, most: int) -> bool:
        """Plan a segment as others of its kind were, in at most so many bytes; return whether that makes a plan."""
        if self.segments.refit(segment) or self.segments.follow(segment):
            return True
        return self._planned_like_last(segment, most - DECIDED * ROW_BYTES * segment.nodes)

    def _lack_of(self, segment: BoundSegment) -> Lack | None:
        """Return what a segment's plan depends on and was never tried; None: nothing, or that was asked before."""
        if self._parts is None or segment.base is None or not segment.is_own or segment.is_measured:
            return None
        return self._parts.lacks(segment.graph, segment.planner.costs, segment.base.plan)

    def _refuse(self, team: Sequence[ReadyStretch]) -> None:
        """Raise BudgetError for a team whose plans do not fit."""
        memory = self.segments.memory or 0
        raise BudgetError(self._team_bytes(team), memory)


def at_once(others: Sequence[object]) -> int:
    """Return how many of those that may be closed or dropped go at once."""
    return -(-len(others) // AT_ONCE)


def weight_bytes(segment: BoundSegment) -> int:
    """Return the bytes of a segment's weights, at least one."""
    return sum(weight.nbytes for weight in segment.graph.weights) + 1


def segments_of(team: Sequence[ReadyStretch]) -> list[BoundSegment]:
    """Return the segments of stretches, each once."""
    return list(dict.fromkeys(segment for member in team for segment in member.segments))
