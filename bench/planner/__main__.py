"""Plans: how good they are and what they need. All but ``groups`` plan and do not run.

    plans       how far plans are from their bound, and how long planning takes
    placement   strategies of placement against the live-bytes bound
    bands       the smallest budget with activations whole and in bands of rows
    compare     plans of two trees: smallest budgets, times at equal bytes, equal plans, planning's time
    workspace   what layers take beside their tensors, and what peers take for the same layer
    branches    memory of a model with control flow by the ways in which its programs may share it
    groups      groups of independent nodes: time, memory and barriers against k
    growth      how compiling, opening and planning grow with the nodes of a graph

python -m bench.planner PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

NAMES = ("plans", "placement", "bands", "compare", "workspace", "branches", "groups", "growth")

if __name__ == "__main__":
    sys.exit(dispatch("bench.planner", __doc__, {part: f"bench.planner.{part}" for part in NAMES}))
