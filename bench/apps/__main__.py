"""Figures that an application sees beside those of its runs.

    open      opening an ONNX file again, and its artifact, beside onnxruntime's session creation
    first     the first start ever: compile, measure, first result
    launcher  what flexnn exec adds to a program
    pool      three models in a pool, and in sessions of their own with as much memory
    ray       batch scoring in workers of Ray beside plain processes

python -m bench.apps PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

NAMES = ("open", "first", "launcher", "pool", "ray")

if __name__ == "__main__":
    sys.exit(dispatch("bench.apps", __doc__, {part: f"bench.apps.{part}" for part in NAMES}))
