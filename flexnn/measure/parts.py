"""Profiles of artifacts: what plans depend on is measured when it is first met, and kept.

A plan that keeps all weights in memory depends on the machine only where kernels are about as fast as each other: with
open shapes, these kernels are measured. A plan that streams weights depends on the rates of the storage and on every
operator, and so does a session of a bound graph, whose budget may change. A few milliseconds, when the session opens
or of the run that meets them, give scales (measured over analytic time, by kernel or operator), from which the times
of all shapes follow; so a new shape only costs its planning. What could not be measured is not tried again. When a
session ends that ran for long, its largest program is measured thoroughly, for the sessions that follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from flexnn import _core
from flexnn.artifact import Artifact
from flexnn.graph.ir import Graph
from flexnn.graph.operators import OPERATORS
from flexnn.planning import MachineProfile, Plan
from flexnn.planning.types import Costs

from . import ROOM_GROWS, ROOM_MARGIN, cache
from .cache import STORAGE
from .refine import Watch

LATER_SHARE, LATER_MIN_S, LATER_MAX_S = 0.05, 0.05, 2.0
"""Seconds of measuring thoroughly: a share of what the session's runs took; below the least it is left out."""
THOROUGH_S = 1.2
"""Seconds of measuring thoroughly where nobody waits for it."""
WORTH = 0.02
"""Share of a program's time in nodes of close kernels from which measuring these is worth it."""
THOROUGH = "thorough"
"""Name of a thorough measuring among what is tried."""
ROOM_ENOUGH = 8 << 20
"""Bytes of an arena in which all sizes of slices are measured (storage.py)."""


_ASSUMED = MachineProfile(1.0, 1.0).storage_bytes_per_second


class Lack(NamedTuple):
    """Names that the profile lacks for a program, and where to measure them."""

    names: frozenset[str]
    """Operators, kernels and STORAGE."""
    nodes: tuple[int, ...]
    """Nodes by which to measure operators and kernels."""
    streams: bool = False
    """Whether plans may read weights while they compute, so that these do not lie in memory from run to run."""


