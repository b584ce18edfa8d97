"""Profiles measured on the machine itself when a session first opens an artifact (docs/architecture.md, D9).

Measuring runs the engine on programs made for it, in an arena no larger than the session's own, while that is not
mapped. Its result is a ``MachineProfile``, which the user's cache folder keeps.
"""

from __future__ import annotations

from dataclasses import replace

from flexnn._core.engine_session import Trace
from flexnn.artifact import Artifact
from flexnn.planning import MachineProfile

from . import cache
from .refine import Spans, Watch

ROOM_MARGIN = 512 << 10
"""Bytes of the arena's size that are left to measuring itself."""
ROOM_GROWS = 1.25
"""Growth of the arena at which measuring again is worth it, for variants that did not fit before."""

__all__ = [
    "Spans",
    "Trace",
    "Watch",
    "kept_machine",
    "throttled",
]


def kept_machine(artifact: Artifact, threads: int, *, direct: bool) -> MachineProfile | None:
    """Return the profile that sessions measured before, with direct or buffered I/O; None if none is kept."""
    kept = cache.load(cache.key_of(artifact, threads, direct))
    return kept.machine if kept else None


def throttled(machine: MachineProfile, bytes_per_second: int) -> MachineProfile:
    """Return the machine with a loader that reads at most ``bytes_per_second`` and slows nothing in its pauses."""
    busy = min(bytes_per_second / machine.storage_bytes_per_second, 1.0)
    return replace(
        machine,
        storage_bytes_per_second=min(machine.storage_bytes_per_second, bytes_per_second),
        request_s=machine.request_s * busy,
        latency_s=machine.latency_s * busy,
        compute_speed=1.0 - (1.0 - machine.compute_speed) * busy,
        load_speed=1.0 - (1.0 - machine.load_speed) * busy,
    )
