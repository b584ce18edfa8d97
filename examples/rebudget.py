"""Change a session's budget between runs: python examples/rebudget.py MODEL.flexnn 64MiB 32MiB 16MiB

The program runs the model once in each budget, and prints what the process holds then, and how long the run took.
"""

import os
import sys
import time

import numpy as np

import flexnn


def resident_mib() -> float:
    """Resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(path: str, budgets: list[str]) -> None:
    """Run the model at ``path`` in each of the ``budgets``."""
    before = resident_mib()
    with flexnn.Session(path, memory=budgets[0]) as session:
        random = np.random.default_rng(0)
        feed = {i.name: random.standard_normal(i.shape).astype(i.numpy_dtype) for i in session.get_inputs()}
        for budget in budgets:
            try:
                session.memory = budget
            except flexnn.BudgetError as error:
                print(f"{budget:>8}  refused: the smallest budget is {error.minimum / 2**20:.1f} MiB")
                continue
            start = time.perf_counter()
            session.run(None, feed)
            latency_ms = 1e3 * (time.perf_counter() - start)
            print(f"{budget:>8}  holds {resident_mib() - before:6.1f} MiB, the run took {latency_ms:7.2f} ms")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