class Parts:
    """The profile for an artifact's programs as far as it is measured. ``as_planned`` converts it for planning."""

    def __init__(
        self,
        artifact: Artifact,
        direct_fd: int,
        threads: int,
        progress: Callable[[str], None],
        as_planned: Callable[[MachineProfile], MachineProfile],
    ) -> None:
        self._artifact, self._direct_fd, self._threads = artifact, direct_fd, threads
        self._progress, self._as_planned = progress, as_planned
        self.key = cache.key_of(artifact, threads, direct_fd >= 0)
        """Name of the profile."""
        self._kept = cache.load(self.key) or cache.Kept(MachineProfile.measure(), 0)

    @property
    def machine(self) -> MachineProfile:
        """The profile to plan for."""
        return self._as_planned(self._kept.machine)

    def lacks(self, graph: Graph, costs: Costs, plan: Plan) -> Lack | None:
        """Return what the profile lacks for a ``plan`` of a graph; None: nothing that was not tried."""
        tried = self._tried(plan.arena_bytes)
        if plan.is_streaming:
            lack = _all_of(graph)
        elif {kernel for node in graph.nodes for kernel in OPERATORS[node.op].kernels} <= tried:
            return None
        else:
            lack = _close(costs)
        names = lack.names - tried
        return lack._replace(names=names) if names else None

    @property
    def is_new(self) -> bool:
        """Whether nothing was tried yet."""
        return not self._kept.tried

    def lacks_any(self, graph: Graph, arena_bytes: int) -> Lack | None:
        """Return what the profile lacks for plans of a graph whatever their budget, the first one with an arena of
        ``arena_bytes``; None: nothing that was not tried.
        """
        lack = _all_of(graph)
        names = lack.names - self._tried(arena_bytes)
        return lack._replace(names=names) if names else None

    def _tried(self, arena_bytes: int) -> frozenset[str]:
        """Return what was measured, or could not be in an arena that was not much smaller."""
        kept = self._kept
        if not self._grew(arena_bytes):
            return kept.tried
        return kept.tried & {*kept.machine.scales, THOROUGH, *([STORAGE] if self._reads else [])}

    def _grew(self, arena_bytes: int) -> bool:
        """Return whether an arena of ``arena_bytes`` would measure much more than the one before."""
        return arena_bytes - ROOM_MARGIN > ROOM_GROWS * self._kept.arena_bytes

    def measure(self, graph: Graph, arena_bytes: int, lack: Lack) -> bool:
        """Measure what a program lacks, in ``arena_bytes`` that nothing else uses meanwhile, and in some milliseconds.
        Return whether the profile changed. If the file cannot be read, the run will report it.
        """
        before = self._kept.machine
        self._measure(graph, arena_bytes, lack, None)
        return self._kept.machine is not before

    def measure_thoroughly(self, graph: Graph, arena_bytes: int) -> None:
        """Measure all of a graph as well as can be, once, in ``arena_bytes`` that nothing else uses meanwhile."""
        if THOROUGH not in self._kept.tried or self._grew(arena_bytes):
            lack = _all_of(graph)
            self._measure(graph, arena_bytes, lack._replace(names=lack.names | {THOROUGH}), THOROUGH_S)

    def learn(self, watch: Watch, graph: Graph, costs: Costs | None, plan: Plan) -> None:
        """Keep for later sessions what the runs of a plan's program showed. If they took so long that the time does not
        matter, measure the program thoroughly instead, once, in the arena that it no longer uses: with ``costs``, only
        what the plan depends on, else all of the graph. A file that a closed engine kept, as its device did not answer,
        is not measured.
        """
        seconds = min(LATER_SHARE * watch.seconds, LATER_MAX_S)
        if seconds >= LATER_MIN_S and THOROUGH not in self._kept.tried and self._artifact.fd >= 0:
            lack = _all_of(graph) if plan.is_streaming or costs is None else _close(costs)
            if lack.names:
                self._measure(graph, plan.arena_bytes, lack._replace(names=lack.names | {THOROUGH}), seconds)
                return
        self.refine(watch)

    def refine(self, watch: Watch) -> None:
        """Keep for later sessions by how much runs were faster or slower than predicted."""
        refined = watch.learnt(self._kept.machine)
        if refined:
            cache.store(self.key, self._kept._replace(machine=refined))

    @property
    def _reads(self) -> bool:
        """Whether the rates of the storage are measured."""
        return self._kept.machine.storage_bytes_per_second != _ASSUMED

    def _measure(self, graph: Graph, arena_bytes: int, lack: Lack, seconds: float | None) -> None:
        """Measure in about ``seconds``; None: as little as tells something."""
        tried = self._kept.tried | lack.names
        most_bytes = max(arena_bytes - ROOM_MARGIN, 0)
        if not most_bytes:
            self._kept = self._kept._replace(tried=tried)
            return
        self._progress("measuring kernels and storage, once for this model on this machine")
        from .device import measure_part

        machine, names = self._kept.machine, lack.names
        device = cache.device_key_of(self._artifact, self._threads, self._direct_fd >= 0)
        if STORAGE in names and seconds is None:
            found = _of_device(cache.load(device), most_bytes)
            machine, names = (machine.with_storage_of(found), names - {STORAGE}) if found else (machine, names)
        before = machine
        with contextlib.suppress(_core.EngineError, OSError):
            machine = measure_part(
                self._artifact,
                replace(graph, nodes=[graph.nodes[i] for i in lack.nodes]),
                self._direct_fd,
                self._threads,
                most_bytes,
                machine,
                names=names,
                seconds=seconds,
                streams=lack.streams,
            )
        if STORAGE in names and machine.storage_bytes_per_second != before.storage_bytes_per_second:
            rates = MachineProfile(machine.flops_per_second, machine.bytes_per_second).with_storage_of(machine)
            cache.store(device, cache.Kept(rates, most_bytes))
        self._kept = cache.Kept(machine, max(most_bytes, self._kept.arena_bytes), tried)
        cache.store(self.key, self._kept)


def _of_device(kept: cache.Kept | None, arena_bytes: int) -> MachineProfile | None:
    """Return the rates that another artifact on the device was measured with, if that was in an arena that large."""
    return kept.machine if kept and kept.arena_bytes >= min(arena_bytes / ROOM_GROWS, ROOM_ENOUGH) else None


def measured_machine(artifact: Artifact, direct_fd: int, threads: int, arena_bytes: int) -> MachineProfile:
    """Return a profile of a bound graph that was measured thoroughly, now if not before, in at most ``arena_bytes`` and
    about 2 s: benches begin with it.
    """
    parts = Parts(artifact, direct_fd, threads, lambda _: None, lambda machine: machine)
    parts.measure_thoroughly(artifact.graph, arena_bytes)
    return parts.machine


def _all_of(graph: Graph) -> Lack:
    """Return all operators and kernels of a graph, and the storage of its weights."""
    names = {name for node in graph.nodes for name in OPERATORS[node.op].kernels or (node.op,)}
    streams = bool(graph.weights)
    return Lack(frozenset(names | ({STORAGE} if streams else set())), tuple(range(len(graph.nodes))), streams)


def _close(costs: Costs) -> Lack:
    """Return kernels that may be the fastest of their nodes, and the nodes that have several of them."""
    fastest_s = [min(variant.seconds() for variant in found.variants) for found in costs.nodes]
    nodes = [index for index, found in enumerate(costs.nodes) if found.close]
    if sum(fastest_s[index] for index in nodes) < WORTH * sum(fastest_s):
        return Lack(frozenset(), ())
    return Lack(frozenset(kernel for index in nodes for kernel in costs.nodes[index].close), tuple(nodes))
