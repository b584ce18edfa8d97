"""What this device does with an artifact: times of kernels, storage and of both at once, taken before a session runs.

Imported where nothing is kept: most sessions need none of it.
"""

from __future__ import annotations

from dataclasses import replace

from flexnn.artifact import Artifact
from flexnn.artifact.format import PAGE
from flexnn.graph.ir import Graph
from flexnn.plan import Machine
from flexnn.plan.bands import banded
from flexnn.plan.profile import profile_graph
from flexnn.plan.types import LINE, Profile

from .compute import Case, Times, cases_of, measure_ways
from .median import median
from .storage import File, measure_shares, measure_storage

COMPUTE_S, STORAGE_S = 1.2, 0.4
"""About what measuring takes; the shares take about as long as the storage."""


def measure_device(artifact: Artifact, direct_fd: int, threads: int, room: int, kept: Machine | None) -> Machine:
    """Adds to what was ``kept``, in at most ``room`` bytes and about 2 s. EngineError, OSError."""
    graph = artifact.graph
    analytic = kept or Machine.measure()

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
    if kept is None and graph.weights:
        machine = _with_storage(graph, profile, File(artifact.fd, direct_fd, artifact.crcs), machine, room)
    return machine


def _with_storage(graph: Graph, profile: Profile, file: File, machine: Machine, room: int) -> Machine:
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
    return {name: median(found) for name, found in ratios.items()}


def _typical(cases: list[Case], times: Times, room: int) -> Case | None:
    """Among the convolutions and products measured the one of middling time, in half of the arena."""
    usable = [c for c in cases if c.large and c.key in times and c.beside + c.large * c.known.panel_bytes <= room // 2]
    usable.sort(key=lambda case: sum(times[case.key]))
    return usable[len(usable) // 2] if usable else None
