"""Rates of the storage, and the slowdown of loads and steps that overlap: the engine itself reads slices of the
artifact.

Slices of two sizes give bytes per second and seconds per request, first alone, then while steps compute. The loader
reads several at once, so the time of a slice is the time that it adds to those before it. Big and small ones are not
read at once: the last of each kind lies where the first of the next kind goes. Big ones in one place, each of which
waits for the one before it, give the latency. Runs find the file in one of two states: if the page cache can hold all
of it, reading a second time is measured; if not, or with direct I/O, reading from the device. What lies in the page
cache is read from as many places of the file as a run would, because a copy out of the CPU's cache is up to 1.5 times
as fast as one out of memory.
"""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from flexnn import _core
from flexnn._core import DIRECT_ALIGN
from flexnn.graph.ir import Graph
from flexnn.median import median, quantile
from flexnn.planning.program import load_rows
from flexnn.planning.types import LINE, Costs, align_up
from flexnn.quick_dataclass import quick_dataclass

from .cache import cache_holds
from .compute import Bench, Case
from .refine import lengths, overlaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .refine import Times

BIG_BYTES, SMALL_BYTES = 1 << 20, 96 << 10
"""Bytes that big and small slices aim at; slices are whole panels."""
SLICES_MAX, OF_WEIGHT_MAX = 64, 16
"""Most slices of each size, and most of them of one weight: together more than the CPU's cache holds."""
PROBE_SLICES, PROBE_SHARE = 2, 0.5
"""Slices of a size that tell how many are affordable, and what share of the time a run of all may take."""
FIT_TURNS = 8
"""Turns in which latency and rates are found, each by the other; an error is halved by each turn."""
SMALL_PER_BIG = 4
"""Small slices for each big one: of few, the latency that they take once would count as time of each request."""
HUGE_BYTES = 2 << 20
"""Bytes of a huge page, into which devices write faster (docs/decisions/0013-direct-reads.md)."""
RUNS_MAX = 9
READS_PER_STEP_TIME = 0.4
"""Time of the loads of a run that also computes, as a fraction of the time of its steps."""
STEPS_MIN = 8
"""Fewest of these steps."""
SPEED_MIN = 0.05
GROUPS, GROUP_MIN, STEADY = 8, 4, 0.25
"""Most groups of slices of a kind in a run, fewest slices of a group, and the fraction of all groups that were faster
than the one that is believed where the page cache is read. Where two threads read, a slice that arrives with the one
before it adds no time. Copying takes the same time whenever it goes on, so what is slower is other work on the machine:
a slice whose thread waits for a CPU takes a hundred times as long.
"""
DEVICE = 0.25
"""The same of runs where a device is read."""
BESIDE = 0.9
"""Least share of a slice's time in which a step goes on, of a slice that is read beside steps."""
BESIDE_MIN = 0.25
"""Fewest steps beside loads that tell how fast these are, as a multiple of the others."""
BYTES_SHARE_MIN = 0.25
"""Least share of a big slice's time that its bytes take, whatever noise says."""
TARGET_BYTES, CACHED_TARGET_BYTES = 16 << 20, 4 << 20
"""Bytes that the slices' places rotate through: whole huge pages, as an arena has them. Where the page cache is read,
as many as a plan streams through, which stay in the CPU's cache."""


@quick_dataclass(slots=True, frozen=True)
class Storage:
    """Rates of the loader."""

    bytes_per_second: float
    request_s: float
    latency_s: float = 0.0


@quick_dataclass(slots=True, frozen=True)
class File:
    """The open file of an artifact: ``crcs`` of its chunks; ``direct_fd`` is -1 for buffered reads."""

    fd: int
    direct_fd: int
    crcs: NDArray[np.uint32]


Slice = tuple[int, int, int]
"""Weight, offset in the file, bytes."""
Loads = np.ndarray[tuple[int], np.dtype[np.void]]


