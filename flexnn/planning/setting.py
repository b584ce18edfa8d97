"""The setting of a plan: everything that a graph's plans depend on, apart from the graph and the budget."""

from __future__ import annotations

from typing import NamedTuple

from .machine import MachineProfile
from .overhead import Overhead, overhead_bytes
from .types import LINE


class Setting(NamedTuple):
    """Machine, threads and I/O of the sessions that a plan is for."""

    machine: MachineProfile
    """Rates and measured times."""
    threads: int = 1
    """Compute threads."""
    io_align: int = LINE
    """Alignment of reads in bytes (``types.io_alignment``)."""
    overhead: Overhead = overhead_bytes
    """Function that counts the bytes of a session outside its arena."""
    deterministic: bool = False
    """Whether each node's kernel is chosen by its weight alone, and activations stay whole: so nothing that outputs
    depend on is decided by times, threads or budget.
    """
    spills: bool = False
    """Whether activations may lie in a spill file (planning/spilling.py)."""
