"""Driver of a Ray job: score rows with workers one of which dies once. It is a program of its own, in a folder of its
own, because Ray's workers import what lies in their driver's folder.

python tests/support/scoring.py ARTIFACT NOTES ROWS OUT.npz
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def main(artifact: str, notes: str, count: int, out: str) -> None:
    import ray.data

    import flexnn.ray

    def dies(batch: dict[str, Any]) -> dict[str, Any]:
        """Make inputs, and end the process once."""
        import os
        import pathlib

        note = pathlib.Path(notes)
        if 20 in batch["id"] and not (note / "died").exists():
            (note / "died").touch()
            os.kill(os.getpid(), 9)
        (note / ray.get_runtime_context().get_node_id()).touch()
        return {"x": batch["x"]}

    x = np.load(out)["x"]
    ray.init(address="auto", log_to_driver=False)
    dataset = ray.data.from_items([{"x": x[i], "id": i} for i in range(count)], override_num_blocks=count // 4)
    options: dict[str, Any] = {"memory": "32MiB", "batch_size": 4, "workers": 2, "beside": "200MiB"}
    scored = flexnn.ray.score(dataset, artifact, prepare=dies, keep=["id"], **options)
    rows = sorted(scored.take_all(), key=lambda row: int(row["id"]))
    nodes = np.array([node["NodeID"] for node in ray.nodes()])
    np.savez(out, id=[row["id"] for row in rows], y=[row["y"] for row in rows], nodes=nodes)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
