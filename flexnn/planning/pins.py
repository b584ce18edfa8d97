"""Bytes of the file that a program pins: programs of other graphs over the same weights pin the same ones."""

from __future__ import annotations

import numpy as np

from .types import I64, Program


class Pins:
    """Bytes of the file that are pinned."""

    def __init__(self, program: Program | None) -> None:
        """Take those of ``program``; None: nothing is pinned."""
        starts, sizes = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if program is not None and len(program.pinned):
            starts = program.pinned["file_offset"] + program.pinned["check_lead"]
            order = np.argsort(starts, kind="stable")
            starts, sizes = starts[order], program.pinned["check_bytes"][order].astype(np.int64)
        self._ends = starts + sizes
        self._starts = starts
        self._sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))

    def bytes_within(self, offset: I64, nbytes: I64) -> I64:
        """Return how many of ``nbytes`` bytes from each ``offset`` are pinned."""
        made: I64 = self._below(offset + nbytes) - self._below(offset)
        return made

    def _below(self, offset: I64) -> I64:
        """Return how many bytes before each offset are pinned."""
        at = np.searchsorted(self._starts, offset, "right")
        beyond = (
            np.where(at > 0, np.maximum(self._ends[np.maximum(at, 1) - 1] - offset, 0), 0) if len(self._ends) else 0
        )
        made: I64 = self._sums[at] - beyond
        return made
