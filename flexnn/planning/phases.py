"""Memory of pinned weights that serves one phase of a run after the other.

Weights that many nodes read (those of a cell that a loop was unrolled of, of a block that a model repeats) are read
again for each of them, or pinned for the whole run. But a run reads them in phases: the cells of one direction and then
those of the other one. So their slices are read once, before their first node, and stay to their last one, in memory
that holds other slices before and behind. The memory is what a draft pins with; all else of the draft stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .bound import USES_MIN

if TYPE_CHECKING:
    from .drafts import Draft, Drafting

GROUPS_MAX = 256
"""Most slices that are tried to stay: each is compared with all others."""
WORTH = 0.98
"""Largest predicted time, as a fraction of the draft's, at which slices stay for their phases."""


class Kept(NamedTuple):
    """Panels of a step that an earlier load has left in memory."""

    address: int
    """Bytes from the start of the working part."""
    offset: int
    """Bytes from the start of the file."""


@quick_dataclass(slots=True, eq=False)
class _Group:
    """Slices with the same bytes of the file, in the order of the steps that read them."""

    slices: list[int]
    first: int
    """First step that reads them."""
    last: int
    nbytes: int
    """Bytes that they take in the arena."""
    is_pinned: bool
    at: int = -1
    """Bytes from the start of the area to its place there."""


def _groups(draft: Draft) -> list[_Group]:
    """Return the panels that are pinned or streamed wherever they are read, without those of the spill file."""
    names = "step", "constant", "file_offset", "bytes", "arena_bytes", "is_pinned"
    rows = zip(*(draft.slices[name].tolist() for name in names), strict=True)
    found: dict[tuple[int, int], _Group | None] = {}
    for i, (step, constant, offset, size, room, is_pinned) in enumerate(rows):
        if constant >= 0:
            continue
        group = found.setdefault((offset, size), _Group([], step, step, room, bool(is_pinned)))
        if group is None or group.is_pinned != bool(is_pinned):
            found[offset, size] = None
            continue
        group.slices.append(i)
        group.last = step
    return [group for group in found.values() if group is not None]


def in_phases(draft: Draft, drafting: Drafting, io_align: int) -> Draft:
    """Return the draft with slices that stay for a phase in memory of pinned ones, or itself if that is no faster."""
    groups = _groups(draft)
    often = [group for group in groups if len(group.slices) >= USES_MIN]
    if not any(not group.is_pinned for group in often):
        return draft
    best = draft
    for uses in (USES_MIN, 1):  # of pinned slices whose memory is given
        given = [group for group in groups if group.is_pinned and len(group.slices) >= uses]
        kept = _placed(given, often, io_align)
        if kept:
            made = _with(draft, drafting, kept, sum(group.nbytes for group in given))
            is_worth = made.seconds < min(WORTH * draft.seconds, best.seconds)
            best = made if is_worth and _bytes_read(made) <= _bytes_read(draft) else best
    return best


def _bytes_read(draft: Draft) -> int:
    """Return the bytes that a run reads."""
    return int(draft.slices["bytes"][draft.slices["is_pinned"] == 0].sum())


def _placed(given: Sequence[_Group], often: Sequence[_Group], align: int) -> list[_Group]:
    """Return slices with places in the memory that ``given`` takes, those among them and as many others as have room;
    none where something of ``given`` has none.
    """
    room, placed = sum(group.nbytes for group in given), list[_Group]()
    wanted = sorted(often, key=lambda group: (not group.is_pinned, -len(group.slices), group.first))[:GROUPS_MAX]
    rest = [group for group in given if len(group.slices) < USES_MIN]
    if len(rest) > GROUPS_MAX or any(group.nbytes % align for group in given):
        return []
    for group in (*wanted, *rest):
        group.at = _first_fit(group, placed, room, align)
        if group.at >= 0:
            placed.append(group)
        elif group.is_pinned:
            return []
    return placed if any(not group.is_pinned for group in placed) else []


def _first_fit(group: _Group, placed: Sequence[_Group], room: int, align: int) -> int:
    """Return the lowest place of ``room`` bytes that is free from the first step of a slice to its last; -1: none."""
    at = 0
    meet = [other for other in placed if other.first <= group.last and group.first <= other.last]
    for other in sorted(meet, key=lambda other: other.at):
        if other.at - at >= group.nbytes:
            break
        at = max(at, -(-(other.at + other.nbytes) // align) * align)
    return at if at + group.nbytes <= room else -1


def _with(draft: Draft, drafting: Drafting, kept: Sequence[_Group], area: int) -> Draft:
    """Return the draft whose slices stay in their places of an area before its working part, with its time."""
    slices, address = draft.slices.copy(), draft.address.copy()
    steps, stays = draft.steps.copy(), dict[int, Kept]()
    is_left = np.ones(len(slices), np.bool_)
    for group in kept:
        first, *others = group.slices
        slices["is_pinned"][first] = 0
        slices["wait_steps"][first] = _wait(group, kept, len(steps))
        address[first] = group.at - area
        is_left[others] = False
        offset = int(slices["file_offset"][first])
        stays |= {step: Kept(group.at - area, offset) for step in slices["step"][others].tolist()}
    slices, address = slices[is_left], address[is_left]
    streamed = slices["step"][slices["is_pinned"] == 0]
    steps["wait_loads"] = np.searchsorted(streamed, np.arange(len(steps)), side="right")
    made = replace(draft, steps=steps, slices=slices, address=address, kept=stays, kept_bytes=area)
    return drafting.timed(made)


def _wait(group: _Group, kept: Sequence[_Group], steps: int) -> int:
    """Return how many steps are done when the last slice that lay in a slice's place is not needed any more."""
    end = group.at + group.nbytes
    meet = (other.last + 1 for other in kept if other.at < end and group.at < other.at + other.nbytes)
    return max(last if last <= group.first else last - steps for last in meet)
