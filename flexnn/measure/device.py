"""Measuring this device with an artifact: times of kernels, of storage and of both at once, before a session runs.

This module is imported only if no profile is kept: most sessions do not need it.
"""

from __future__ import annotations

from dataclasses import replace

from flexnn.artifact import Artifact
from flexnn.graph.ir import Graph
from flexnn.median import median
from flexnn.planning import MachineProfile, Setting
from flexnn.planning.bands import banded
from flexnn.planning.costs import graph_costs
from flexnn.planning.types import Costs, io_alignment

from .compute import Case, Times, cases_of, measure_variants
from .storage import File, measure_overlap, measure_storage

COMPUTE_S, STORAGE_S = 1.2, 0.4
"""Approximate seconds for kernels and for storage; measuring their overlap takes about as long as storage."""
LATER_S = 0.3
"""Approximate seconds for kernels of operators that the first program of an artifact did not have."""


def measure_device(
    artifact: Artifact, direct_fd: int, threads: int, arena_bytes: int, kept: MachineProfile | None
) -> MachineProfile:
    """Return the profile with more measured than was ``kept``, in at most ``arena_bytes`` and about 2 s. EngineError,
    OSError.
    """
    graph = artifact.graph
    analytic = kept or MachineProfile.measure()

    def costs_of(form: Graph, every_variant: bool = False) -> Costs:
        return _analytic(form, analytic, threads, direct_fd, every_variant)

    tiled = banded(graph, costs_of(graph), costs_of)
    costs, times = costs_of(graph, every_variant=True), dict(analytic.times)
    forms = [(graph, costs), *([(tiled[0], costs_of(tiled[0], every_variant=True))] if tiled else [])]
    for form, known in forms:
        cases = cases_of(form, known, times)
        times |= measure_variants(form, known, cases, arena_bytes=arena_bytes, seconds=COMPUTE_S / len(forms))
    machine = replace(analytic, times=times, scales=_scales(cases_of(graph, costs, {}), times))
    if kept is None and graph.weights:
        machine = _with_storage(graph, costs, File(artifact.fd, direct_fd, artifact.crcs), machine, arena_bytes)
    return machine


def measure_part(
    artifact: Artifact,
    graph: Graph,
    direct_fd: int,
    threads: int,
    arena_bytes: int,
    known: MachineProfile,
    *,
    storage: bool,
) -> MachineProfile:
    """Return the ``known`` profile with operators and kernels that it lacks of a part of a model, bound to shapes, and
    with ``storage``. In at most ``arena_bytes`` and about 2 s. EngineError, OSError.
    """
    costs = _analytic(graph, known, threads, direct_fd, True)
    cases = [case for case in cases_of(graph, costs, {}) if _scale_name(case) not in known.scales]
    seconds = LATER_S if known.scales else COMPUTE_S
    times = measure_variants(graph, costs, cases, arena_bytes=arena_bytes, seconds=seconds)
    untold = dict.fromkeys(map(_scale_name, cases), 1.0)  # what cannot be measured is not tried again
    scales = {**known.scales, **untold, **_scales(cases, times)}
    machine = replace(known, times={**known.times, **times}, scales=scales)
    if storage and graph.weights:
        machine = _with_storage(graph, costs, File(artifact.fd, direct_fd, artifact.crcs), machine, arena_bytes)
    return machine


def _analytic(graph: Graph, machine: MachineProfile, threads: int, direct_fd: int, every_variant: bool) -> Costs:
    """Return costs by rates alone."""
    blank = replace(machine, times={}, scales={})
    setting = Setting(blank, threads, io_alignment(direct=direct_fd >= 0))
    return graph_costs(graph, setting, every_variant=every_variant)


def _with_storage(graph: Graph, costs: Costs, file: File, machine: MachineProfile, arena_bytes: int) -> MachineProfile:
    storage = measure_storage(graph, costs, file, arena_bytes=arena_bytes, seconds=STORAGE_S)
    if storage is None:
        return machine
    speeds = machine.compute_speed, machine.load_speed
    case = _typical(cases_of(graph, costs, {}), dict(machine.times), arena_bytes)
    if case:
        speeds = measure_overlap(graph, costs, file, case, storage, arena_bytes=arena_bytes)
    return replace(
        machine,
        storage_bytes_per_second=storage.bytes_per_second,
        request_s=storage.request_s,
        compute_speed=speeds[0],
        load_speed=speeds[1],
    )


def _scale_name(case: Case) -> str:
    """Return the name of a variant's scale: its kernel, or its operator."""
    return case.variant.kernel or case.key.partition(".")[0]


def _scales(cases: list[Case], times: Times) -> dict[str, float]:
    """Return the median ratio of measured to analytic time for each kernel or operator."""
    ratios: dict[str, list[float]] = {}
    for case in cases:
        if case.key in times and case.variant.seconds() > 0:
            ratios.setdefault(_scale_name(case), []).append(max(sum(times[case.key]), 1e-9) / case.variant.seconds())
    return {name: median(found) for name, found in ratios.items()}


def _typical(cases: list[Case], times: Times, arena_bytes: int) -> Case | None:
    """Return the measured convolution or product of median time that fits half of the arena; None if there is none."""
    usable = [
        case
        for case in cases
        if case.large and case.key in times
        if case.beside_bytes + case.large * case.costs.panel_bytes <= arena_bytes // 2
    ]
    usable.sort(key=lambda case: sum(times[case.key]))
    return usable[len(usable) // 2] if usable else None
