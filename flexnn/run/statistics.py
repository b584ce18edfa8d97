"""Figures that every run gives about itself."""

from __future__ import annotations

from typing import Any

from flexnn.planning import MachineProfile

FIGURES = ("run_ns", "stall_ns", "bytes_read")
"""Names of a run's figures."""


def machine_statistics(machine: MachineProfile) -> dict[str, Any]:
    """Return what plans know of the machine: how many times and scales of kernels were measured, and the storage's
    rate.
    """
    known = len(machine.times) + len(machine.scales)
    return {"measured_times": known, "storage_bytes_per_second": machine.storage_bytes_per_second}
