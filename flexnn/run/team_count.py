"""Count of what a session takes while segments of a team get their plans one by one: to count all that is open and kept
for each would take the square of their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexnn.planning.decisions import ROW_BYTES
from flexnn.planning.overhead import BASE_BYTES

from .bases import Pins
from .bound_segment import BoundSegment
from .needs import rounding_bytes
from .segments import BoundSegments

DECIDED = 2
"""Decisions that are kept of a search for a plan, for each node of the segment: bands make several nodes of one."""


class TeamCount:
    """Bytes of a session with a team's plans, ``nbytes`` of which those segments take that have one, and all else."""

    def __init__(
        self, store: BoundSegments, team: Sequence[BoundSegment], opened: Sequence[BoundSegment], nbytes: int
    ) -> None:
        self._store, self._nbytes = store, nbytes
        planned = [segment for segment in team if segment.base is not None]
        self._kept = {segment: segment.kept_bytes for segment in team if segment.base is None}
        mine = set(planned)
        others = [segment for segment in opened if segment not in mine]
        self._pins: set[Pins] = {segment.pins for each in (planned, others) for segment in each}
        self._working = max((segment.shared_bytes for segment in planned), default=0)
        self._most_working = max([store.floor_bytes, self._working, *(other.shared_bytes for other in others)])
        self._bases = store.bases_bytes

    def add(self, segment: BoundSegment) -> None:
        """Count a segment that has a plan now."""
        store, bases, working = self._store, self._store.bases_bytes, segment.shared_bytes
        self._nbytes += segment.program_bytes - self._kept.pop(segment) + bases - self._bases
        self._nbytes += rounding_bytes(store.setting.io_align, 1) - rounding_bytes(store.setting.io_align, 0)
        if segment.pins not in self._pins:
            self._pins.add(segment.pins)
            self._nbytes += segment.pins.nbytes
        self._nbytes += max(working - self._most_working, 0)
        self._working, self._most_working = max(self._working, working), max(self._most_working, working)
        self._bases = bases

    def most_of(self, segment: BoundSegment) -> int:
        """Return the most bytes that the plan of a segment without one may have in the budget, beside its team's."""
        assert self._store.memory is not None
        working = self._working - (segment.loop.held_bytes if segment.loop is not None else 0)
        left = self._store.memory - self._nbytes + self._kept[segment]  # its plan counts the nodes again
        return BASE_BYTES + self._store.stacks_bytes + working + left - DECIDED * ROW_BYTES * segment.nodes
