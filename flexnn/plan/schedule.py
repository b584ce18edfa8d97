"""Addresses and times of the streamed weights (FlexNN Algorithm 1, "plan weights with preloading"), and the thresholds.

Each piece, in the order of its use, takes the address range that is free the longest before its step; its load may
start when the last step that uses anything there is done. Activations and workspaces have their places already (the
paper plans a layer's workspace after its weights and plans the layer again without preloading when that fails; here
each step's room for its workspace and a slice is certain, so nothing ever has to be planned again).

Time is a circle (DESIGN D8). It is cut at the step where the least memory is free: pieces used before the cut are
placed last, one run later, so that they may be loaded while the tail of the run before computes. The first pieces
after the cut are then placed again, to look back across it.
"""

from __future__ import annotations

import numpy as np

from .types import I64, Final, Placement, Profile, Slices, Streams, align_up

Known = dict[tuple[int, int], int]
"""Last step in which each (address, end) is in use; what came before it there does not matter."""


def schedule(profile: Profile, placement: Placement, slices: Slices, final: Final, arena: int) -> Streams:
    """Streams of a region of ``arena`` bytes, in which the placement's addresses lie."""
    steps = len(final.step_node)
    fixed = _fixed_ranges(profile, placement, slices, final)
    streamed = [i for i, stays in enumerate(final.stays) if not stays]
    count = len(streamed)
    use = np.array([final.piece_step[i] for i in streamed], np.int64)
    size = np.array([final.piece_bytes[i] for i in streamed], np.int64)
    forced = _forced_addresses(profile, slices, final)
    cut = _fullest_step(fixed, steps)
    head = int(np.searchsorted(use, cut))
    # In the order of the circle, from the cut: rows of address, end, first and last step, as in ``fixed``.
    order = np.concatenate((np.arange(head, count), np.arange(head)))
    last = np.where(order < head, use[order] + steps, use[order])
    placed = np.array([np.zeros(count), np.zeros(count), last, last], np.int64).reshape(4, count)
    around = _around(fixed, cut, steps)
    entry_step = around[2]
    entries = list(zip(*around[[0, 1, 3]].tolist(), strict=True))
    known: Known = {}
    entered = 0
    floor = cut
    for i, k in enumerate(order.tolist()):
        step, bytes_ = int(last[i]), int(size[k])
        reached = int(np.searchsorted(entry_step, step, side="right"))
        _add(known, entries[entered:reached])
        entered = reached
        at, start = _earliest(known, arena, bytes_, step, floor, forced.get(streamed[k], -1), profile.io_align)
        if start > floor:
            floor = start
            known = {where: until for where, until in known.items() if until >= floor}
        placed[:, i] = at, at + bytes_, start, step
        _add(known, [(at, at + bytes_, step)])
    places = [forced.get(streamed[k], -1) for k in order]
    _look_back(placed, size[order], places, fixed, arena, cut, profile.io_align, steps)
    streams = Streams(np.zeros(count, np.int64), np.zeros(count, np.int64))
    streams.address[order] = placed[0]
    streams.wait_steps[order] = placed[2] + use[order] - last
    return streams


def _look_back(
    placed: I64, size: I64, forced: list[int], fixed: I64, arena: int, cut: int, align: int, steps: int
) -> None:
    """Places again, in ``placed``, the pieces that could start before the cut now that the others are known."""
    count = len(size)
    whole = np.concatenate((fixed, fixed, fixed), axis=1)
    whole[2:] += np.repeat(np.array([-steps, 0, steps]), fixed.shape[1])
    for i in range(count):
        if placed[2, i] > cut:
            break
        step = int(placed[3, i])
        floor = int(placed[2, i - 1] if i else placed[2, -1] - steps)
        floor = max(floor, step + 1 - steps)
        others = np.concatenate((placed[:, :i], placed[:, i + 1 :]), axis=1)
        before = others + np.array([[0], [0], [-steps], [-steps]])
        near = np.concatenate((whole, others, before), axis=1)
        near = near[:, (near[3] >= floor) & (near[2] <= step)]
        known: Known = {}
        _add(known, list(zip(*near[[0, 1, 3]].tolist(), strict=True)))
        at, start = _earliest(known, arena, int(size[i]), step, floor, forced[i], align)
        if start >= placed[2, i]:
            break
        placed[:3, i] = at, at + size[i], start


