"""Addresses and times of the streamed weights (FlexNN Algorithm 1, "plan weights with preloading"), and the thresholds.

Each piece, in the order of its use, takes the address range that is free the longest before its step; its load may
start when the last step that uses anything there is done. Activations and workspaces have their places already (the
paper plans a layer's workspace after its weights and plans the layer again without preloading when that fails; here
each step's room for its workspace and a slice is certain, so nothing ever has to be planned again).

Time is a circle (DESIGN D8). It is cut at the step where the least memory is free: pieces used before the cut are
placed last, one run later, so that they may be loaded while the tail of the run before computes. The first pieces
after the cut are then placed again, to look back across it (flexnn/_core/streams.c).
"""

from __future__ import annotations

import numpy as np

from flexnn import _core

from .types import I64, Final, Placement, Profile, Slices, Streams, align_up


def schedule(profile: Profile, placement: Placement, slices: Slices, final: Final, arena: int) -> Streams:
    """Streams of a region of ``arena`` bytes, in which the placement's addresses lie."""
    fixed = _fixed_ranges(profile, placement, slices, final)
    streamed = [i for i, stays in enumerate(final.stays) if not stays]
    forced = _forced_addresses(profile, slices, final)
    sizes, use = np.asarray(final.piece_bytes, np.int64)[streamed], np.asarray(final.piece_step, np.int64)[streamed]
    only = np.array([forced.get(i, -1) for i in streamed], np.int64)
    streams = Streams(np.empty(len(streamed), np.int64), np.empty(len(streamed), np.int64))
    where, when = streams.address, streams.wait_steps
    _core.place_streams(len(final.step_node), arena, profile.io_align, fixed, sizes, use, only, where, when)
    return streams


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
    steps = len(final.step_node)
    fixed = _fixed_ranges(profile, placement, slices, final)
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, fixed[2], fixed[1] - fixed[0])
    np.subtract.at(change, fixed[3] + 1, fixed[1] - fixed[0])
    return arena - np.cumsum(change)[:steps]
