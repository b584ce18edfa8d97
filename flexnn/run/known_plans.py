"""Plans of budgets that earlier sessions searched for: what was decided is kept beside the machine's profile.

A plan is searched for in tens of milliseconds where a budget is small; what the search decided is read and followed in
a fraction of that (planning/decisions.py). Where that cannot be read, does not fit, or was decided at other rates, the
plan is searched for. So the file can make plans slower, never wrong: addresses are computed again, and the engine
checks the program as any other.
"""

from __future__ import annotations

import contextlib

from flexnn.measure import cache
from flexnn.planning import Plan, Planner
from flexnn.planning.decisions import read

WORTH_MS = 4.0
"""Time of planning from which its outcome is kept."""
SEARCHED_BYTES, MEASURED_BYTES = 192 << 10, 128 << 10
"""Bytes of a budget beyond the smallest that are left to what a search leaves on the heap, and to what measuring does
beyond the bytes that are counted for it.
"""


def plan_known(planner: Planner, memory: int, key: str) -> Plan:
    """Return the plan for ``memory`` bytes: that which is kept under ``key``, or one that is searched for and kept.
    Raises BudgetError.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        found = cache.read(key)
        plan = planner.follow(read(found), memory) if found else None
        if plan is not None:
            return plan
    plan = searched(planner, memory)
    if plan.decisions is not None and plan.plan_ms >= WORTH_MS:
        cache.write(key, plan.decisions.described())
    plan.decisions = None
    return plan


def searched(planner: Planner, memory: int, *, beside: int = 0) -> Plan:
    """Return the plan for ``memory`` bytes of a session that has just imported the search, and left ``beside`` bytes on
    the heap before. Raises BudgetError.
    """
    room = max(planner.minimum, memory - SEARCHED_BYTES - beside)
    return planner.plan(min(memory, room)).but(memory=memory)
