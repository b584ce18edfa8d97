"""Random graphs at budgets from the smallest to none: no two things overlap that live at once, no plan takes more than
its budget, and one byte less than the smallest is refused. FLEXNN_GRAPHS is the number of graphs: 20, or more for a
long test; FLEXNN_GRAPHS_FROM the seed of the first.
"""

import os
from collections.abc import Callable

import pytest

from flexnn.graph.ir import Graph
from flexnn.planning import BudgetError, Setting, make_plan
from tests.support.plan_graphs import random_graph, random_volume
from tests.support.plans import ALIGNS, FAST_DISK, PI, checked, minimum_of

COUNT, FIRST = int(os.environ.get("FLEXNN_GRAPHS", "20")), int(os.environ.get("FLEXNN_GRAPHS_FROM", "50000"))
PART = 500
"""Most graphs of one test."""


@pytest.mark.parametrize("made", [random_graph, random_volume])
@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, PART))
def test_random_plans(first: int, made: Callable[[int], Graph]) -> None:
    for seed in range(first, min(first + PART, FIRST + COUNT)):
        graph = made(seed)
        setting = {"threads": 1 + seed % 4, "io_align": ALIGNS[seed % 2], "machine": (FAST_DISK, PI)[seed // 2 % 2]}
        try:
            least = minimum_of(graph, **setting)
            for budget in (least, least + 1 + seed % 4096, least * 5 // 4, least * 2, None):
                checked(graph, budget, **setting)
            with pytest.raises(BudgetError):
                make_plan(graph, Setting(setting["machine"], setting["threads"], setting["io_align"]), least - 1)
        except BaseException:
            print(f"seed {seed}")
            raise
