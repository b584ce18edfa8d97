"""Memory and latency of one peer in this process, as JSON: ``python -m bench.footprint PEER MODEL [--threads N]``.

``added``: peak resident bytes over those after importing the peer, with the model opened and run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.catalogue import CATALOGUE
from bench.peers import MODULES, PEERS, bound_model

WARMUP = 2


def status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))


def reset_peak() -> int:
    """Makes the kernel forget the peak so far; bytes resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__.split("\n\n")[0])
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("model", choices=list(CATALOGUE))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=10)
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
    print(json.dumps({"added": added, "p50": statistics.median(times[WARMUP:]), "before": before}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
