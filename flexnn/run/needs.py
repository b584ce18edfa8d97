"""Needs: the smallest budget of a run, stretch by stretch: each open alone, beside the values that live then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flexnn.graph.ir import Array
from flexnn.planning.overhead import BASE_BYTES
from flexnn.planning.types import LINE, align_up

from .bound_segment import BoundSegment
from .recording import ReadyStretch, kept_bytes
from .segments import BoundSegments


class Needs:
    """Bytes that a run has needed so far."""

    def __init__(self, segments: BoundSegments) -> None:
        self._segments = segments
        self.held_bytes = 0
        """Bytes of values outside the region that is walked: of regions around it, and rows that will be stacked."""
        self.given_bytes = 0
        """Bytes of outputs of the last complete run, which the caller may hold while the next one runs."""
        self.values_bytes = 0
        """Most bytes of values while some were made outside the arena, without those."""
        self.freed_bytes = 0
        """Most of these bytes since freed memory was given back: the C library may keep as many."""
        self.most_beside = 0
        """Most bytes of values and stacks of a stretch that ran."""
        self._stretches: dict[ReadyStretch, int] = {}
        """Stretches that ran, and the most bytes of their stacks."""

    def begin(self) -> None:
        """Begin a run."""
        self.values_bytes = self.most_beside = 0
        self._stretches.clear()

    def count(self, nbytes: int) -> None:
        """Count values that are made outside the arena, those that live beside them among them."""
        self.values_bytes = max(self.values_bytes, self.held_bytes + nbytes)
        self.freed_bytes = max(self.freed_bytes, self.held_bytes + nbytes)

    def run(self, found: ReadyStretch) -> None:
        """Count a stretch that has run."""
        stacks = found.stacks_bytes
        self._stretches[found] = max(self._stretches.get(found, 0), stacks)
        self.most_beside = max(self.most_beside, found.values_bytes + stacks)

    def most_values(self, stretches: Iterable[ReadyStretch]) -> int:
        """Return the most bytes of values that there were in a run of these stretches, or will be in the next one."""
        given = self.given_bytes
        return max([self.values_bytes + given, *(each.beside(given) + each.stacks_bytes for each in stretches)])

    @property
    def smallest(self) -> int:
        """The smallest budget."""
        beside = [
            alone_bytes(self._segments, found) - found.values_bytes + found.beside(self.given_bytes) + stacks
            for found, stacks in self._stretches.items()
        ]
        return max([*beside, self.values_bytes + self.given_bytes + without_programs(self._segments)])


def without_programs(store: BoundSegments) -> int:
    """Return the bytes of a session in which nothing is open, values not counted."""
    return store.model_bytes + BASE_BYTES + store.floor_bytes


def least_bytes(store: BoundSegments, segments: Sequence[BoundSegment]) -> int:
    """Return the bytes that segments need to be open together, with base and stacks."""
    minimum = [segment.least.minimum - store.io_bytes(segment) for segment in segments]
    working = [segment.least.least_working_bytes for segment in segments]
    fixed = BASE_BYTES + store.stacks_bytes
    own = [least - work - fixed for least, work in zip(minimum, working, strict=True)]
    return fixed + sum(own) + max(working, default=0)


def alone_bytes(store: BoundSegments, found: ReadyStretch) -> int:
    """Return the smallest budget in which a stretch is open beside its values, and nothing else is; its stacks are not
    counted.
    """
    align = store.setting.io_align
    slots = align_up(found.slot_bytes, align) + rounding_bytes(align, len(found.segments))
    working = max((segment.least.least_working_bytes for segment in found.segments), default=0)
    rounded = 2 * LINE * len(found.segments) if store.floor_bytes else 0
    floor = max(store.floor_bytes - working, 0) + rounded
    least = least_bytes(store, found.segments)
    return found.values_bytes + store.model_bytes + kept_bytes([found]) + slots + least + floor


def rounding_bytes(align: int, segments: int) -> int:
    """Return the bytes by which parts of the arena that are whole lines grow where they are rounded up."""
    return 2 * (align - LINE) * (1 + segments)


def live_bytes(live: Mapping[str, Array]) -> int:
    """Return the bytes of arrays, each counted once."""
    return sum({id(array): array.nbytes for array in live.values()}.values())
