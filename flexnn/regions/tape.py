"""A tape while it is recorded: entries over slots that have no place yet (engine/include/flexnn/recording.h).

A slot is made for a value, and gets its place when the tape is finished: a buffer of the caller's, a row of another
slot, or bytes of the arena that live from the slot's first entry to its last; a slot that a loop uses and that does not
belong to one turn lives as long as the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from flexnn.quick_dataclass import quick_dataclass

from .segment import Segment

Kind = Literal["run", "copy", "swap", "branch", "jump", "begin", "turn", "next", "count", "row"]


@quick_dataclass(slots=True)
class Entry:
    """An entry; the fields are those of fx_entry."""

    kind: Kind
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    n: int = 0
    operands: tuple[int, ...] = ()
    """Slots of the segment's inputs, constants and outputs, of a run."""


@quick_dataclass(slots=True)
class Slot:
    """A place of a value. Sizes in bytes."""

    nbytes: int
    buffer: int = -1
    """Number of the caller's buffer; -1: none."""
    row_of: int = -1
    """Slot of which it is a row; -1: none."""
    merged: int = -1
    """Slot that took its place; -1: none."""
    has_merged: bool = False
    """Whether it took the place of another."""
    body: int = 0
    """Number of the body in which it was made; 0: none."""
    is_fixed: bool = False
    """Whether it stays a slot of its own: its place is swapped, or decides, or has rows."""


@quick_dataclass(slots=True)
class Tape:
    """Entries, slots and segments."""

    entries: list[Entry] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    counters: int = 0
    bodies: int = 0
    """Bodies begun so far, each with a number of its own."""
    body: int = 0
    """The body that is recorded now."""
    loops: list[tuple[int, int]] = field(default_factory=list)
    """First and last entry of each loop."""

    def slot(self, nbytes: int, *, is_fixed: bool = False) -> int:
        """Add a slot."""
        self.slots.append(Slot(nbytes, body=self.body, is_fixed=is_fixed))
        return len(self.slots) - 1

    def add(self, kind: Kind, **fields: int) -> int:
        """Add an entry; return its number."""
        entry = Entry(kind)
        for name, number in fields.items():
            setattr(entry, name, number)
        self.entries.append(entry)
        return len(self.entries) - 1

    def run(self, segment: Segment, operands: Sequence[int]) -> None:
        """Add the run of a segment."""
        self.segments.append(segment)
        self.entries.append(Entry("run", a=len(self.segments) - 1, operands=tuple(operands)))

    def enter(self) -> None:
        """Begin a body; ``body`` set back ends it."""
        self.bodies += 1
        self.body = self.bodies

    def deliver(self, source: int, target: int) -> None:
        """Make ``target`` hold what ``source`` holds: the same place where that is possible, otherwise a copy."""
        source = self.root(source)
        slot = self.slots[source]
        is_free = slot.buffer < 0 and slot.row_of < 0 and not slot.is_fixed and slot.body == self.body
        if is_free and source != target and not slot.has_merged:
            slot.merged = target
            self.slots[target].has_merged = True
        else:
            self.add("copy", a=target, b=source, n=slot.nbytes)

    def root(self, slot: int) -> int:
        """Return the slot that stands for another."""
        while self.slots[slot].merged >= 0:
            slot = self.slots[slot].merged
        return slot

    def mark(self) -> tuple[int, int, int, int, int]:
        """Return what ``rewind`` needs to undo what is recorded from now on."""
        return len(self.entries), len(self.slots), len(self.segments), self.counters, len(self.loops)

    def rewind(self, mark: tuple[int, int, int, int, int]) -> None:
        """Undo what was recorded since ``mark``."""
        entries, slots, segments, self.counters, loops = mark
        del self.entries[entries:], self.slots[slots:], self.segments[segments:], self.loops[loops:]

    def lifetimes(self) -> dict[int, tuple[int, int]]:
        """Return the first and last entry of each slot of the arena."""
        spans: dict[int, tuple[int, int]] = {}
        for number, entry in enumerate(self.entries):
            for used in self._used(entry):
                slot = self.root(used)
                whole = self.slots[slot].row_of
                for i in (slot,) if whole < 0 else (slot, self.root(whole)):
                    first, last = spans.get(i, (number, number))
                    spans[i] = min(first, number), max(last, number)
        for first, last in self.loops:
            for slot, (start, end) in spans.items():
                inside = first <= start and end <= last
                if start <= last and end >= first and not (inside and not self.slots[slot].is_fixed):
                    spans[slot] = min(start, first), max(end, last)
        for entry in self.entries:  # what lies in one may lie in the other, until the end
            if entry.kind == "swap":
                both = spans[entry.a], spans[entry.b]
                spans[entry.a] = spans[entry.b] = min(both)[0], max(last for _, last in both)
        return {i: span for i, span in spans.items() if self.slots[i].buffer < 0 and self.slots[i].row_of < 0}

    def _used(self, entry: Entry) -> tuple[int, ...]:
        if entry.kind == "run":
            return entry.operands
        if entry.kind in ("copy", "swap", "row"):
            return entry.a, entry.b
        if entry.kind == "branch":
            return (entry.a,)
        if entry.kind == "count":
            return (entry.b,)
        if entry.kind == "turn":
            return tuple(slot for slot in (entry.c, entry.d) if slot >= 0)
        return ()
