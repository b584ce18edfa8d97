"""The process of ``python -m bench.peers ray`` that has Ray score pictures; it writes when each batch was begun."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
import flexnn.ray

BATCH, WORKERS, PICTURES = 16, 2, 16


def moments(path: str, memory: int, name: str, rows: int) -> list[tuple[float, int]]:
    """Return when the scoring of each row's batch began, and 1."""
    import ray
    import ray.data

    with flexnn.Session(path, memory, 1) as session:
        shape = session.get_inputs()[0].shape[1:]

    made = np.random.default_rng(0).random((PICTURES, *shape), np.float32)

    def pictures(batch: dict[str, Any]) -> dict[str, Any]:
        batch["moment"] = np.full(len(batch["id"]), time.time())  # in the worker: a step behind it would wait for a CPU
        return {name: made[batch["id"] % PICTURES]}

    ray.init(num_cpus=WORKERS + 1, include_dashboard=False, log_to_driver=False, logging_level="error")
    rows_of = ray.data.range(rows, override_num_blocks=max(rows // (4 * BATCH), 1))
    scored = flexnn.ray.score(
        rows_of, path, memory=memory, prepare=pictures, keep=["id", "moment"], batch_size=BATCH, workers=WORKERS
    )
    found = scored.take_all()
    assert sorted(row["id"] for row in found) == list(range(rows))
    return [(float(row["moment"]), 1) for row in found]


if __name__ == "__main__":
    found_moments = moments(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    Path(sys.argv[5]).write_text(json.dumps(found_moments))
