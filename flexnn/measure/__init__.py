"""Profiles measured on the machine itself, when a session first opens an artifact (DESIGN D9).

What measuring finds becomes a ``Machine``, all that the planner needs to know; it is kept in the user's cache folder.
Measuring runs the engine on programs made for it, in an arena no larger than the session's own, before that is mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flexnn.artifact import Artifact
from flexnn.artifact.format import PAGE
from flexnn.graph.ir import Graph
from flexnn.plan import Machine
from flexnn.plan.bands import banded
from flexnn.plan.profile import profile_graph
from flexnn.plan.types import LINE, Profile

from . import cache
from .compute import Case, Times, cases_of, measure_ways, middle
from .refine import Trace, Watch
from .storage import File, measure_shares, measure_storage

COMPUTE_S, STORAGE_S = 1.2, 0.4
"""About what measuring takes; the shares take about as long as the storage."""
ROOM_MARGIN = 512 << 10
"""Of the arena, for what measuring itself needs."""
ROOM_GROWS = 1.25
"""An arena that is this much larger is worth measuring in what did not fit before."""

__all__ = ["Trace", "Watch", "keep_refined", "kept_machine", "measured_machine", "throttled"]


def kept_machine(artifact: Artifact, threads: int, *, direct: bool) -> Machine | None:
    """What sessions measured before, with direct I/O or buffered; None where nothing is kept."""
    kept = cache.load(cache.key_of(artifact, threads, direct))
    return kept.machine if kept else None


def measured_machine(
    artifact: Artifact, direct_fd: int, threads: int, arena_bytes: int, progress: Callable[[str], None]
) -> Machine:
    """What was measured before, or is now, in at most ``arena_bytes`` and about 2 s. EngineError, OSError."""
    key = cache.key_of(artifact, threads, direct_fd >= 0)
    kept = cache.load(key)
    room = arena_bytes - ROOM_MARGIN
    if kept and room <= kept.room * ROOM_GROWS:
        return kept.machine
    progress("measuring kernels and storage, once for this model on this machine")
    graph = artifact.graph
    analytic = kept.machine if kept else Machine.measure()

    def profiled(form: Graph, every_way: bool = False) -> Profile:
        align = PAGE if direct_fd >= 0 else LINE
        blank = replace(analytic, times={}, scales={})
        return profile_graph(form, threads=threads, io_align=align, machine=blank, every_way=every_way)

    tiled = banded(graph, profiled(graph), profiled)
    profile, times = profiled(graph, every_way=True), dict(analytic.times)
    forms = [(graph, profile), *([(tiled[0], profiled(tiled[0], every_way=True))] if tiled else [])]
    for form, known in forms:
        cases = cases_of(form, known, times)
        times |= measure_ways(form, known, cases, room=room, seconds=COMPUTE_S / len(forms))
    machine = replace(analytic, times=times, scales=_scales(cases_of(graph, profile, {}), times))
    file = File(artifact.fd, direct_fd, artifact.crcs)
    if kept is None and graph.weights:
        machine = _with_storage(artifact, profile, file, machine, room)
    cache.store(key, cache.Kept(machine, max(room, 0)))
    return machine


def keep_refined(artifact: Artifact, direct_fd: int, threads: int, machine: Machine) -> None:
    """Keeps what runs have told (``Watch.learnt``) for the sessions to come."""
    key = cache.key_of(artifact, threads, direct_fd >= 0)
    kept = cache.load(key)
    if kept:
        cache.store(key, replace(kept, machine=machine))


def throttled(machine: Machine, bytes_per_second: int) -> Machine:
    """The machine with a loader that reads at most ``bytes_per_second``: in the pauses it disturbs nobody."""
    busy = min(bytes_per_second / machine.storage_bytes_per_second, 1.0)
    return replace(
        machine,
        storage_bytes_per_second=min(machine.storage_bytes_per_second, bytes_per_second),
        request_s=machine.request_s * busy,
        compute_share=1.0 - (1.0 - machine.compute_share) * busy,
        load_share=1.0 - (1.0 - machine.load_share) * busy,
    )


def _with_storage(artifact: Artifact, profile: Profile, file: File, machine: Machine, room: int) -> Machine:
    graph = artifact.graph
    storage = measure_storage(graph, profile, file, room=room, seconds=STORAGE_S)
    if storage is None:
        return machine
    shares = machine.compute_share, machine.load_share
    case = _typical(cases_of(graph, profile, {}), dict(machine.times), room)
    if case:
        shares = measure_shares(graph, profile, file, case, storage, room=room)
    return replace(
        machine,
        storage_bytes_per_second=storage.bytes_per_second,
        request_s=storage.request_s,
        compute_share=shares[0],
        load_share=shares[1],
    )


def _scales(cases: list[Case], times: Times) -> dict[str, float]:
    """Measured over analytic time, the median for each kernel or operator."""
    ratios: dict[str, list[float]] = {}
    for case in cases:
        if case.key in times and case.way.seconds() > 0:
            name = case.way.kernel or case.key.partition(".")[0]
            ratios.setdefault(name, []).append(max(sum(times[case.key]), 1e-9) / case.way.seconds())
    return {name: middle(found) for name, found in ratios.items()}


def _typical(cases: list[Case], times: Times, room: int) -> Case | None:
    """Among the convolutions and products measured the one of middling time, in half of the arena."""
    usable = [c for c in cases if c.large and c.key in times and c.beside + c.large * c.known.panel_bytes <= room // 2]
    usable.sort(key=lambda case: sum(times[case.key]))
    return usable[len(usable) // 2] if usable else None