def measure_storage(graph: Graph, costs: Costs, file: File, *, arena_bytes: int, seconds: float) -> Storage | None:
    """Return the rates of reading alone, measured in about ``seconds`` in an arena of ``arena_bytes``; None if no slice
    is large enough.
    """
    end = time.perf_counter() + seconds
    room = arena_bytes - costs.zeros_bytes - 2 * DIRECT_ALIGN
    kinds = _kinds(_slices(graph, costs, room))
    if not kinds:
        return None
    drop = file.direct_fd < 0 and not cache_holds(file.fd)
    is_copied = file.direct_fd < 0 and not drop
    parts = _parts(kinds, PROBE_SLICES)
    times = _read(graph, costs, file, parts, room, end, drop)
    run_s = quantile([sum(run) for run in times], 0.0 if is_copied else 0.5)
    affordable = int(seconds * PROBE_SHARE / max(run_s, 1e-9) * PROBE_SLICES)
    if affordable > PROBE_SLICES:
        parts = _parts(kinds, affordable)
        times = _read(graph, costs, file, parts, room, end, drop)
    return _fit([[size for *_, size in part] for part in parts], times, is_copied=is_copied)


def measure_overlap(
    graph: Graph, costs: Costs, file: File, case: Case, storage: Storage, *, arena_bytes: int, seconds: float
) -> tuple[float, float]:
    """Return the speeds of computing while a load is read and of loads while steps compute, as fractions of those
    alone, measured in about ``seconds``.

    Steps of ``case`` outlast the loads of each run, so one run has steps with and without loads.
    """
    step_s = case.variant.seconds() * (case.large / case.costs.panels if case.large else 1.0)
    taken = case.beside_bytes + costs.zeros_bytes + case.large * case.costs.panel_bytes
    room = (arena_bytes - taken) // DIRECT_ALIGN * DIRECT_ALIGN - DIRECT_ALIGN
    most = int(seconds * READS_PER_STEP_TIME / 2 * storage.bytes_per_second)  # in two runs
    slices = _largest(_slices(graph, costs, room), most)
    if not slices:
        return 1.0, 1.0
    bench = Bench(graph, costs, align_up(max(case.large * case.costs.panel_bytes, LINE)))
    reading = sum(size / storage.bytes_per_second + storage.request_s for *_, size in slices)
    steps = max(int(reading / READS_PER_STEP_TIME / max(step_s, 1e-6)), STEPS_MIN)
    while steps > 400 and len(slices) > 2:
        slices, steps = slices[: len(slices) // 2], steps // 2
    end = time.perf_counter() + seconds
    for _ in range(steps):
        bench.add(case, case.large)
    at = align_up(bench.arena_bytes, DIRECT_ALIGN)
    loads, arena = _encode(graph, costs, slices, _rotating(costs, slices, at, _target(file, room)))
    session = bench.open(loads, file.crcs, file.fd, file.direct_fd, arena)
    sizes = [size for *_, size in slices]
    is_copied = file.direct_fd < 0 and cache_holds(file.fd)
    taken_ns, beside_ns = array("d"), array("d")
    read: list[float] = []
    per_byte: list[float] = []
    try:
        while len(read) < 2 or time.perf_counter() < end:
            session.run([])
            assert session.spans
            computed, loaded = session.spans
            read.append(sum(lengths(loaded)))
            per_byte += _beside_per_byte(sizes, loaded, computed)
            taken_ns += lengths(computed[2:])
            beside_ns += overlaps(computed[2:], loaded)
    finally:
        session.close()
    # Other work on the machine makes some slices and steps much slower, but what is typical for them stays.
    took_ns = sum(sizes) * median(per_byte) if is_copied and per_byte else quantile(read, DEVICE)
    speeds = _compute_speed(taken_ns, beside_ns), 1e9 * reading / max(took_ns, 1.0)
    least = shared_speeds(costs.threads, direct=file.direct_fd >= 0)
    speeds = speeds if least is None else (least[0], max(speeds[1], least[1]))
    return min(max(speeds[0], SPEED_MIN), 1.0), min(max(speeds[1], SPEED_MIN), 1.0)


def shared_speeds(threads: int, *, direct: bool) -> tuple[float, float] | None:
    """Return the speed of computing while a load is read, and the least of loads while steps compute, as fractions of
    those alone, where compute threads read (engine/loader.c): all of them if nothing is computed, else one, while the
    others compute. None: readers have CPUs, or wait for the device.
    """
    is_shared = not direct and threads > 1 and _core.usable_cpus() - threads < 1
    return ((threads - 1) / threads, 1 / threads) if is_shared else None


def _compute_speed(taken: Sequence[float], beside: Sequence[float]) -> float:
    """Return the speed of steps while loads were read, as a fraction of that of other steps, by the times that they
    took and those of them beside loads; 1 where too few are of either kind. Where loads and steps had to share a CPU,
    all loads are read beside a step or two.
    """
    alone = [time for time, read in zip(taken, beside, strict=True) if not read]
    if not alone:
        return 1.0
    least = median(alone)
    lost = [(time - least) / read for time, read in zip(taken, beside, strict=True) if read]
    return 1 - median(lost) if len(lost) >= BESIDE_MIN * len(alone) else 1.0


def _slices(graph: Graph, costs: Costs, room: int) -> list[Slice]:
    """Return big and small slices in turn, spread over the file, none larger than ``room`` allows."""
    found: list[list[Slice]] = [[], []]
    for kind, wanted in enumerate((min(BIG_BYTES, room // 2), SMALL_BYTES)):
        every: list[Slice] = []
        for number, weight in enumerate(graph.weights):
            chunk = weight.chunk_bytes
            size = max(min(wanted, weight.nbytes) // chunk, 1) * chunk if weight.nbytes >= chunk else weight.nbytes
            if 0 < size <= 2 * wanted and costs.room_bytes(size) <= room:
                count = min(weight.nbytes // size, OF_WEIGHT_MAX)
                every += [(number, weight.offset + i * size, size) for i in range(count)]
        stride = max(len(every) // SLICES_MAX, 1)
        found[kind] = every[::stride][:SLICES_MAX]
    return [found_slice for pair in zip_longest(*found) for found_slice in pair if found_slice]


def _largest(slices: list[Slice], most: int) -> list[Slice]:
    """Return the largest slices, which bring most of what runs read, up to ``most`` bytes but at least one. Few small
    ones would be copied out of the CPU's cache.
    """
    ordered = sorted(slices, key=itemgetter(2), reverse=True)
    taken = [*accumulate(size for *_, size in ordered)]
    return ordered[: max(bisect_right(taken, most), 1)]


def _kinds(slices: list[Slice]) -> list[list[Slice]]:
    """Return the big slices and the small ones; all together where there is one kind."""
    mean = sum(size for *_, size in slices) / max(len(slices), 1)
    kinds = [each for each in slices if each[2] > mean], [each for each in slices if each[2] <= mean]
    return [kind for kind in kinds if kind]


def _parts(kinds: list[list[Slice]], count: int) -> list[list[Slice]]:
    """Return so many big slices, more small ones, and half as many big ones that are read one after the other."""
    counts = count, SMALL_PER_BIG * count
    return [*(kind[:most] for kind, most in zip(kinds, counts, strict=False)), kinds[0][: max(count // 2, 1)]]


def _encode(graph: Graph, costs: Costs, slices: list[Slice], addresses: list[int]) -> tuple[Loads, int]:
    """Return loads of the slices to these places, and the bytes of the arena up to the last of them."""
    weights, offsets, sizes = zip(*slices, strict=True)
    rows = [*load_rows(graph, weights, offsets, sizes, addresses, costs.io_align)]
    loads = np.array(rows, _core.LOAD_DTYPE)
    return loads, align_up(int((loads["address"] + loads["bytes"]).max()), costs.io_align)


def _target(file: File, room: int) -> int:
    """Return the bytes that places rotate through, of ``room``."""
    return min(room, TARGET_BYTES if file.direct_fd >= 0 else CACHED_TARGET_BYTES)


def _rotating(costs: Costs, slices: list[Slice], start: int, room: int) -> list[int]:
    """Return places of the slices, one behind the other from ``start`` on, again and again in ``room``."""
    sizes = [align_up(costs.room_bytes(size), costs.io_align) for *_, size in slices]
    end, at, found = start + max(room, *sizes), start, list[int]()
    for size in sizes:
        at = at if at + size <= end else start
        found.append(at)
        at += size
    return found


def _apart(costs: Costs, parts: list[list[Slice]], start: int, room: int) -> list[int]:
    """Return places of the slices of all parts; those of the last part, and the last ones of each, are ``start``, where
    the next part begins.
    """
    *kinds, in_turn = parts
    places: list[int] = []
    for kind in kinds:
        places += [*_rotating(costs, kind, start, room)[:-1], start]
    return places + [start] * len(in_turn)


def _read(
    graph: Graph, costs: Costs, file: File, parts: list[list[Slice]], room: int, end: float, drop: bool
) -> list[list[float]]:
    """Return the seconds of each slice in each run until ``end``; ``drop``: each run finds the page cache empty."""
    bench = Bench(graph, costs, LINE)
    at = align_up(bench.arena_bytes, DIRECT_ALIGN)
    slices = [each for part in parts for each in part]
    loads, arena = _encode(graph, costs, slices, _apart(costs, parts, at, _target(file, room)))
    whole = align_up(arena, HUGE_BYTES)
    session = bench.open(loads, file.crcs, file.fd, file.direct_fd, whole if whole - at <= room else arena)
    times: list[list[float]] = []
    try:
        while len(times) < 2 or (len(times) < RUNS_MAX and time.perf_counter() < end):
            if drop:
                for _, offset, size in slices:
                    os.posix_fadvise(file.fd, offset, size, os.POSIX_FADV_DONTNEED)
            session.run([])
            assert session.trace
            times.append([(last - first) * 1e-9 for first, last in session.trace[1]])
    finally:
        session.close()
    return times[1:]


def _per_byte(sizes: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Return the seconds for a byte of each group of slices that follow each other in a run."""
    count = len(sizes)
    groups = min(GROUPS, max(count // GROUP_MIN, 1))
    bounds = sorted({count * i // groups for i in range(groups + 1)})
    return [sum(seconds[a:b]) / sum(sizes[a:b]) for a, b in pairwise(bounds)]


def _beside_per_byte(sizes: Sequence[int], loads: Times, steps: Times) -> list[float]:
    """Return the same, in the unit of times, for slices that were read while steps went on: where none does, the caller
    reads, too.
    """
    beside = zip(sizes, lengths(loads), overlaps(loads, steps), strict=True)
    kept = [(size, taken) for size, taken, shared in beside if shared >= BESIDE * taken]
    return _per_byte([size for size, _ in kept], [taken for _, taken in kept])


def _fit(parts: list[list[int]], times: list[list[float]], *, is_copied: bool = False) -> Storage:
    """Return the rates by the sizes of slices and their times in each run. A kind takes the latency once, slices that
    are read in turn each take it. It is not believed to be more than a big slice takes. ``is_copied``: the page cache
    is read.
    """
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    runs = [[run[first:last] for run in times] for first, last in pairwise(ends)]
    took = [
        sum(part) * quantile([taken for run in of_part for taken in _per_byte(part, run)], STEADY)
        if is_copied
        else median([*map(sum, of_part)])
        for part, of_part in zip(parts, runs, strict=True)
    ]
    counts, in_turn = [len(part) for part in parts], parts[-1]
    mean = [sum(part) / len(part) for part in parts]
    found = Storage(1.0, 0.0)
    for _ in range(FIT_TURNS if counts[0] > 1 else 1):
        adds = [max(all_s - found.latency_s, all_s / 2) / count for all_s, count in zip(took, counts, strict=True)]
        most = adds[0] / mean[0]
        per_byte = most
        if len(parts) > 2:
            per_byte = min(max((adds[0] - adds[1]) / (mean[0] - mean[1]), BYTES_SHARE_MIN * most), most)
        request = max(adds[0] - per_byte * mean[0], 0.0)
        latency = took[-1] / len(in_turn) - request - per_byte * mean[-1] if counts[0] > 1 else 0.0
        latency = min(max(latency, 0.0), adds[0])
        found = Storage(1 / per_byte, request, latency)
    return found
