"""Weights that stay in the arena for the turns of a loop (docs/decisions/0112).

The programs of a loop's body read their weights every turn. Pinned for the whole session, those of one loop take memory
while another loop runs. So what pins them may be *held*: a program that has nothing but loads, the holder, brings it
before the loop's first turn, into the working part, which belongs to others before and behind. Loops inside of a loop
hold with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.planning import Plan
from flexnn.planning.types import Program, align_up
from flexnn.quick_dataclass import quick_dataclass
from flexnn.regions.tape import Tape

from .bound_segment import HOLDER_BYTES, BoundSegment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .bases import Base, Pins
    from .engine import BoundProgram

GUESSED_TURNS = 8
"""Turns of a loop whose number is not known when it is planned, at most."""
HOLDERS_PART = 64
"""Part of the memory beyond the smallest that is left for loads of holders: one over this."""
WORTH = 0.9
"""Bytes that a run reads, as a fraction of those that it reads where weights are pinned for the session in proportion
to their bytes, at which loops are worth more.
"""


@quick_dataclass(slots=True, eq=False)
class Loop:
    """An outermost loop of a stretch. Sizes in bytes."""

    turn: int
    """The entry with which its turns begin."""
    turns: int
    """Number of them, about."""
    segments: list[BoundSegment]
    """Segments that its turns run, loops inside of it included."""
    holder: BoundProgram | None = None
    """The program that brings what is held, while the stretch is recorded."""

    def _places(self) -> dict[Pins, tuple[int, Base]]:
        """Return where held weights lie, from the start of the working part, and whose they are; equal ones lie in one
        place.
        """
        places: dict[Pins, tuple[int, Base]] = {}
        at = 0
        for segment in self.segments:
            base = segment.base
            if base is not None and base.held is not None and base.held not in places:
                places[base.held] = at, base
                at += base.held.nbytes
        return places

    @property
    def held_bytes(self) -> int:
        """Bytes of the working part that its held weights take."""
        return sum(pins.nbytes for pins in self._places())

    @property
    def holding(self) -> int:
        """Number of places of held weights."""
        return len(self._places())

    def place(self, held: Pins) -> int:
        """Return where weights that a segment holds lie, from the start of the working part."""
        return self._places()[held][0]

    def close(self) -> None:
        """Unbind the holder."""
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.close()


def loops_of(tape: Tape, segments: Sequence[BoundSegment]) -> list[Loop]:
    """Return the outermost loops of a tape that run segments; ``segments``: the bound forms of the tape's."""
    loops = []
    for first, last in sorted(tape.loops):
        if any(begin < first and last < end for begin, end in tape.loops):
            continue
        members = [segments[entry.a] for entry in tape.entries[first:last] if entry.kind == "run"]
        turn = tape.entries[tape.entries[last].b]
        is_sure = turn.n >= 0 and turn.c < 0 and turn.d < 0
        turns = turn.n if is_sure else min(turn.n, GUESSED_TURNS) if turn.n >= 0 else GUESSED_TURNS
        if members:
            loops.append(Loop(tape.entries[last].b, turns, members))
    return loops


def holder_of(loop: Loop) -> Plan | None:
    """Return the plan of the program that brings what a loop's bound segments hold; None: nothing."""
    found = {segment.base.held: segment for segment in loop.segments if segment.base and segment.base.held}
    rows = [segment.held for segment in found.values() if segment.held is not None]
    bases = [segment.base for segment in found.values() if segment.base is not None]
    if not rows:
        return None
    loads, plan = np.concatenate(rows), bases[0].plan
    loads["wait_steps"] = 0
    named = Graph()
    named.weights += [weight for base in bases for weight in base.graph.weights]
    program = Program(
        *(np.zeros(0, _core.NODE_DTYPE), np.zeros(0, _core.STEP_DTYPE), loads[:0], loads),
        arena_bytes=align_up(int((loads["address"] + loads["bytes"]).max())),
        zeros_offset=0,
        zeros_count=0,
        io_bytes=np.zeros(0, np.int64),
        threads=plan.program.threads,
    )
    return plan.but(program=program, graph=named)


