"""Profiles measured on the machine itself when a session first opens an artifact (docs/architecture.md, D9).

Measuring runs the engine on programs made for it, in an arena no larger than the session's own, before that is mapped.
Its result is a ``MachineProfile``, which the user's cache folder keeps.
"""

from __future__ import annotations

from collections.abc import Callable
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
    "keep_refined",
    "kept_machine",
    "kept_profile",
    "measured_machine",
    "suffices",
    "throttled",
]


def kept_machine(artifact: Artifact, threads: int, *, direct: bool) -> MachineProfile | None:
    """Return the profile that sessions measured before, with direct or buffered I/O; None if none is kept."""
    kept = kept_profile(artifact, threads, direct=direct)
    return kept.machine if kept else None


def kept_profile(artifact: Artifact, threads: int, *, direct: bool) -> cache.Kept | None:
    """Return what sessions measured before, and in how large an arena; None if nothing is kept."""
    return cache.load(cache.key_of(artifact, threads, direct))


def suffices(kept: cache.Kept, arena_bytes: int) -> bool:
    """Return whether an arena of ``arena_bytes`` would not measure much more than what is kept."""
    return arena_bytes - ROOM_MARGIN <= kept.arena_bytes * ROOM_GROWS


def measured_machine(
    artifact: Artifact, direct_fd: int, threads: int, arena_bytes: int, progress: Callable[[str], None]
) -> MachineProfile:
    """Return the profile measured before, or measure it now, in at most ``arena_bytes`` and about 2 s. EngineError,
    OSError.
    """
    key = cache.key_of(artifact, threads, direct_fd >= 0)
    kept = cache.load(key)
    if kept and suffices(kept, arena_bytes):
        return kept.machine
    progress("measuring kernels and storage, once for this model on this machine")
    from .device import measure_device

    usable_bytes = arena_bytes - ROOM_MARGIN
    machine = measure_device(artifact, direct_fd, threads, usable_bytes, kept.machine if kept else None)
    cache.store(key, cache.Kept(machine, max(usable_bytes, 0)))
    return machine


def keep_refined(artifact: Artifact, direct_fd: int, threads: int, machine: MachineProfile) -> None:
    """Store a profile that runs refined (``Watch.learnt``) for later sessions."""
    key = cache.key_of(artifact, threads, direct_fd >= 0)
    kept = cache.load(key)
    if kept:
        cache.store(key, kept._replace(machine=machine))


def throttled(machine: MachineProfile, bytes_per_second: int) -> MachineProfile:
    """Return the machine with a loader that reads at most ``bytes_per_second`` and slows nothing in its pauses."""
    busy = min(bytes_per_second / machine.storage_bytes_per_second, 1.0)
    return replace(
        machine,
        storage_bytes_per_second=min(machine.storage_bytes_per_second, bytes_per_second),
        request_s=machine.request_s * busy,
        compute_speed=1.0 - (1.0 - machine.compute_speed) * busy,
        load_speed=1.0 - (1.0 - machine.load_speed) * busy,
    )
