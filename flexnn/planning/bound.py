"""The bound that no plan of a budget beats (docs/architecture.md, D9), from the planner's own costs and storage model.

Assume that weights flow byte by byte, that memory never fragments, that each node computes as fast as its fastest
kernel that fits beside one panel, and that handing out steps costs nothing. Steps cost what 5 says, requests what 4
says. Take any plan that pins r bytes of each node's weights (R in total) and reads the others once per run. Then:

1. The loader reads all weights but r in each run, one after the other.
2. While node a computes, at most free(a) bytes of weights are in memory: the arena less the activations alive and the
   smallest workspace of a. When a began, the R - R_ab pinned bytes of nodes outside a .. b were in memory, so at most
   free(a) - (R - R_ab) bytes of the weights of a .. b were. The others are read before b ends. So the time from the
   begin of a to the end of b is at least the time to read them, whichever they are.
   Weights are read in the order of their use, so the bytes in memory beside pins are the first of a .. b. In other
   words, reading them took at most what free(a) - R bytes take at the storage's rate, plus the requests of the nodes
   that free(a) bytes reach, the last one in part. This form says more than the first one if requests for later weights
   are dearer.
3. Stretches a .. b that do not meet on the circle of runs take their times one after the other. So do the nodes outside
   of them, which compute.
4. The bytes that are read of a weight cost one request, or more if only K of its panels fit in memory at once. Either
   the loader reads a slice while the slice before is computed, and both lie in memory, K panels at most; or it waits
   until that slice is computed. So two neighbours with s panels together cost the loader a request if s <= K (which
   needs K > 1), else a request and the computing of the first one, its step's fixed part included: in any case at least
   s times the least of these per panel. The sum over all pairs of neighbours counts the weight's panels twice, except
   those of the first and the last slice, at most K each.
5. The same holds for computing. Each slice costs a step, and if two neighbours do not lie in memory together, nothing
   computes while the second is read, request and bytes. So two neighbours with s panels together cost a step if s <= K,
   else a step and the reading of the second; the pairs count as in 4, and the last slice's step is added. Panels that
   may be pinned are left out, as many as the node with the least free memory has room for. Nodes outside of stretches
   take this time, too, one after the other. The slowdown of computing by reading is in 3 already; if computing slows
   reading, such waiting is not counted.

Reading and computing slow each other down when they overlap: a second of computing costs a stretch at least
(1 - load_speed) / compute_speed, and a second of reading costs the nodes outside (1 - compute_speed) / load_speed.

Weights that several nodes share are read for each of them, but pinned once for all: a byte of memory then saves as many
bytes as it has uses. If r counts what is saved at each node, R is at least the sum of r over uses, which is what is
taken; a node's uses are the most of any of its weights.

Where slices stay for a phase of the run (planning/phases.py), a weight that many nodes share is not read for each of
them. Then two things are sure. All of the above holds if it counts what the first of them reads, and nothing for the
others; and a run reads all weights but what is in memory when some node begins. And of
nodes a .. b no two of which share a weight, a run reads the weights but free(a) bytes; what such stretches read that
do not meet adds up. Reading and computing slow each other down as above.

For given stretches, both 1 and 2 + 3 (with either form of 2) are linear in r. So any mixture of the two, minimised over
0 <= r <= the nodes' weights and R <= the least free(a), is a bound, whichever stretches are taken. fx_fluid_bound takes
the stretches that rule fluid runs with well-chosen pins. On the classics, without requests, the best mixture is the
optimum of the linear programme over all pins and times (docs/decisions/0016): more stretches would gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph

from .drafts import Drafting
from .machine import MachineProfile
from .types import Costs, NodeCosts

if TYPE_CHECKING:
    from numpy.typing import NDArray

USES_MIN = 3
"""Fewest nodes that read a slice which may stay between them (planning/phases.py)."""
ROUNDS_MIN, ROUNDS_NODES = 3, 40_000
"""Rounds of any graph, and nodes times rounds: a round sorts all nodes several times."""


class Bound(NamedTuple):
    """A lower bound on the time of a run in the steady state."""

    seconds: float
    price: Sequence[float]
    """Change of the bound, in seconds, per byte of memory that pins each node's weights, for all nodes that share them.
    The nodes with the lowest price are best pinned.
    """


class Bounding:
    """Bounds of one graph on one machine, from the tables of its drafts."""

    def __init__(self, graph: Graph, costs: Costs, drafting: Drafting, machine: MachineProfile) -> None:
        self._drafting, self._machine = drafting, machine
        places = [(w.offset, w.nbytes) if w.offset >= 0 else (-1, i) for i, w in enumerate(graph.weights)]
        uses: dict[tuple[int, int], int] = {}
        for node in costs.nodes:
            own = {places[weight] for weight in _weights(node)}
            uses |= {place: 1 + uses.get(place, 0) for place in own}
        most = [max((uses[places[weight]] for weight in _weights(node)), default=1) for node in costs.nodes]
        self._uses = np.array(most, np.float64)
        shares = any(uses[places[node.weight]] >= USES_MIN for node in costs.nodes if node.panels)
        self._shared: tuple[Graph, Costs] | None = (graph, costs) if shares and not graph.added else None
        """The graph, where slices of its weights may stay for a phase of a run. Bands, which share weights, too, do
        without: their forms are for the smallest budgets, which have no room for the search.
        """
        self._known: dict[int, float] = {}
        """Bounds by the arena's bytes."""

    @property
    def has_phases(self) -> bool:
        """Whether slices of weights may stay for a phase of a run."""
        return self._shared is not None

    def seconds(self, arena_bytes: int) -> float:
        """Return the bound for an arena of ``arena_bytes``, which a budget is asked for more than once."""
        if arena_bytes not in self._known:
            shared = self._shared
            found = self._phases_s(arena_bytes, *shared) if shared is not None else self.at(arena_bytes).seconds
            self._known[arena_bytes] = found
        return self._known[arena_bytes]

    def _phases_s(self, arena_bytes: int, graph: Graph, costs: Costs) -> float:
        """Return the bound of plans in which slices stay for a phase of the run."""
        terms = self._drafting.bound_terms(arena_bytes)
        free, rate = terms[-1].tolist(), self._machine.storage_bytes_per_second
        nbytes_once, read_s_once = np.asarray(terms[1]), np.asarray(terms[2])  # the same memory
        computing = sum(self._drafting.bound_terms(None)[0].tolist())
        every, stretch = dict[int, int](), dict[int, int]()
        within = begun = 0
        for number, node in enumerate(costs.nodes):
            read = {graph.weights[weight].offset: graph.weights[weight].nbytes for weight in _weights(node)}
            if not stretch.keys().isdisjoint(read):
                within += max(sum(stretch.values()) - free[begun], 0)
                stretch, begun = {}, number
            stretch |= read
            new = read.keys() - every.keys()
            if len(new) < len(read):  # what is read again may be there still
                nbytes_once[number] = sum(read[offset] for offset in new)
                read_s_once[number] = nbytes_once[number] / rate
            every |= read
        within += max(sum(stretch.values()) - free[begun], 0) if stretch else 0
        nbytes = max(within, sum(every.values()) - min(free, default=0), 0)
        reading = nbytes / rate
        load_speed, compute_speed = self._machine.load_speed, self._machine.compute_speed
        in_turns = load_speed + compute_speed < 1
        hidden = 1.0 if in_turns else (1 - load_speed) / compute_speed
        read_s = 1.0 if in_turns else (1 - compute_speed) / load_speed
        once = self._of(terms, np.ones(len(free)), _core.ROUNDS_MAX).seconds
        return max(once, reading + hidden * computing, computing + read_s * reading)

    def at(self, arena_bytes: int | None, rounds: int = _core.ROUNDS_MAX) -> Bound:
        """Return the bound for an arena of ``arena_bytes``, without what is always pinned (None: no limit). ``rounds``
        of looking for the stretches that rule: fewer give a bound that may be lower. Large graphs have fewer.
        """
        return self._of(self._drafting.bound_terms(arena_bytes), self._uses, rounds)

    def _of(self, terms: Sequence[memoryview], uses: NDArray[np.float64], rounds: int) -> Bound:
        rounds = min(rounds, max(ROUNDS_MIN, ROUNDS_NODES // max(len(uses), 1)))
        seconds, nbytes, read_s, byte_s, free_bytes = terms
        found = _core.fluid_bound(
            *(seconds, nbytes, read_s, byte_s, uses, free_bytes),
            bytes_per_second=self._machine.storage_bytes_per_second,
            compute_speed=self._machine.compute_speed,
            load_speed=self._machine.load_speed,
            rounds=rounds,
        )
        return Bound(*found)


def _weights(node: NodeCosts) -> set[int]:
    """Return the weights that a node reads."""
    return ({node.weight} if node.panels else set()) | {weight for _, weight, _ in node.constants}