def crcs_apart(loads: NDArray[Any], crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the checksums of ``crcs`` that loads need, and have the loads count them from the first of these."""
    first = int(loads["crc_first"].min())
    behind = loads["crc_first"] + -(-loads["check_bytes"] // loads["chunk_bytes"])
    loads["crc_first"] -= first
    return crcs[first : int(behind.max())]


def own_pins(program: Program, nbytes: int, kept: int | None) -> tuple[int, int]:
    """Return how many pinned loads of a program stay its own where about ``kept`` bytes of what it chose to pin do
    (None: all), and the bytes of the arena, of ``nbytes`` before the working part, that these and the zeros take.
    """
    addresses = program.pinned["address"].tolist()
    if kept is not None:
        for number, (at, end) in enumerate(pairwise([*addresses, nbytes])):
            if at >= program.front_bytes and end > program.front_bytes + kept:
                return number, at
    return len(addresses), nbytes


class Share(NamedTuple):
    """Part of a loop in the memory beyond the smallest. Sizes in bytes."""

    nbytes: int
    kept: int | None
    """Bytes of them that are its own; the others are held, in a place that other loops use, too. None: all are its own.
    """


class Shares(NamedTuple):
    """Parts of all loops, and the rest, for segments outside of loops."""

    loops: list[Share]
    rest: int


def shares_of(spare: int, needs: Sequence[int], turns: Sequence[int], outside: int) -> Shares | None:
    """Return how ``spare`` bytes are best given to loops that need so many to pin all their weights, and take so many
    turns; ``outside``: bytes of all other weights. None: in proportion to the bytes is as good.

    Some of the largest loops keep all their weights, and the others take their turns in one place, which is as large as
    the largest of them needs.
    """
    whole = sum(needs) + outside
    if spare >= whole or spare <= 0:
        return None
    order = sorted(range(len(needs)), key=lambda i: -needs[i])
    missing = [need - need * spare // whole for need in needs]
    least = WORTH * (outside - outside * spare // whole + sum(map(_product, missing, turns)))
    best = None
    for kept in range(len(order) + 1):
        left = spare - sum(needs[i] for i in order[:kept])
        if left < 0:
            break
        holding = order[kept:]
        area = min(left, needs[holding[0]]) if holding else 0
        more = max(left - area - outside, 0) // (len(holding) - 1) if len(holding) > 1 else 0
        reads = max(outside - (left - area), 0)
        for i in holding:
            got = min(area, needs[i])
            reads += (needs[i] - got) * turns[i] + (max(got - more, 0) if len(holding) > 1 else 0)
        if reads < least:
            least, best = reads, (kept, area, more)
    if best is None:
        return None
    kept, area, more = best
    loops = [Share(need, None) for need in needs]
    for i in order[kept:]:
        got = min(area, needs[i])
        loops[i] = Share(got, min(more, got) if len(order) - kept > 1 else None)
    own = sum(needs[i] for i in order[:kept])
    rest = spare - own - area - more * max(len(order) - kept - 1, 0)
    return Shares(loops, rest)


def parts_of(
    segments: Sequence[BoundSegment], weights: Sequence[int], spare: int, to_come: int, *, may_hold: bool
) -> list[Share]:
    """Return what each segment gets of ``spare`` bytes beyond its smallest budget; ``weights``: the bytes of those of
    each, ``to_come``: of those that other segments will read.
    """
    loops = list(dict.fromkeys(s.loop for s in segments if s.loop is not None)) if may_hold and spare > 0 else []
    needs = {id(segment): _need(segment) for segment in segments if segment.loop in loops}
    totals = [sum(needs.get(id(segment), 0) for segment in loop.segments) for loop in loops]
    outside = to_come + sum(w for s, w in zip(segments, weights, strict=True) if s.loop is None)
    reserved = sum(HOLDER_BYTES for segment in segments if segment.loop is not None) + spare // HOLDERS_PART
    found = shares_of(spare - reserved, totals, [loop.turns for loop in loops], outside) if loops else None
    if found is None:
        whole = sum(weights) + to_come
        return [Share(spare * weight // whole, None) for weight in weights]
    of_loop = dict(zip(loops, zip(found.loops, totals, strict=True), strict=True))
    parts = []
    for segment, weight in zip(segments, weights, strict=True):
        if segment.loop is None:
            parts.append(Share(found.rest * weight // outside, None))
            continue
        share, total = of_loop[segment.loop]
        need = needs[id(segment)]
        kept = None if share.kept is None else share.kept * need // total
        parts.append(Share(share.nbytes * need // total, kept))
    return parts


def streamed_bytes(segments: Sequence[BoundSegment], owns: Sequence[int]) -> int:
    """Return the bytes that a run's loops read, about, where each segment is planned for so many bytes."""
    found = 0
    for segment, own in zip(segments, owns, strict=True):
        if segment.loop is not None:
            spare = own + segment.store.io_bytes(segment) - segment.planner.minimum
            found += max(_need(segment) - spare, 0) * segment.loop.turns
    return found


def _need(segment: BoundSegment) -> int:
    """Return the bytes beyond the smallest budget with which all weights of a segment stay, and its kernels are the
    fastest.
    """
    return max(segment.planner.whole.pinning_memory - segment.planner.minimum, 0) + 1


def _product(a: int, b: int) -> int:
    return a * b
