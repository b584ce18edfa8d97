"""Kernels in models of few nodes.

    single      single layers, warm: FlexNN against the peers installed here (default)
    attention   attention sliced by heads and queries against scores that exist whole

python -m bench.kernels PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

if __name__ == "__main__":
    PARTS = {part: f"bench.kernels.{part}" for part in ("single", "attention")}
    sys.exit(dispatch("bench.kernels", __doc__, PARTS, default="single"))
