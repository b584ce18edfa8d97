"""The bound that no plan of a budget can beat (DESIGN D9), on the planner's own profile and storage model.

Let weights flow byte by byte and memory never fragment; steps cost nothing; each node computes as fast as its fastest
kernel that could fit at all; and what is read of a weight takes at least one request, or one for each time that it
fills the memory free at its node (a share of them, for a share of the weight). Then of every plan that keeps some bytes
r of each node's weights pinned (R together) and reads the others once in each run there remains:

1. The loader reads all weights but r in each run, one after the other.
2. While node a computes, at most free(a) bytes of weights are in memory: the arena less the activations alive and a's
   smallest workspace. Of the weights of nodes a .. b at most free(a) - (R - R_ab) bytes were there when a began, as the
   R - R_ab pinned bytes of other nodes were there, too. The others are read before b ends. So from a's begin to b's end
   at least the time passes that it takes to read them, whichever they are.
3. Stretches a .. b that do not meet on the circle of runs take their times one after the other, and so do the nodes
   outside of them, which compute.

Reading and computing at the same time slow each other down: a second of computing inside of a stretch costs it at least
(1 - load_share) / compute_share, and a second of reading outside of one (1 - compute_share) / load_share.

Weights that several nodes share, pinned once for all of them, count at the first of these nodes only.

For given stretches both 1 and 2 + 3 are linear in r, so any mixture of the two, minimised over 0 <= r <= the nodes'
weights and R <= the least free(a), is a bound, whichever stretches are taken; fx_fluid_bound takes those that rule
fluid runs with pins chosen well. On the classics, without requests, the best mixture is the optimum of the linear
programme over all pins and times (docs/decisions/0016): more stretches would gain nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph

from .layout import Blocks
from .profile import Machine
from .types import F64, Profile


@dataclass(slots=True, frozen=True)
class Bound:
    """A lower bound on a run's seconds in the steady state."""

    seconds: float
    price: F64
    """Of each node: seconds that the bound changes by with each byte of its weights that is pinned, the memory it takes
    included. What has the lowest is best pinned.
    """


class Bounding:
    """Bounds of one graph on one machine."""

    def __init__(self, graph: Graph, profile: Profile, machine: Machine) -> None:
        nodes = profile.nodes
        self._machine = machine
        live = Blocks.of(profile.root_bytes, profile.first, profile.last).live(len(nodes))
        most = max((len(node.variants) for node in nodes), default=1)
        self._seconds = np.full((len(nodes), most), np.inf)
        self._needs = np.zeros((len(nodes), most), np.int64)
        self._nbytes = np.zeros(len(nodes), np.int64)
        self._panels = np.zeros(len(nodes), np.int64)
        self._panel_bytes = np.array([node.panel_bytes for node in nodes], np.int64)
        self._constants = np.zeros(len(nodes), np.int64)
        seen: set[int] = set()
        for i, node in enumerate(nodes):
            for j, variant in enumerate(node.variants):
                self._seconds[i, j] = variant.seconds()
                self._needs[i, j] = live[i] + variant.scratch_bytes * profile.threads
            own = [(node.weight, node.weight_bytes)] if node.panels else []
            own += [(weight, graph.weights[weight].nbytes) for _, weight, _ in node.constants]
            new = {weight: nbytes for weight, nbytes in own if weight not in seen}
            seen |= new.keys()
            self._nbytes[i] = sum(new.values())
            self._panels[i] = new.get(node.weight, 0) if node.panels else 0
            self._constants[i] = len(new) - (self._panels[i] > 0)
        self._least = self._needs[np.arange(len(nodes)), [len(node.variants) - 1 for node in nodes]]

    def at(self, region: int | None, rounds: int = _core.ROUNDS_MAX) -> Bound:
        """For an arena of ``region`` bytes beside what always stays (None: no limit). ``rounds``: of looking for the
        stretches that rule; fewer give a bound that may be lower.
        """
        seconds = self._seconds
        if region is not None:
            fits = self._needs <= region
            seconds = np.where(fits | ~fits.any(axis=1, keepdims=True), seconds, np.inf)
        free = np.full(len(self._nbytes), self._nbytes.sum()) if region is None else np.maximum(region - self._least, 0)
        slices = self._panels / np.maximum(np.minimum(np.maximum(free, self._panel_bytes), self._panels), 1)
        requests = slices + self._constants
        bound, price = _core.fluid_bound(
            np.ascontiguousarray(seconds.min(axis=1, initial=np.inf)),
            self._nbytes,
            self._nbytes / self._machine.storage_bytes_per_second + requests * self._machine.request_s,
            free,
            self._machine.storage_bytes_per_second,
            self._machine.compute_share,
            self._machine.load_share,
            rounds,
        )
        return Bound(bound, np.asarray(price, np.float64))
