"""Models of many programs: branches, loops and open shapes.

    ahead     what loading ahead gives a model with control flow, run on slow storage
    memory    memory under changing shapes, FlexNN's and onnxruntime's
    overhead  what a run of an open model costs beyond the engine's time
    shapes    many shapes in turn; a decoder whose cache grows
    turns     what a turn of a loop costs beyond its body
    vad       time of silero-VAD beside onnxruntime

python -m bench.control_flow PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

NAMES = ("ahead", "memory", "overhead", "shapes", "turns", "vad")

if __name__ == "__main__":
    sys.exit(dispatch("bench.control_flow", __doc__, {part: f"bench.control_flow.{part}" for part in NAMES}))
