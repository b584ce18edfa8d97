"""Faults in a process of its own: tests/support/faults.c, built and preloaded."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hangs import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("read", "write", "open", "rename", "link", "sync", "allocate", "map", "thread")
"""Calls that can fail, in the order of the library."""
SPILLING = ("store", "tear", "flip")
"""Those of spill files, which follow in the library: writes at an offset that fail, or that take half of what they say
they took, and reads that bring other bytes.
"""


def build(folder: Path) -> Path:
    """Build the library in ``folder``; return its path. Skips the test where no C compiler makes programs for this
    machine, which may be emulated.
    """
    if shutil.which("cc") is None or platform.machine() not in _cc_machine():
        pytest.skip("no C compiler for this machine")
    library = folder / "faults.so"
    source = ROOT / "tests/support/faults.c"
    command = ["cc", "-std=gnu11", "-O1", "-w", "-fPIC", "-shared", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def _cc_machine() -> str:
    return subprocess.run(["cc", "-dumpmachine"], capture_output=True, text=True, check=True).stdout


def run(library: Path, folder: Path, module: str, *arguments: object, timeout: float = HANG_SECONDS) -> str:
    """Run a module of the tests with the library preloaded; return what it prints. ``folder``: of the files that fail.
    Raises AssertionError with what it says if it fails, and subprocess.TimeoutExpired if it hangs.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-X",
            "faulthandler",
            "-c",
            _START.format(module=module),
            str(ROOT),
            *map(str, arguments),
        ],
        env={**os.environ, "LD_PRELOAD": str(library), "FAULTS_FOLDER": str(folder), "FLEXNN_PROFILE": "analytic"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


_START = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("{module}", run_name="__main__", alter_sys=False)
"""


class Faults:
    """The preloaded library of this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def arm(self, kind: str, number: int, *, always: bool = False, error: int = 0, wait_ms: int = 0) -> None:
        """Let the call with a number, from 1, and with ``always`` those after it, fail with an errno or wait."""
        self._library.faults_arm((*KINDS, *SPILLING).index(kind), ctypes.c_long(number), int(always), error, wait_ms)

    def disarm(self) -> int:
        """End that; return how many calls of the kind there were."""
        return int(self._library.faults_disarm())
