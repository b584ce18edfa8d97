"""Runs of several models in one pool, in random order, in a process of its own: what it takes beyond its budget.

Its arguments are MEMORY THREADS RUNS, then an artifact and an .npz of its inputs for each model. Outputs are held until
as many runs later, at random; where the pool refuses a run for them, they are let go. It prints one object.
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from typing import Any

import numpy as np

import flexnn
from bench.process import reset_peak, status

HELD_MOST = 3


def run(arguments: list[str]) -> None:
    memory, threads, runs = map(int, arguments[:3])
    feeds = []
    for name in arguments[4::2]:
        with np.load(name) as found:
            feeds.append(dict(found))
    chosen, held, let_go = random.Random(0), deque[Any](), 0
    before = reset_peak()
    with flexnn.Pool(memory, threads) as pool:
        sessions = [pool.open(path) for path in arguments[3::2]]
        for _ in range(runs):
            which = chosen.randrange(len(sessions))
            try:
                held.append(sessions[which].run(None, feeds[which]))
            except flexnn.BudgetError:
                let_go += 1
                held.clear()
                sessions[which].run(None, feeds[which])
            while len(held) > chosen.randrange(HELD_MOST):
                held.popleft()
        beyond = status("VmHWM") - before - memory
    print(json.dumps({"runs": runs, "beyond": beyond, "let_go": let_go}))


if __name__ == "__main__":
    run(sys.argv[1:])
