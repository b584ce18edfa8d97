"""Attack: sessions that are opened and closed for a year.

Answer: what a session had is freed when it closes. Nothing is left for Python's collector of cycles, which would run at
other moments each time and let the heap grow until it did.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flexnn
from tests.support.gguf_models import write_talker
from tests.support.sessions import CHANNELS, SIDE, write_branched_model, write_model

TURNS = 8

USES = """
import gc, sys
from collections import Counter
import numpy as np
import flexnn

path, memory, turns, *shape = sys.argv[1:]
from flexnn.graph.descriptor import Descriptor
x = {"x": np.ones([int(extent) for extent in shape], np.float32)}

def use():
    with flexnn.Session(path, memory or None, threads=2, profile="analytic") as session:
        feed = {"input_ids": np.ones((1, 1), np.int64)} if session.state_capacity else x
        session.run(None, feed)
        session.memory = "32MiB"
        session.run(None, feed)
    with flexnn.Pool("64MiB", threads=2, profile="analytic") as pool:
        if not feed.keys() - x.keys():
            pool.open(path).run(None, feed)
            pool.open(path).close()
    try:
        Descriptor("/proc/self/mem").read(0, 4)  # a device that fails: the buffer and a descriptor stayed
    except OSError:
        pass

use()
gc.collect()
gc.disable()
gc.set_debug(gc.DEBUG_SAVEALL)
for _ in range(int(turns)):
    use()
    gc.collect()
print(dict(Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.garbage).most_common(12)))
"""
"""In a process of its own: what earlier tests left, and what the runner of tests does meanwhile, is not counted."""


@pytest.fixture(params=["closed", "open", "stateful"])
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "closed":
        return Path(flexnn.compile(write_model(tmp_path / "small.onnx")))
    if request.param == "stateful":
        write_talker(tmp_path / "t.gguf")
        return Path(flexnn.compile(tmp_path / "t.gguf", kv_capacity=64))
    return Path(flexnn.compile(write_branched_model(tmp_path / "open.onnx", 24, batch="n")))


@pytest.mark.parametrize("memory", [None, "24MiB"])
def test_closed_sessions_leave_no_cycles(artifact: Path, memory: str | None) -> None:
    shape = map(str, (1, CHANNELS, SIDE, SIDE))
    command = [sys.executable, "-P", "-c", USES, str(artifact), memory or "", str(TURNS), *shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{}"
