"""Room for a stretch with its team: what is closed, dropped and given up for it where a budget leaves none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flexnn.planning import BudgetError
from flexnn.planning.overhead import BASE_BYTES, NODE_BYTES
from flexnn.regions import Stretch

from .arena import Home
from .model_file import ModelFile
from .options import RunOptions
from .recording import ReadyStretch
from .teams import Teams, at_once, segments_of


class Room(Teams):
    """The stretches of a session, and which of them give way to others."""

    def __init__(self, file: ModelFile, options: RunOptions, home: Home | None = None) -> None:
        super().__init__(file, options, home)
        self._used: dict[ReadyStretch, None] = {}
        """Stretches of the run under way, or of the last."""
        self._usual_keys: set[ReadyStretch] = set()
        self._team: dict[ReadyStretch, None] = {}
        """Those of them that came since a team was given up."""
        self._gave_up = False
        """Whether a team was given up in the run under way."""
        self._is_parted = False
        """Whether the stretches of the last complete run do not fit together, which was tried."""

    def take_budget(self, memory: int | None, floor_bytes: int, values_bytes: int) -> bool:
        """Take another budget, as Teams does; another one may have room for all stretches of the last run."""
        if (memory, floor_bytes) != (self.segments.memory, self.segments.floor_bytes):
            self._is_parted = False
        return super().take_budget(memory, floor_bytes, values_bytes)

    def _begin_team(self) -> None:
        """Begin the team of a run."""
        self._team.clear()
        self._gave_up = self._is_parted

    def _forget_team(self) -> None:
        """Forget which stretches the last run had, and whether they fit together."""
        self._usual, self._usual_keys = [], set()
        self._is_parted = False

    def _team_of(self, found: ReadyStretch) -> list[ReadyStretch]:
        """Return a stretch with those that are to be open beside it: all of the last run if it was one of these, else
        those of this run; after a team was given up, those that came since, if it is new.
        """
        if found in self._usual_keys:
            return [found] if self._gave_up else [*self._usual]
        if self._gave_up and found in self._used:
            return [found]
        return [*(member for member in self._team if member is not found), found]

    def _make_room(self, found: ReadyStretch) -> None:
        """Plan and place a stretch with its team. Close others and drop kept stretches where that is needed; raise
        BudgetError if it is not enough.
        """
        while self._is_crowded and found.grown and self._drop_oldest([found]):
            self.segments.drop_unused_bases()
        team = self._team_of(found)
        is_planned, self.segments.plans_larger = False, not self._is_crowded
        ways_out = self._ways_out(found, team)
        while not (is_placed := self._fits(team)) or self._measure(segments_of(team)):
            is_planned = is_planned and not is_placed
            try:
                if self._plan_lacking(team) or self._close_other(team) or self._drop_oldest(team, unused=True):
                    continue
                if is_planned:  # what planning leaves behind does not fit beside it
                    self._refuse(team)
                if not is_placed and self._plan_in_form(team):
                    continue
                self._look_at_size(team)
                self._plan_team(team)
                is_planned = True
            except BudgetError:
                if next(ways_out, None) is None:
                    raise
                team, is_planned = [found], False
        for other in self._ready.values():  # one without segments does not close with them
            if not other.segments and other not in team:
                other.close()
        segments = segments_of(team)
        self._take_in(segments)
        self._arrange(segments)

    def _look_at_size(self, team: Sequence[ReadyStretch]) -> None:
        """Raise BudgetError where the nodes of a team alone take more than a budget: to plan it would take long."""
        memory, segments = self.segments.memory, segments_of(team)
        if memory is None or len(team) == 1:
            return
        nodes = sum([segment.nodes for segment in segments if segment.segment.template is None])
        least = sum(self._around(team, segments).values()) + BASE_BYTES + self.segments.stacks_bytes
        if least + NODE_BYTES * nodes > memory:
            raise BudgetError(least + NODE_BYTES * nodes, memory)

    def _ways_out(self, found: ReadyStretch, team: Sequence[ReadyStretch]) -> Iterator[bool]:
        """Give up something for a stretch that has no room with its team, when nothing else is open, and yield: the
        team itself, plans for other sizes, kept stretches, templates.
        """
        if len(team) > 1:
            self._is_parted = len(team) == len(self._usual)
            self._gave_up = True
            self._team.clear()
            yield True
        self.segments.plans_larger = False
        for segment in found.segments:
            self._close(segment)
        self.segments.drop_plans()
        yield True
        while self._drop_oldest([found]):
            yield True
        if self.segments.drop_templates():
            yield True

    def _close_other(self, team: Sequence[ReadyStretch]) -> bool:
        """Close segments that are open beside a team's, in a budget, those that were used longest ago; return whether
        there were any.
        """
        mine = set(segments_of(team))
        others = [segment for segment in self._open if segment not in mine] if self.segments.memory is not None else []
        for other in others[: at_once(others)]:
            self._close(other)
        return bool(others)

    def _drop_oldest(self, team: Sequence[ReadyStretch], *, unused: bool = False) -> bool:
        """Forget the stretch that was used longest ago, but none of the team, and one of the run under way only where
        there is no other, or if ``unused`` only in a budget, and none of that run or the last: each run would record it
        again. Return whether there was one. Of many more than one goes at once.
        """
        stays = {*team, *self._used, *self._usual} if unused else {*team}
        has_others = self.segments.memory is not None or not unused
        others = [s for s, found in self._ready.items() if found not in stays] if has_others else []
        others.sort(key=lambda other: self._ready[other] in self._used)
        for other in others[: at_once(others)]:
            self.forget(other)
        return bool(others)

    def is_used(self, stretch: Stretch) -> bool:
        """Return whether the last run, or the one under way, ran a stretch."""
        return self._ready.get(stretch) in self._used

    def forget(self, stretch: Stretch) -> None:
        """Close a stretch, and drop its records and those of its segments. If that fails, it may be done again."""
        stretch.is_forgotten = self.has_more = True
        found = self._ready.get(stretch)
        if found is not None:
            found.close()
            self._used.pop(found, None)
            self._team.pop(found, None)
            if found in self._usual_keys:
                self._usual.remove(found)
                self._usual_keys.remove(found)
            for segment in found.segments:
                self._close(segment)
        for part in stretch.tape.segments:  # also where one was bound, and the next failed
            self.segments.pop(part)
        self._ready.pop(stretch, None)  # last: nobody would find what is left
        self._counted = ()

    def forget_all(self) -> None:
        """Forget every stretch and segment, also one that was broken off before anything led to it."""
        for stretch in list(self._ready):
            self.forget(stretch)
        for segment in list(self.segments):
            self._close(segment)
            self.segments.pop(segment.segment)
        self._counted = ()
