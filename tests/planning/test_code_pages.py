"""Memory of code that a small budget counts: what planning touches of numpy's (docs/decisions/0061), what opening
leaves of the engine's own (0134), and what runs map of it (0142).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flexnn
from tests.support.sessions import write_model

LOOK = """
import sys
import numpy
import flexnn, flexnn.planning, flexnn.run.fixed

def mapped():
    found, inside = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split(" ")[0]:
            inside = sys.argv[1] in line and "r-xp" in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found

before = mapped()
session = flexnn.Session(sys.argv[2], memory=sys.argv[3], threads=int(sys.argv[4]))
after = mapped()
session.run(None, {i.name: numpy.zeros(i.shape, i.numpy_dtype) for i in session.get_inputs()})
print(before, after, mapped())
"""
"""Prints the KiB of a library's code that are mapped before a session opens, after, and after a run."""
MOST = 384
"""KiB; 192 are measured, and 1,700 were before."""
RUN_MOST = 384
"""KiB; 272 are measured, and 776 were before."""


def mapped(library: str, folder: Path, threads: int) -> tuple[int, int, int]:
    """Return the KiB of a library's code that are mapped before a session opens in a small budget, after, and after a
    run.
    """
    path = flexnn.compile(write_model(folder / "m.onnx"))
    least = flexnn.plan(path, threads=threads, profile="measure").minimum_memory + (1 << 19)
    command = [sys.executable, "-P", "-c", LOOK, library, str(path), str(least), str(threads)]
    before, after, ran = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    if not before:
        pytest.skip("the system does not say which code is mapped")
    return before, after, ran


def test_planning_touches_little_of_numpys_code(tmp_path: Path) -> None:
    before, after, _ = mapped("_multiarray_umath", tmp_path, 2)
    assert after - before <= MOST


def test_code_that_opening_ran_is_given_back(tmp_path: Path) -> None:
    before, after, _ = mapped("_core.", tmp_path, 1)
    assert after <= before


def test_run_maps_little_beside_what_it_touches(tmp_path: Path) -> None:
    """Each touch maps the 64 KiB around it, unless they are several mappings."""
    if os.sysconf("SC_PAGESIZE") > 4096:
        pytest.skip("pages are larger")
    assert mapped("_core.", tmp_path, 1)[2] <= RUN_MOST
