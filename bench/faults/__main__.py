"""Faults and long runs: what FlexNN promises when something goes wrong.

    interrupts   how long Ctrl-C takes, at random moments of opening, planning, running, a new budget, compiling
    endurance    memory, descriptors and threads after many runs, openings and new budgets
    changes      budgets that change at random moments while storage or memory fails
    files        damaged artifacts and ONNX files, each in a process of its own
    mutants      damaged artifacts and headers, many in one process
    peers        damaged files, what FlexNN answers and what other runtimes do
    guided       damaged files, guided by the coverage of Python's code

python -m bench.faults PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

NAMES = ("interrupts", "endurance", "changes", "files", "mutants", "peers", "guided")

if __name__ == "__main__":
    sys.exit(dispatch("bench.faults", __doc__, {part: f"bench.faults.{part}" for part in NAMES}))
