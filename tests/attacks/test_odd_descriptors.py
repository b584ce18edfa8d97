"""Descriptors in the way of the process that compiles: what it prints comes through the pipe, wherever that lies."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import os, sys
from flexnn.kept_artifacts import spawned

first, shown = int(sys.argv[1]), sys.argv[2] == "shown"
taken = []
while (fd := os.open(os.devnull, os.O_RDONLY)) < first - 1:
    taken.append(fd)
script = "echo out; echo err >&2; test -e /dev/fd/9 && echo told >&9; exit 7"
status, said = spawned(["/bin/sh", "-c", script], shown=shown)
os.write(2, b"%d %r" % (status, said))
"""


@pytest.mark.parametrize("shown", ["shown", "hidden"])
@pytest.mark.parametrize("first", [3, 5, 7, 8, 9, 10])
def test_the_pipe_has_any_number(first: int, shown: str) -> None:
    """The descriptor for progress took the place of the pipe where that had its number: an open model could not be
    compiled from a terminal ("compiling ended with status 0").
    """
    done = subprocess.run([sys.executable, "-c", CHILD, str(first), shown], capture_output=True, check=True)
    told = b"told\n" if shown == "shown" else b""
    assert done.stderr.startswith(told)
    status, _, said = done.stderr.removeprefix(told).partition(b" ")
    assert status == (b"7" if said else b"")
    assert eval(said).startswith(b"out\nerr\n")
