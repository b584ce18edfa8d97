"""FlexNN beside other runtimes, and beside plain processes and sessions.

    compare   whole models against the peers installed here (default)
    open      opening an ONNX file again, and its artifact, beside onnxruntime's session creation
    beside    runs between those of onnxruntime in the same process, whose threads are in the way
    first     the first start ever: compile, measure, first result
    launcher  what flexnn exec adds to a program
    pool      three models in a pool, and in sessions of their own with as much memory
    text      decoding and prompts of a language model beside llama.cpp
    greedy    text of a language model in float32 beside onnxruntime: whether it is the same, and how fast
    pairs     an encoder and a decoder beside onnxruntime
    ray       batch scoring in workers of Ray beside plain processes

python -m bench.peers PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

if __name__ == "__main__":
    NAMES = ("compare", "open", "beside", "first", "launcher", "pool", "text", "greedy", "pairs", "ray")
    PARTS = {part: f"bench.peers.{part}" for part in NAMES}
    sys.exit(dispatch("bench.peers", __doc__, PARTS, default="compare"))
