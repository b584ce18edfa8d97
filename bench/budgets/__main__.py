"""Budgets: what each costs, and whether it is kept.

    promise    what each budget costs in time, and what the process really took
    headline   the published headline: how much slower a run gets where memory is cut by 93.8 %
    predict    how far predictions are from runs
    rebudget   what a new budget of an open session takes
    limit      runs under a hard limit of the kernel's (root)
    auto       a budget that follows the system, in a control group (root)
    text       text of a language model under a hard limit, beside llama.cpp (root)
    tokens     memory and time of 1,000 tokens of a language model
    drafts     tokens a pass and tokens a second with drafts and without them
    devices    spilling on slower devices, whose rates the kernel holds (root)
    narrow     narrow weights in a budget beside no limit, and smallest budgets of quantised models
    errors     what weights narrowed by an error save, and whether other inputs keep it
    dynamic    random graphs whose sizes and paths data decide, around their smallest budgets

python -m bench.budgets PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

NAMES = (
    "promise",
    "headline",
    "predict",
    "rebudget",
    "limit",
    "auto",
    "text",
    "tokens",
    "drafts",
    "devices",
    "narrow",
    "errors",
    "dynamic",
)

if __name__ == "__main__":
    sys.exit(dispatch("bench.budgets", __doc__, {part: f"bench.budgets.{part}" for part in NAMES}))
