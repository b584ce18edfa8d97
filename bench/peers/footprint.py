"""Memory and latency of one peer in this process, as JSON.

python -m bench.peers.footprint PEER MODEL [--threads N]

``added``: peak resident bytes over those after importing the peer, with the model opened and run.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.cli import cli
from bench.models.catalogue import CATALOGUE
from bench.peers.runtimes import MODULES, PEERS, bound_model
from bench.process import reset_peak, status
from bench.summary import median

WARMUP = 2


def main() -> int:
    parser = cli("bench.peers.footprint", __doc__, threads=2, repeat=10, is_json=False)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("model", choices=list(CATALOGUE))
    options = parser.parse_args()
    model = CATALOGUE[options.model]
    feed = model.feed(seed=0)
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        path = model.path
        if model.shapes:
            file.write(bound_model(path, model.shapes))
            file.flush()
            path = Path(file.name)
        importlib.import_module(MODULES[options.peer])
        before = reset_peak()
        peer = PEERS[options.peer](path, {}, options.threads)
        times = []
        for _ in range(WARMUP + options.repeat):
            start = time.perf_counter_ns()
            peer.run(feed)
            times.append((time.perf_counter_ns() - start) / 1e6)
        added = status("VmHWM") - before
    print(json.dumps({"added": added, "p50": median(times[WARMUP:]), "before": before}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
