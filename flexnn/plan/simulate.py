"""Predicted time of a program in the steady state, and the bound that no plan of the same budget can beat.

The model is the engine's protocol (flexnn/_core/engine.h): loads one after the other, steps one after the other, two
counters. A load takes its bytes by the storage's rate plus a request, a step what its kernel takes.
"""

from __future__ import annotations

import numpy as np

from .profile import Machine
from .types import F64, I64, Profile, Timeline

RUNS = 3
"""Simulated one after the other; the last is the steady state (the first starts with nothing prefetched)."""


def simulate(step_s: list[float], wait_loads: list[int], load_s: list[float], wait_steps: list[int]) -> Timeline:
    """Timeline of the last of ``RUNS`` runs. ``wait_loads``, ``wait_steps``: thresholds as in the program."""
    steps = len(step_s)
    step_end = [0.0] * (steps * RUNS + 1)  # 1 + index; 0: before everything
    load_end = 0.0
    ends: list[float] = []
    compute = 0.0
    stall = 0.0
    for run in range(RUNS):
        base = run * steps
        done = 0
        stall = 0.0
        ends = []
        started = compute
        for j in range(steps):
            while done < wait_loads[j]:
                # Wait thresholds never pass the step that waits, so step_end is known here.
                ready = step_end[max(base + wait_steps[done], 0)]
                load_end = (ready if ready > load_end else load_end) + load_s[done]
                ends.append(load_end)
                done += 1
            if wait_loads[j]:
                late = ends[wait_loads[j] - 1] - compute
                if late > 0.0:
                    stall += late
                    compute += late
            compute += step_s[j]
            step_end[base + j + 1] = compute
    return Timeline(compute - started, stall)


def earliest_waits(free: I64, piece_bytes: I64, piece_step: I64) -> I64:
    """``wait_steps`` of each piece were memory never fragmented: the earliest step from which on it, all earlier pieces
    not yet used, and whatever ``free`` (bytes at each step beside activations and workspace) leaves out, fit.

    On the circle of runs: two are unrolled. A piece may enter when no step i up to its use has less free memory than
    the pieces that are needed at or after i and come no later than it. Vectorised from the recurrence that a sweep over
    (piece, step) pairs gives.
    """
    steps, pieces = len(free), len(piece_bytes)
    if not pieces:
        return np.zeros(0, np.int64)
    total = np.concatenate(([0], np.cumsum(np.tile(piece_bytes, 2))))
    use = np.concatenate((piece_step, piece_step + steps))
    needed_from = np.searchsorted(use, np.arange(2 * steps), side="left")
    room = np.tile(free, 2) + total[needed_from]
    barred_from = np.searchsorted(total[1:], room, side="right")  # first piece that step i has no room for
    latest = np.full(2 * pieces + 1, -1, np.int64)
    np.maximum.at(latest, barred_from, np.arange(2 * steps))
    waits: I64 = np.maximum.accumulate(latest)[pieces : 2 * pieces] + 1 - steps
    return np.clip(waits, piece_step + 1 - steps, piece_step)


def load_seconds(machine: Machine, sizes: I64) -> F64:
    """Of each load."""
    return np.asarray(sizes / machine.storage_bytes_per_second + machine.request_s, np.float64)


def bound_seconds(profile: Profile, machine: Machine, weight_bytes: int, arena: int | None, live_max: int) -> float:
    """No plan for an arena of ``arena`` bytes (None: no limit) has a shorter steady-state run under this model.

    Compute: steps never overlap, and each node takes at least its fastest variant unsliced. Reading: at the step where
    the activations alive are ``live_max`` bytes, at most ``arena - live_max`` bytes of weights are in memory. From one
    occurrence of that step to the next, a run later, every weight is used; so at least the other bytes are read in
    between, one load after the other.
    """
    compute = sum(min(v.seconds() for v in node.variants) for node in profile.nodes)
    if arena is None:
        return compute
    read = max(weight_bytes - max(arena - live_max, 0), 0)
    return max(compute, read / machine.storage_bytes_per_second)
