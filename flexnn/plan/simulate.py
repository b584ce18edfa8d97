"""Predicted time of a program in the steady state, and the bound that no plan of the same budget can beat.

The model is the engine's protocol (flexnn/_core/engine.h): loads one after the other, steps one after the other, two
counters. A load takes its bytes by the storage's rate plus a request, a step what its kernel takes; while both go on
they slow each other down as the machine was measured to do.
"""

from __future__ import annotations

import numpy as np

from .profile import Machine
from .types import F64, I64, Profile, Timeline

RUNS = 3
"""Simulated one after the other; the last is the steady state (the first starts with nothing prefetched)."""


def simulate(
    machine: Machine, step_s: list[float], wait_loads: list[int], load_s: list[float], wait_steps: list[int]
) -> Timeline:
    """Timeline of the last of ``RUNS`` runs. ``wait_loads``, ``wait_steps``: thresholds as in the program; times are
    those of steps and loads alone, ``machine`` says how they slow each other down.
    """
    steps, loads = len(step_s), len(load_s)
    compute_share, load_share = machine.compute_share, machine.load_share
    now = started = stall = 0.0
    done = 0  # loads, over all runs
    left = load_s[0] if loads else 0.0
    first = wait_steps[0] if loads else RUNS * steps  # steps after which the next load may start
    for run in range(RUNS):
        started, stall = now, 0.0
        for j in range(steps):
            while done < run * loads + wait_loads[j]:  # no load that a step waits for waits for that step
                now += left
                stall += left
                done += 1
                left = load_s[done % loads]
                first = done // loads * steps + wait_steps[done % loads]
            work = step_s[j]
            while first <= run * steps + j and left * compute_share < work * load_share:
                now += left / load_share
                work -= left / load_share * compute_share
                done += 1
                left = load_s[done % loads]
                first = done // loads * steps + wait_steps[done % loads]
            if first <= run * steps + j:
                left -= work / compute_share * load_share
                now += work / compute_share
            else:
                now += work
    return Timeline(now - started, stall)


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
    between, one load after the other. Of the time in which both happen each gets its share: were x seconds of it, the
    run takes x and what is left of both, (compute - x * compute_share) + (read - x * load_share), no less than at the
    largest x where the shares add up to more than 1.
    """
    compute = sum(min(v.seconds() for v in node.variants) for node in profile.nodes)
    if arena is None:
        return compute
    read = max(weight_bytes - max(arena - live_max, 0), 0) / machine.storage_bytes_per_second
    both = min(compute / machine.compute_share, read / machine.load_share)
    gained = max(machine.compute_share + machine.load_share - 1.0, 0.0) * both
    return max(compute, read, compute + read - gained)
