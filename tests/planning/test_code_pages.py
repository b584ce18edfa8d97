"""Memory of numpy's code that planning a small budget touches (docs/decisions/0061)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flexnn
from tests.support.sessions import write_model

LOOK = """
import sys
import flexnn, flexnn.planning, flexnn.run.fixed

def mapped():
    found, inside = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split(" ")[0]:
            inside = "_multiarray_umath" in line and "r-xp" in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found

before = mapped()
flexnn.Session(sys.argv[1], memory=sys.argv[2], threads=2).close(); print(before, mapped() - before)
"""
MOST = 384
"""KiB; 192 are measured, and 1,700 were before."""


def test_planning_touches_little_of_numpys_code(tmp_path: Path) -> None:
    path = flexnn.compile(write_model(tmp_path / "m.onnx"))
    least = flexnn.plan(path, threads=2, profile="measure").minimum_memory + (1 << 19)
    command = [sys.executable, "-P", "-c", LOOK, str(path), str(least)]
    before, more = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    if not before:
        pytest.skip("the system does not say which code is mapped")
    assert more <= MOST
