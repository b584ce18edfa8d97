"""Faults and long runs: what FlexNN promises when something goes wrong.

    interrupts   how long Ctrl-C takes, at random moments of opening, planning, running, a new budget, compiling
    endurance    memory, descriptors and threads after many runs, openings and new budgets
    changes      budgets that change at random moments while storage or memory fails

python -m bench.faults PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

NAMES = ("interrupts", "endurance", "changes")

if __name__ == "__main__":
    sys.exit(dispatch("bench.faults", __doc__, {part: f"bench.faults.{part}" for part in NAMES}))
