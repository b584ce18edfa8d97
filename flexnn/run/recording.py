"""Stretches as the engine runs them: slots with places, entries as records, segments bound (flexnn/regions/tape.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.graph.ir import Array, GraphError
from flexnn.planning.types import LINE, align_up
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions import Stretch
from flexnn.regions.tape import Kind, Tape
from flexnn.units import SIZE_MAX

from .bound_segment import BoundSegment
from .holding import Loop, loops_of

KINDS: dict[Kind, int] = {
    "run": _core.ENTRY_RUN,
    "copy": _core.ENTRY_COPY,
    "swap": _core.ENTRY_SWAP,
    "branch": _core.ENTRY_BRANCH,
    "jump": _core.ENTRY_JUMP,
    "begin": _core.ENTRY_BEGIN,
    "turn": _core.ENTRY_TURN,
    "next": _core.ENTRY_NEXT,
    "count": _core.ENTRY_COUNT,
    "row": _core.ENTRY_ROW,
}
ENTRY_BYTES = 256
"""Bytes of an entry: its record and its slots' in numpy and in the engine, and its part of the tape."""


@quick_dataclass(slots=True, eq=False)
class ReadyStretch:
    """A stretch, its segments and its records. Sizes in bytes."""

    stretch: Stretch
    segments: list[BoundSegment]
    constants: list[Array]
    """Arrays of the buffers after the inputs: the stretch's, then its segments'."""
    entries: NDArray[Any]
    slots: NDArray[Any]
    """Places of slots of the arena count from the first one's."""
    operands: NDArray[np.uint32]
    slot_bytes: int
    """Bytes of the arena that its slots take."""
    held_bytes: int = 0
    """Bytes of values outside its region when it was planned."""
    values_bytes: int = 0
    """Bytes of live values and outputs beside which it was planned."""
    given_bytes: int = 0
    """Bytes of them that the caller may hold: outputs of the run before."""
    own_bytes: int = 0
    """Bytes of its own outputs that the caller may hold when it runs again, stacks not counted."""
    recording: _core.Recording | None = None
    slots_at: int = 0
    """Arena offset of the slots in ``recording``."""
    grown: dict[int, int] = field(default_factory=dict)
    """Number of the output whose rows an entry writes, by the entry."""
    capacities: dict[int, int] = field(default_factory=dict)
    """Rows that outputs of unknown length had the last time, by their number."""
    times: dict[int, int] = field(default_factory=dict)
    """Number of stacks of such an output at a time, by its number."""
    signature: _core.Signature | None = None
    """Signature of the runs that it is all of; None: there was none."""
    order: list[int] | None = None
    """Numbers of its outputs in the order of the model's, if it is all of a run and they are in another one."""
    nbytes: int = 0
    """Bytes that it takes outside the arena, its segments' programs and its constants not counted."""
    loops: list[Loop] = field(default_factory=list)
    """Outermost loops that run segments."""

    def __post_init__(self) -> None:
        self.nbytes = ENTRY_BYTES * len(self.entries)

    @property
    def stacks_bytes(self) -> int:
        """Bytes of its outputs of unknown length."""
        return sum(rows * self.times[number] * self.row_bytes(number) for number, rows in self.capacities.items())

    def held_beside(self, given_bytes: int) -> int:
        """Return the bytes of outputs that the caller may hold while it runs, beside ``given_bytes`` of the last run's.
        Its own stacks count twice already.
        """
        last = sum(rows * (self.times[number] - 1) * self.row_bytes(number) for number, rows in self.capacities.items())
        return max(self.own_bytes, given_bytes - last)

    def beside(self, given_bytes: int) -> int:
        """Return the bytes of values beside which it runs after a run with so many bytes of outputs."""
        return self.values_bytes - self.given_bytes + self.held_beside(given_bytes)

    def row_bytes(self, number: int) -> int:
        """Return the bytes of a row of an output."""
        output = self.stretch.outputs[number]
        return output.dtype.itemsize * prod(output.shape)

    @property
    def output_bytes(self) -> int:
        """Bytes of its outputs of known length."""
        return sum(o.dtype.itemsize * prod(o.shape) for o in self.stretch.outputs if o.counter < 0)

    @property
    def buffer_count(self) -> int:
        """Number of the caller's buffers."""
        return len(self.stretch.inputs) + len(self.constants) + len(self.stretch.outputs)

    def placed(self, at: int) -> NDArray[Any]:
        """Return the slots as they are where those of the arena begin at offset ``at``."""
        if not at or not self.slot_bytes:
            return self.slots
        slots = self.slots.copy()
        slots["offset"][slots["base"] == 0] += at
        return slots

    def turns(self, counter: int) -> int:
        """Turns that a loop took in the last run, by its counter."""
        assert self.recording is not None
        return self.recording.turns(counter)

    def close(self) -> None:
        """Free the recording."""
        recording, self.recording = self.recording, None  # first: a signal handler may raise when it is closed
        if recording is not None:
            recording.close()
            for loop in self.loops:
                loop.close()


