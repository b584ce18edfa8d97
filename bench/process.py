"""Memory of this process, and commands in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import ROOT

MIB = 1 << 20
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
"""Environment of processes that import bench: PYTHONSAFEPATH may hide it. bench itself keeps flexnn's sources back."""
ALLOWANCE = MIB
"""Bytes by which a process may grow beyond its budget."""


def status(field: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))


def reset_peak() -> int:
    """Reset the peak of resident memory; return the bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def cpu_seconds(pid: int) -> float:
    """Return the seconds of CPU that all threads of a process have taken; 0 where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def module(name: str, *arguments: object) -> str:
    """Run ``python -m NAME ARGUMENTS``, a module of bench, in a process of its own; return what it prints."""
    command = [sys.executable, "-m", name, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["?"]
        raise SystemExit(f"error: {' '.join(command[2:])}: {told[-1]}")
    return done.stdout


def flexnn(*arguments: object) -> dict[str, Any]:
    """Return the object that ``flexnn ARGUMENTS --json`` prints."""
    command = [sys.executable, "-P", "-m", "flexnn", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"flexnn {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
