"""A stored measurement against a new one of the same model on the same kind of machine."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

SAME = ("what", "source", "threads", "groups", "storage", "io", "isa", "cpu")
"""Fields that must be equal for times to be comparable. The version may differ: versions are compared."""

FILE_BYTES_MAX = 16 << 20


def load(path: str) -> dict[str, Any]:
    """Read a file that ``flexnn bench --json`` printed. Raises OSError, or ValueError that names what is wrong."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:  # a device never ends
            raise TypeError
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        if not isinstance(stored, dict) or not all(
            isinstance(row, dict) and isinstance(row["name"], str) and float(row["p50"]) > 0
            for row in stored["timings"]
        ):
            raise TypeError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError(f"{path}: not a file of flexnn bench --json") from None
    return stored


def compare(stored: dict[str, Any], new: dict[str, Any], tolerance: float) -> tuple[list[str], bool]:
    """Return lines that say how each timing changed, and whether any p50 grew by more than ``tolerance`` (0.1: 10 %).

    Raises ValueError where the two are not of the same model, machine or settings.
    """
    for key in SAME:
        if stored.get(key) != new[key]:
            raise ValueError(f"the two measurements differ in {key}: {stored.get(key)!r} and {new[key]!r}")
    before = {row["name"]: float(row["p50"]) for row in stored["timings"]}
    lines, slower = [], False
    for row in new["timings"]:
        if row["name"] not in before:
            lines.append(f"{row['name']:<22} new")
            continue
        ratio = row["p50"] / before[row["name"]]
        slower |= ratio > 1 + tolerance
        mark = "  SLOWER" if ratio > 1 + tolerance else ""
        lines.append(f"{row['name']:<22} p50 {before[row['name']]:8.2f} -> {row['p50']:8.2f} ms  {ratio:5.2f} x{mark}")
    return lines, slower