def _add(known: Known, entries: list[tuple[int, int, int]]) -> None:
    """Enters (address, end, last step)."""
    for low, high, until in entries:
        where = low, high
        known[where] = max(until, known.get(where, until))


def _earliest(known: Known, arena: int, size: int, step: int, floor: int, forced: int, align: int) -> tuple[int, int]:
    """Address for ``size`` bytes and the step from which on they are free there until ``step``; what is ``known`` lies
    in the arena at some step from ``floor`` to ``step``. ``forced``: the only address, if it is one.
    """
    ranges = np.array(list(known), np.int64).reshape(-1, 2)
    low, high = ranges[:, 0], ranges[:, 1]
    last = np.fromiter(known.values(), np.int64, len(known))
    if forced >= 0:
        candidates = np.array([forced], np.int64)
    else:
        above = -(-high // align) * align
        below = (low - size) // align * align
        candidates = np.concatenate((np.zeros(1, np.int64), above, below))
        candidates = candidates[(candidates >= 0) & (candidates + size <= arena)]
    meets = (low < candidates[:, None] + size) & (high > candidates[:, None])
    until = np.where(meets, last, floor - 1).max(axis=1, initial=floor - 1)
    earliest = int(until.min())
    assert earliest < step, "no room for a slice at its own step"
    return int(candidates[until == earliest].min()), earliest + 1


def _fixed_ranges(profile: Profile, placement: Placement, slices: Slices, final: Final) -> I64:
    """Rows of address, end, first step, last step of activations and workspaces."""
    node = np.asarray(final.step_node)
    nodes = np.arange(len(profile.nodes))
    begin, end = np.searchsorted(node, nodes, side="left"), np.searchsorted(node, nodes, side="right") - 1
    first, last = np.asarray(profile.first, np.int64), np.asarray(profile.last, np.int64)
    address = np.asarray(placement.address, np.int64)
    scratch = np.asarray(slices.scratch, np.int64)
    bytes_ = [p.variants[v].scratch_bytes * profile.threads for p, v in zip(profile.nodes, slices.variant, strict=True)]
    some = scratch >= 0
    acts = (address, address + np.asarray(profile.root_bytes, np.int64), begin[first], end[last])
    work = (scratch[some], (scratch + np.asarray(bytes_, np.int64))[some], begin[some], end[some])
    return np.concatenate((np.array(acts, np.int64).reshape(4, -1), np.array(work, np.int64).reshape(4, -1)), axis=1)


def _forced_addresses(profile: Profile, slices: Slices, final: Final) -> dict[int, int]:
    """Address of each streamed raw constant by its piece: a node's operand has one for all runs."""
    addresses = {}
    constants = iter(slices.constant)
    for i, operand in enumerate(final.piece_operand):
        if operand >= 0:
            addresses[i] = align_up(next(constants), profile.io_align)
    return addresses


def free_bytes(profile: Profile, placement: Placement, slices: Slices, final: Final, arena: int) -> I64:
    """Bytes at each step beside activations and workspace."""
    return arena - _occupied(_fixed_ranges(profile, placement, slices, final), len(final.step_node))


def _occupied(fixed: I64, steps: int) -> I64:
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, fixed[2], fixed[1] - fixed[0])
    np.subtract.at(change, fixed[3] + 1, fixed[1] - fixed[0])
    return np.cumsum(change)[:steps]


def _fullest_step(fixed: I64, steps: int) -> int:
    return int(np.argmax(_occupied(fixed, steps))) if steps else 0


def _around(fixed: I64, cut: int, steps: int) -> I64:
    """Fixed ranges of two runs that reach into [cut, cut + steps), ordered by their first step."""
    both = np.concatenate((fixed, fixed + np.array([[0], [0], [steps], [steps]])), axis=1)
    both = both[:, (both[3] >= cut) & (both[2] < cut + steps)]
    return both[:, np.argsort(both[2], kind="stable")]
