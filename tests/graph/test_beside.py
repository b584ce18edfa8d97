"""The process that reads a model beside the one that compiles it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tests.support.hangs import HANG_SECONDS

SCRIPT = """
import os, sys, time
from flexnn.graph.beside import Beside
time.sleep(0.03)
print(Beside(sys.argv[1])._process, flush=True)
os._exit(0)
"""


def test_it_ends_when_nobody_takes_what_it_read(tmp_path: Path) -> None:
    """It waited for ever where that is more than a pipe holds, as it was a reader of the pipe itself."""
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"node {i} {'x' * 200}") for i in range(1000)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("t0", "t1000")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    command = [sys.executable, "-P", "-c", SCRIPT, str(tmp_path / "m.onnx")]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    end = time.monotonic() + HANG_SECONDS
    while _runs(int(said)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(int(said))


def _runs(process: int) -> bool:
    """Return whether a process is there that has not ended."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
