"""Classify a folder of pictures with as many workers as memory has room for, on one machine or on a Ray cluster.

    pip install 'flexnn[ray]' pillow
    python examples/score_pictures.py MODEL.flexnn PICTURES --memory 32MiB --workers 2

The model is an ImageNet classifier whose artifact has a bound shape. Each worker holds a session inside the budget; Ray
reserves that memory for it (and what its process takes beside), shows progress, and starts a worker that dies again.
On a cluster (RAY_ADDRESS) model and pictures must be in a shared folder.
"""

from __future__ import annotations

import argparse
import io
from typing import Any

import numpy as np
from PIL import Image

import flexnn.ray

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of the colours of ImageNet's pictures."""
WORKER = "160MiB"
"""Memory that Python, numpy, Pillow and Ray take in a worker beside its session."""


class Prepare:
    """Maker of the model's input of files' bytes."""

    def __init__(self, name: str, height: int, width: int) -> None:
        self.name, self.height, self.width = name, height, width

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the input of a batch."""
        return {self.name: np.stack([self._pixels(file) for file in batch["bytes"]])}

    def _pixels(self, file: bytes) -> Any:
        picture = Image.open(io.BytesIO(file)).convert("RGB").resize((self.width, self.height))
        x = (np.asarray(picture, np.float32) / 255 - MEAN) / DEVIATION
        return x.astype(np.float32).transpose(2, 0, 1)


def main() -> None:
    """Read the command line, score, print."""
    parser = argparse.ArgumentParser(description="Classifies a folder of pictures with Ray.")
    parser.add_argument("model", help="artifact of a classifier")
    parser.add_argument("pictures", help="folder")
    parser.add_argument("--memory", default="32MiB", help="budget of each worker's session")
    parser.add_argument("--workers", type=int, help="default: as many as fit")
    options = parser.parse_args()
    import ray.data

    with flexnn.Session(options.model, options.memory, 1) as session:
        name, (_, _, height, width) = session.get_inputs()[0].name, session.get_inputs()[0].shape
        scores = session.get_outputs()[0].name
    files = ray.data.read_binary_files(options.pictures, include_paths=True)
    scored = flexnn.ray.score(
        files,
        options.model,
        memory=options.memory,
        prepare=Prepare(name, int(height), int(width)),
        keep=["path"],
        workers=options.workers,
        beside=WORKER,
    )
    rows = sorted(scored.take_all(), key=lambda row: str(row["path"]))
    for row in rows:
        best = int(np.argmax(row[scores]))
        print(f"{row['path']}  class {best}  score {row[scores][best]:.4f}")
    print(f"{len(rows)} pictures; {flexnn.ray.worker_bytes(options.model, options.memory) / 2**20:.1f} MiB a session")


if __name__ == "__main__":
    main()
