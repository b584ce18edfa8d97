"""Which pieces of weights stay in memory when not all fit (DESIGN D9; FlexNN §3.3 "fixes a portion of model weights").

Memory divides into a region of pinned pieces and the rest, where activations live and the other pieces stream through.
Three ways to spend the pinned bytes compete, at several sizes of the region; predicted time decides:

- "spread": the same fraction of the bytes everywhere along the run. Where the loader is always busy every byte not read
  saves the same, and an even demand needs the least room to run ahead.
- "dense": pieces with the most bytes for each second that their steps compute, which no computing could hide.
- "small": the smallest pieces, where few bytes are left to stream: the fewest requests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flexnn.graph.ir import Graph

from .types import F64, I64, Final, Profile, Slices

Mask = NDArray[np.bool_]


def spread(sizes: I64, budget: int) -> Mask:
    """Pieces chosen evenly by bytes, at most ``budget`` of them (error diffusion, in order)."""
    chosen = np.zeros(len(sizes), bool)
    total = int(sizes.sum())
    owed, used = 0.0, 0
    share = min(budget / total, 1.0) if total else 0.0
    for i, size in enumerate(sizes.tolist()):
        owed += size * share
        if owed >= size / 2 and used + size <= budget:
            chosen[i] = True
            used += size
            owed -= size
    return _fill(chosen, sizes, np.arange(len(sizes)), budget - used)


def dense(sizes: I64, seconds: F64, budget: int) -> Mask:
    """Pieces with the most bytes for a second of computing (``seconds``: of the step that reads each)."""
    order = np.argsort(-(sizes / np.maximum(seconds, 1e-9)), kind="stable")
    return _fill(np.zeros(len(sizes), bool), sizes, order, budget)


def small(sizes: I64, budget: int) -> Mask:
    """The smallest pieces."""
    return _fill(np.zeros(len(sizes), bool), sizes, np.argsort(sizes, kind="stable"), budget)


def _fill(chosen: Mask, sizes: I64, order: NDArray[np.int64], left: int) -> Mask:
    """Adds pieces in ``order`` while they fit into ``left`` bytes."""
    for i in order.tolist():
        if not chosen[i] and sizes[i] <= left:
            chosen[i] = True
            left -= int(sizes[i])
    return chosen


def settle(graph: Graph, profile: Profile, slices: Slices, stays: Mask) -> Final:
    """Steps and pieces once ``stays`` says which pieces are pinned: pinned neighbours of one node become one step."""
    final = Final([], [], [], [], [], [], [])
    piece_of = dict(zip(slices.piece_step, range(len(slices.piece_step)), strict=True))  # panels: one for each step
    at = 0
    for step, (node, panels) in enumerate(zip(slices.step_node, slices.step_panels, strict=True)):
        piece = piece_of.get(step, -1)
        pinned = piece >= 0 and bool(stays[piece])
        mergeable = pinned and slices.piece_operand[piece] < 0 and bool(final.stays) and final.stays[-1]
        if mergeable and final.step_node[-1] == node:
            weight = profile.nodes[node]
            first = final.step_panels[-1][0]
            final.step_panels[-1] = (first, panels[1])
            offset = final.piece_offset[-1]
            final.piece_bytes[-1] = profile.occupied(offset, (panels[1] - first) * weight.panel_bytes)
            at = piece + 1
            continue
        final.step_node.append(node)
        final.step_panels.append(panels)
        while at <= piece:
            final.piece_step.append(len(final.step_node) - 1)
            final.piece_operand.append(slices.piece_operand[at])
            final.piece_offset.append(slices.piece_offset[at])
            final.piece_bytes.append(slices.piece_bytes[at])
            final.stays.append(bool(stays[at]))
            at += 1
    return final


def step_seconds(profile: Profile, slices: Slices, final: Final) -> list[float]:
    """Predicted time of each step."""
    seconds = []
    for node, (p0, p1) in zip(final.step_node, final.step_panels, strict=True):
        way, panels = profile.nodes[node].variants[slices.variant[node]], profile.nodes[node].panels
        seconds.append(way.fixed_s + way.channels_s * ((p1 - p0) / panels if panels else 1.0))
    return seconds
