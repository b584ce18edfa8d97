"""Profiles for models with open shapes: measured when programs are first bound, kept for all later shapes.

The first shapes are measured like a model of fixed shapes. Times of other shapes follow from the scales (measured over
analytic time, by kernel), so that a new shape only costs its planning. An operator or kernel that is new is measured
with the first program that has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from flexnn import _core
from flexnn.artifact import Artifact
from flexnn.graph.ir import Graph
from flexnn.planning import MachineProfile
from flexnn.planning.types import Costs

from . import ROOM_MARGIN, cache
from .refine import Watch

_ASSUMED = MachineProfile(1.0, 1.0).storage_bytes_per_second


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
        self._key = cache.key_of(artifact, threads, direct_fd >= 0)
        self._kept = cache.load(self._key) or cache.Kept(MachineProfile.measure(), 0)

    @property
    def machine(self) -> MachineProfile:
        """The profile to plan for."""
        return self._as_planned(self._kept.machine)

    def lacks(self, graph: Graph, costs: Costs) -> bool:
        """Return whether the profile lacks times for operators or kernels of a program, or for the storage of its
        weights.
        """
        known = self._kept.machine
        names = {
            variant.kernel or node.op
            for node, found in zip(graph.nodes, costs.nodes, strict=True)
            for variant in found.variants
        }
        return bool(names - set(known.scales)) or (bool(graph.weights) and not self._reads)

    def measure(self, graph: Graph, arena_bytes: int) -> None:
        """Measure what a program adds, in ``arena_bytes`` that nothing else uses meanwhile, in at most about 2 s. If
        the file cannot be read, the run will report it.
        """
        self._progress("measuring kernels and storage, once for this model on this machine")
        from .device import measure_part

        most_bytes = max(arena_bytes - ROOM_MARGIN, 0)
        with contextlib.suppress(_core.EngineError, OSError):
            machine = measure_part(
                self._artifact,
                graph,
                self._direct_fd,
                self._threads,
                most_bytes,
                self._kept.machine,
                storage=not self._reads,
            )
            self._kept = cache.Kept(machine, max(most_bytes, self._kept.arena_bytes))
            cache.store(self._key, self._kept)

    def learn(self, watch: Watch) -> None:
        """Store a profile that a program's runs refined, for later sessions."""
        refined = watch.learnt(self._kept.machine)
        if refined:
            cache.store(self._key, cache.Kept(refined, self._kept.arena_bytes))

    @property
    def _reads(self) -> bool:
        """Whether the rates of the storage are measured."""
        return self._kept.machine.storage_bytes_per_second != _ASSUMED
