"""New budgets in place: what ``session.memory = …`` takes, and what it reads.

    python -m bench.rebudget                    ResNet-152 and VGG-19, down and up a ladder of budgets
    python -m bench.rebudget --models resnet152 --threads 1

For each budget, in shares of the way from the smallest to everything pinned: milliseconds of the whole change, and of
planning in that; MiB of pinned weights kept in place, moved inside the arena, read (from the page cache); what the
process has then above what it had before the session was opened.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import flexnn
from bench import MODELS
from bench.regions import MIB, status

LADDER = (1.0, 0.5, 0.25, 0.1, 0.0, 0.1, 0.25, 0.5, 1.0)


def measured(artifact: str, threads: int, repeat: int) -> list[dict[str, float]]:
    """A row for each change of the ladder."""
    before = status("VmRSS")
    rows = []
    with flexnn.Session(artifact, threads=threads) as session:
        least, most = session.plan.minimum_memory, session.plan.session_bytes
        feed = {i.name: np.zeros([int(d or 1) for d in i.shape], i.numpy_dtype) for i in session.get_inputs()}
        for share in LADDER * repeat:
            budget = least + int(share * (most - least))
            start = time.perf_counter()
            session.memory = budget
            took = time.perf_counter() - start
            pinning = session.statistics()["pinning"]
            session.run(None, feed)
            rows.append(
                {"share": share, "budget": budget / MIB, "ms": took * 1e3, "plan_ms": session.plan.plan_ms}
                | {name: size / MIB for name, size in pinning.items()}
                | {"rss": (status("VmRSS") - before) / MIB}
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rebudget", description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="*", default=["resnet152", "vgg19"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1, help="times down and up the ladder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            artifact = flexnn.compile(MODELS / f"{name}.onnx", Path(folder) / f"{name}.flexnn")
            print(
                f"{name}\n{'share':>6} {'MiB':>7} {'ms':>7} {'plan':>6} {'kept':>7} {'moved':>7} {'read':>7} {'RSS':>7}"
            )
            for r in measured(artifact, options.threads, options.repeat):
                print(
                    f"{r['share']:6.2f} {r['budget']:7.1f} {r['ms']:7.1f} {r['plan_ms']:6.1f}"
                    f" {r['kept']:7.1f} {r['moved']:7.1f} {r['read']:7.1f} {r['rss']:7.1f}"
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
