"""Measuring this device with an artifact: times of kernels, of storage and of both at once, before a session runs.

This module is imported only if no profile is kept: most sessions do not need it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from operator import itemgetter

from flexnn.artifact import Artifact
from flexnn.graph.ir import Graph
from flexnn.graph.operators import OPERATORS
from flexnn.median import median
from flexnn.planning import MachineProfile, Setting
from flexnn.planning.costs import graph_costs
from flexnn.planning.types import Costs, NodeCosts, io_alignment

from .cache import STORAGE
from .compute import Case, Times, cases_of, measure_variants
from .sample import sampled_scales, scale_name
from .storage import STEPS_MIN, File, measure_overlap, measure_storage, shared_speeds

TELLS = 2.0
"""Time of a node over that of reading its weights from which a sample of it tells how fast its kernels are."""
SAMPLES_S = 0.01
"""Approximate seconds for samples of what a run meets for the first time; half of that for storage."""


def measure_part(
    artifact: Artifact,
    graph: Graph,
    direct_fd: int,
    threads: int,
    arena_bytes: int,
    known: MachineProfile,
    *,
    names: Collection[str],
    seconds: float | None,
    streams: bool = False,
) -> MachineProfile:
    """Return the ``known`` profile with the operators and kernels in ``names``, measured by the nodes of a part of a
    model, and with the storage if it is among them. In at most ``arena_bytes``, and about ``seconds``; None: as little
    as tells something. ``streams``: the program reads weights, although the storage may be known. EngineError, OSError.
    """
    costs = _analytic(graph, known, threads, direct_fd, True)
    cases = [case for case in cases_of(graph, costs, {}) if scale_name(case) in names]
    times: Times = {}
    if seconds is None:
        telling = cases_that_tell(cases, known, streams=streams or STORAGE in names)
        found = sampled_scales(graph, costs, telling, arena_bytes=arena_bytes, seconds=SAMPLES_S, step_s=known.step_s)
    else:
        times = measure_variants(graph, costs, cases, arena_bytes=arena_bytes, seconds=seconds)
        found = _scales(cases, times)
    machine = replace(known, times={**known.times, **times}, scales=_with_kernels(known, cases, found))
    if STORAGE in names and graph.weights:
        file = File(artifact.fd, direct_fd, artifact.crcs)
        machine = _with_storage(graph, costs, file, machine, arena_bytes, (seconds or SAMPLES_S) / 2)
    return machine


def cases_that_tell(cases: list[Case], machine: MachineProfile, *, streams: bool) -> list[Case]:
    """Return the cases whose scales hold for other sizes: those that neither wait for their weights nor take about as
    long as a step by itself. Small maps do; in a sample their weights lie in a cache, so a kernel would look fast that
    is slow for large ones. Where the program ``streams`` weights, kernels and operators without such a case keep all of
    theirs.
    """
    telling = [case for case in cases if not case.costs.weight_bytes or _tells(case.costs, machine)]
    names = {scale_name(case) for case in telling}
    return telling + [case for case in cases if streams and scale_name(case) not in names]


def _tells(node: NodeCosts, machine: MachineProfile) -> bool:
    """Return whether all variants of a node with weights take long beside reading these, and beside a step."""
    reading_s = node.weight_bytes / machine.bytes_per_second
    return min(variant.channels_s for variant in node.variants) > max(TELLS * reading_s, 4 * machine.step_s)


def _with_kernels(known: MachineProfile, cases: list[Case], found: dict[str, float]) -> dict[str, float]:
    """Return the known scales with those ``found`` of ``cases``. Kernels that were never measured get the scale of the
    others: what slows these, like a busy machine, must not make the unknown ones look fast.
    """
    scales = {**known.scales, **found}
    kernels = {name for case in cases for name in OPERATORS[case.key.partition(".")[0]].kernels}
    measured = [scales[name] for name in kernels if name in found]
    if measured:
        scales |= {name: median(measured) for name in kernels if name not in scales}
    return scales


def _analytic(graph: Graph, machine: MachineProfile, threads: int, direct_fd: int, every_variant: bool) -> Costs:
    """Return costs by rates alone."""
    blank = replace(machine, times={}, scales={})
    setting = Setting(blank, threads, io_alignment(direct=direct_fd >= 0))
    return graph_costs(graph, setting, every_variant=every_variant)


def _with_storage(
    graph: Graph, costs: Costs, file: File, machine: MachineProfile, arena_bytes: int, seconds: float
) -> MachineProfile:
    """Return the machine with the rates of its storage, and of storage and kernels at once: ``seconds`` for each."""
    storage = measure_storage(graph, costs, file, arena_bytes=arena_bytes, seconds=seconds)
    if storage is None:
        return machine
    unmeasured = machine.compute_speed, machine.load_speed
    speeds = shared_speeds(costs.threads, direct=file.direct_fd >= 0) or unmeasured
    case = _typical(cases_of(graph, costs, {}), arena_bytes, seconds / STEPS_MIN / 2)
    if case:
        speeds = measure_overlap(graph, costs, file, case, storage, arena_bytes=arena_bytes, seconds=seconds)
    return replace(
        machine,
        storage_bytes_per_second=storage.bytes_per_second,
        request_s=storage.request_s,
        latency_s=storage.latency_s,
        compute_speed=speeds[0],
        load_speed=speeds[1],
    )


def _scales(cases: list[Case], times: Times) -> dict[str, float]:
    """Return the median ratio of measured to analytic time for each kernel or operator."""
    ratios: dict[str, list[float]] = {}
    for case in cases:
        if case.key in times and case.variant.seconds() > 0:
            ratios.setdefault(scale_name(case), []).append(max(sum(times[case.key]), 1e-9) / case.variant.seconds())
    return {name: median(found) for name, found in ratios.items()}


def _typical(cases: list[Case], arena_bytes: int, seconds: float) -> Case | None:
    """Return the convolution or product of median time that takes at most ``seconds``, or the shortest, with as many
    panels as half of the arena holds; None if there is none.
    """
    usable = []
    for case in cases:
        room = arena_bytes // 2 - case.beside_bytes
        if case.large and room >= case.costs.panel_bytes:
            case.large = min(case.large, room // case.costs.panel_bytes)
            usable.append((case.variant.seconds() * case.large / case.costs.panels, case))
    usable.sort(key=itemgetter(0))
    short = sum(taken <= seconds for taken, _ in usable)
    return usable[min(len(usable) // 2, max(short - 1, 0))][1] if usable else None