def kept_bytes(stretches: Iterable[ReadyStretch]) -> int:
    """Return the bytes that stretches take outside the arena; constants that they share count once."""
    total = 0
    arrays: dict[int, int] = {}
    for found in stretches:
        total += found.nbytes
        arrays.update([(id(array), array.nbytes) for array in found.constants])
    return total + sum(arrays.values())


def ready(stretch: Stretch, segments: list[BoundSegment]) -> ReadyStretch:
    """Return the records of a stretch; ``segments``: the bound forms of its tape's."""
    tape = stretch.tape
    constants = [*stretch.constants, *(array for segment in segments for array in segment.constants)]
    own = len(stretch.inputs) + len(stretch.constants)
    more = len(constants) - len(stretch.constants)
    slots, slot_bytes = _slots(tape, own, more)
    firsts: list[int] = []
    for segment in segments:
        firsts.append(len(slots))
        buffers = range(1 + own + len(slots) - len(tape.slots), 1 + own + more)
        slots += [(base, 0, 0, array.nbytes) for base, array in zip(buffers, segment.constants, strict=False)]
    entries: list[tuple[int, ...]] = []
    operands: list[int] = []
    for entry in tape.entries:
        b = entry.b
        if entry.kind == "run":
            segment, b = segments[entry.a], len(operands)
            feeds = len(entry.operands) - len(tape.segments[entry.a].makes)
            fixed = range(firsts[entry.a], firsts[entry.a] + len(segment.constants))
            operands += [*map(tape.root, entry.operands[:feeds]), *fixed, *map(tape.root, entry.operands[feeds:])]
        elif entry.kind in ("copy", "count", "row"):
            b = tape.root(b)
        a = entry.a if entry.kind in ("run", "begin", "turn", "next", "count") else tape.root(entry.a)
        c, d = entry.c, entry.d
        if entry.kind == "turn":
            c, d = (slot if slot < 0 else tape.root(slot) for slot in (c, d))
        entries.append((KINDS[entry.kind], a, b, c, d, 0, entry.n))
    records = np.array(entries, _core.ENTRY_DTYPE), np.array(slots, _core.SLOT_DTYPE), np.array(operands, np.uint32)
    made = ReadyStretch(stretch, segments, constants, *records, slot_bytes, loops=loops_of(tape, segments))
    for loop in made.loops:
        for segment in loop.segments:
            segment.loop = loop
    first_output = own + more
    for number, entry in enumerate(tape.entries):
        if entry.kind == "row" and (buffer := slots[tape.root(entry.b)][0] - 1) >= first_output:
            made.grown[number] = buffer - first_output
    made.times = dict.fromkeys(made.grown.values(), 1 if stretch.region.path else 2)
    return made


def _slots(tape: Tape, own: int, more: int) -> tuple[list[tuple[int, ...]], int]:
    """Return the records of a tape's slots, and the bytes of those in the arena. Buffers from number ``own`` on follow
    ``more`` others that the tape does not know. Raises GraphError for more bytes than there can be.
    """
    rows: list[tuple[int, ...]] = []
    spans = tape.lifetimes()
    for i in range(len(tape.slots)):
        root = tape.slots[tape.root(i)]
        buffer = root.buffer + more if root.buffer >= own else root.buffer
        base = 1 + buffer if buffer >= 0 else _core.BASE_ROW if root.row_of >= 0 else 0
        rows.append((base, 0, 0, root.nbytes if base or tape.root(i) in spans else 0))
    numbers = sorted((i for i in spans if tape.slots[i].nbytes), key=lambda i: -tape.slots[i].nbytes)
    if not numbers:
        return rows, 0
    aligned = [align_up(tape.slots[i].nbytes, LINE) for i in numbers]
    if sum(aligned) > SIZE_MAX:
        raise GraphError(f"values of this part of the model take {sum(aligned)} bytes, which no machine has")
    sizes = np.array(aligned, np.int64)
    first = np.array([spans[i][0] for i in numbers], np.int32)
    last = np.array([spans[i][1] for i in numbers], np.int32)
    address = np.zeros(len(numbers), np.int64)
    _core.place_in_order(sizes, first, last, np.arange(len(numbers), dtype=np.int32), address)
    for i, at in zip(numbers, address.tolist(), strict=True):
        base, unused, _, nbytes = rows[i]
        rows[i] = base, unused, at, nbytes
    return rows, int((address + sizes).max())
