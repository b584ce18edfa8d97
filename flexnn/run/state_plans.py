"""Plans of the programs of a session with state: one for each number of new tokens, over the same pinned weights.

The program of one token runs most often, so its plan decides what is pinned. The others pin the same in the same
places, and stream what is left through the same working part: a change of program loads nothing that is there already
(docs/decisions/0053-state.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexnn.graph.ir import Graph
from flexnn.planning import BudgetError, Plan, Planner, Setting
from flexnn.planning.overhead import PART_NAMES
from flexnn.planning.pins import Pins
from flexnn.planning.relocate import relocated
from flexnn.planning.types import LINE, Program, align_up

Placed = list[tuple[Plan, Program]]
"""The plan of each number of tokens, the largest first, and its program at its place in the arena."""
ROOMS = tuple(128 << 10 << i for i in range(5))
"""Bytes beyond the smallest working part that are tried for it in the smallest budget: slices in more room are fewer,
and each has a record.
"""
TRIES = 4
"""Most plans that are made for one budget: how many records programs have is known when they are made."""
SLACK = 128 << 10
"""Bytes of a budget that may stay unused, for which no other plan is made."""


class StatePlans:
    """Planners of the graphs of a session, the one of the most tokens first."""

    def __init__(self, graphs: Sequence[Graph], setting: Setting, io_align: int) -> None:
        self._planners = [Planner(graph, setting) for graph in graphs]
        self._align = max(io_align, LINE)
        self._smallest: Placed | None = None

    def placed(self, memory: int | None, fixed: dict[str, int]) -> Placed:
        """Return the plans for a budget (None: no limit), in which everything but arena and programs takes ``fixed``
        bytes, by purpose. Raises BudgetError.
        """
        around = sum(fixed.values())
        whole = _together([planner.plan(None) for planner in self._planners])
        if whole is not None and (memory is None or placed_bytes(whole) + around <= memory):
            return whole
        if memory is None:
            plan = self._planners[-1].plan(None)
            return self._over(Pins(plan.program), plan.working_bytes)
        smallest = self._least()
        least = placed_bytes(smallest) + around
        if memory < least:
            parts = {PART_NAMES.get(name, name): size for name, size in fixed.items()}
            parts |= {"steps": sum(plan.overhead["program"] for plan, _ in smallest)}
            raise BudgetError(least, memory, parts=parts | {"weights and activations": _arena_bytes(smallest)})
        found = self._found(memory - around, smallest)
        return [(plan.but(memory=memory, minimum_memory=least), program) for plan, program in found]

    def lack(self, working: int) -> int:
        """Return the bytes by which a working part is larger than the one of the smallest budget."""
        return max(0, working - self._least()[-1][0].working_bytes)

    def _found(self, bytes_max: int, smallest: Placed) -> Placed:
        """Return the fastest plans in so many bytes of arena and programs."""
        decode = self._planners[-1].whole
        working = smallest[-1][0].working_bytes
        own, best = bytes_max - sum(plan.overhead["program"] for plan, _ in smallest[:-1]), smallest
        for _ in range(TRIES):
            if own < decode.minimum:
                break
            plan = decode.plan_in_order(own)
            found = self._over(Pins(plan.program), max(working, plan.working_bytes), plan)
            slack = bytes_max - placed_bytes(found)
            if slack >= 0 and (best is smallest or found[-1][0].predicted_ms <= best[-1][0].predicted_ms):
                best = [*found[:-1], (found[-1][0].but(bound_ms=plan.bound_ms), found[-1][1])]
            if 0 <= slack < SLACK:
                break
            own += slack if slack > 0 else slack - SLACK // 2
        return best

    def _least(self) -> Placed:
        """Return the plans of the smallest budget, which does not depend on the machine's rates: nothing is pinned."""
        if self._smallest is None:
            none, least = Pins(None), max(planner.whole.least_working_bytes for planner in self._planners)
            best = self._over(none, least, smallest=True)
            for room in ROOMS:
                made = self._over(none, least + room, smallest=True)
                best = made if placed_bytes(made) < placed_bytes(best) else best
            self._smallest = best
        return self._smallest

    def _over(self, pins: Pins, working: int, decode: Plan | None = None, *, smallest: bool = False) -> Placed:
        """Return plans that pin these bytes of the file, in a working part of so many bytes, or of more where one needs
        more. ``decode``: that of one token, if it is known.
        """
        planners = self._planners if decode is None else self._planners[:-1]
        known = [] if decode is None else [decode]
        plans = [planner.whole.plan_over(pins, working, smallest=smallest) for planner in planners]
        most = max([plan.working_bytes for plan in plans], default=working)
        if most > working:
            plans = [planner.whole.plan_over(pins, most, smallest=smallest) for planner in planners]
        made = _together([*plans, *known])
        if made is not None:
            return made
        none = Pins(None)  # weights of which one graph makes other panels than another one
        chunks = [planner.whole.plan_over(none, most, smallest=smallest) for planner in self._planners[:-1]]
        return self._apart([*chunks, *(known or plans[-1:])])

    def _apart(self, plans: list[Plan]) -> Placed:
        """Return programs whose pinned parts lie one after the other, and whose working parts lie together behind."""
        fronts = [align_up(plan.arena_bytes - plan.working_bytes, self._align) for plan in plans]
        end, found, at = sum(fronts), [], 0
        for plan, front in zip(plans, fronts, strict=True):
            split = plan.arena_bytes - plan.working_bytes
            found.append((plan, relocated(plan.program, split, at, end - split)))
            at += front
        return found


def _arena_bytes(plans: Placed) -> int:
    return max(program.arena_bytes for _, program in plans)


def placed_bytes(plans: Placed) -> int:
    """Return the bytes of the arena and of all programs."""
    return _arena_bytes(plans) + sum(plan.overhead["program"] for plan, _ in plans)


def _together(plans: list[Plan]) -> Placed | None:
    """Return the programs of plans that pin the same in the same places; None where they do not."""
    last = plans[-1].program
    for plan in plans[:-1]:
        own = plan.program
        if own.zeros_count != last.zeros_count or not np.array_equal(own.pinned, last.pinned):
            return None
    return [(plan, plan.program) for plan in plans]
