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

For given stretches, both 1 and 2 + 3 (with either form of 2) are linear in r. So any mixture of the two, minimised over
0 <= r <= the nodes' weights and R <= the least free(a), is a bound, whichever stretches are taken. fx_fluid_bound takes
the stretches that rule fluid runs with well-chosen pins. On the classics, without requests, the best mixture is the
optimum of the linear programme over all pins and times (docs/decisions/0016): more stretches would gain nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph

from .layout import Blocks
from .machine import MachineProfile
from .types import F64, I64, Costs, NodeCosts

ROUNDS_MIN, ROUNDS_NODES = 3, 40_000
"""Rounds of any graph, and nodes times rounds: a round sorts all nodes several times."""


class Bound(NamedTuple):
    """A lower bound on the time of a run in the steady state."""

    seconds: float
    price: F64
    """Change of the bound, in seconds, per byte of memory that pins each node's weights, for all nodes that share them.
    The nodes with the lowest price are best pinned.
    """


class Bounding:
    """Bounds of one graph on one machine."""

    def __init__(self, graph: Graph, costs: Costs, machine: MachineProfile) -> None:
        nodes = costs.nodes
        self._machine = machine
        live = Blocks.of(costs.root_bytes, costs.first_node, costs.last_node).live(len(nodes))
        most = max((len(node.variants) for node in nodes), default=1)
        self._fixed = np.zeros((len(nodes), most))
        self._channels = np.full((len(nodes), most), np.inf)
        self._needs = np.zeros((len(nodes), most), np.int64)
        self._nbytes = np.zeros(len(nodes), np.int64)
        self._panels = np.zeros(len(nodes), np.int64)
        self._panel_bytes = np.array([node.panel_bytes for node in nodes], np.int64)
        self._panel_count = np.array([node.panels for node in nodes], np.int64)
        self._constants_room = np.zeros(len(nodes), np.int64)
        self._constants = np.zeros(len(nodes), np.int64)
        self._constant_bytes = np.zeros(len(nodes), np.int64)
        self._uses = np.ones(len(nodes))
        places = [(w.offset, w.nbytes) if w.offset >= 0 else (-1, i) for i, w in enumerate(graph.weights)]
        uses: dict[tuple[int, int], int] = {}
        for node in nodes:
            own = {places[weight] for weight in _weights(node)}
            uses |= {place: 1 + uses.get(place, 0) for place in own}
        for i, node in enumerate(nodes):
            for j, variant in enumerate(node.variants):
                self._fixed[i, j], self._channels[i, j] = variant.fixed_s, variant.channels_s
                self._needs[i, j] = live[i] + variant.workspace_bytes * costs.threads
            constants = {places[weight]: graph.weights[weight].nbytes for _, weight, _ in node.constants}
            self._constants_room[i] = sum(constants.values())
            self._panels[i] = node.weight_bytes if node.panels else 0
            self._nbytes[i] = self._panels[i] + self._constants_room[i]
            self._constants[i] = len(constants)
            self._constant_bytes[i] = min(constants.values(), default=0)
            self._uses[i] = max((uses[places[weight]] for weight in _weights(node)), default=1)
        self._least = self._needs[np.arange(len(nodes)), [len(node.variants) - 1 for node in nodes]]

    def at(self, arena_bytes: int | None, rounds: int = _core.ROUNDS_MAX) -> Bound:
        """Return the bound for an arena of ``arena_bytes``, without what is always pinned (None: no limit). ``rounds``
        of looking for the stretches that rule: fewer give a bound that may be lower. Large graphs have fewer.
        """
        rounds = min(rounds, max(ROUNDS_MIN, ROUNDS_NODES // max(len(self._nbytes), 1)))
        seconds, channels = self._fixed + self._channels, self._channels
        if arena_bytes is not None:
            beside = arena_bytes - self._needs - self._constants_room[:, None]
            fits = beside >= self._panel_bytes[:, None]
            fits |= ~fits.any(axis=1, keepdims=True)
            free = np.maximum(arena_bytes - self._least, 0)
            stall = self._machine.compute_speed if self._machine.load_speed == 1 else 0.0  # of a second of such reading
            steps = step_seconds(
                self._panel_count[:, None],
                self._panel_bytes[:, None],
                beside,
                int(free.min(initial=self._nbytes.sum())),
                self._fixed,
                stall * self._machine.request_s,
                stall / self._machine.storage_bytes_per_second,
            )
            seconds = np.where(fits, steps + channels, np.inf)
            channels = np.where(fits, channels, np.inf)
        else:
            free = np.full(len(self._nbytes), self._nbytes.sum())
        idle = self._machine.load_speed if self._machine.compute_speed == 1 else 0.0  # of a second of such computing
        waits = idle * channels.min(axis=1, initial=np.inf) / np.maximum(self._panel_count, 1)
        waits_first = idle * np.where(np.isfinite(channels), self._fixed, np.inf).min(axis=1, initial=np.inf)
        requests, saved = slice_requests(
            self._panels, self._panel_bytes, free, waits, waits_first, self._machine.request_s
        )
        requests += self._machine.request_s * self._constants
        constant = self._machine.request_s / np.maximum(self._constant_bytes, 1)
        saved = np.maximum(saved, np.where(self._constants > 0, constant, 0.0))
        byte_s = 1 / self._machine.storage_bytes_per_second
        bound, price = _core.fluid_bound(
            np.ascontiguousarray(seconds.min(axis=1, initial=np.inf)),
            self._nbytes,
            self._nbytes * byte_s + requests,
            byte_s + saved,
            self._uses,
            free,
            bytes_per_second=self._machine.storage_bytes_per_second,
            compute_speed=self._machine.compute_speed,
            load_speed=self._machine.load_speed,
            rounds=rounds,
        )
        return Bound(bound, np.asarray(price, np.float64))


def _weights(node: NodeCosts) -> set[int]:
    """Return the weights that a node reads."""
    return ({node.weight} if node.panels else set()) | {weight for _, weight, _ in node.constants}


def step_seconds(
    panels: I64, panel_bytes: I64, room: I64, pinned: int, fixed: F64, request_s: float, byte_s: float
) -> F64:
    """Return the time of each node's steps in addition to its channels: ``fixed`` for each, and waiting for slices
    between them (5 above). ``room``: bytes for slices; ``pinned``: most bytes that are pinned; ``request_s`` and
    ``byte_s``: time of a request and of a byte that are read while nothing is computed.
    """
    panel = np.maximum(panel_bytes, 1)
    most = np.maximum(room // panel, 1)
    wait_s = byte_s * panel
    each = np.minimum((fixed + request_s + wait_s) / (most + 1), (fixed + request_s + wait_s * most) / (2 * most))
    each = np.minimum(each, np.where(most > 1, fixed / most, np.inf))
    streamed = panels - np.minimum(panels, -(-pinned // panel))
    few = fixed * np.maximum(-(-panels // most), 1)
    return np.where(streamed > most, np.maximum(few, fixed + 2 * each * (streamed - most)), few)


def slice_requests(
    nbytes: I64, panel_bytes: I64, free: I64, waits: F64, waits_first: F64, request_s: float
) -> tuple[F64, F64]:
    """Return for each node with ``nbytes`` of panels (perhaps 0) the time of requests for them in addition to their
    bytes, and the most that each byte less saves of it (4 above). ``waits``: time that the loader waits while a panel
    computes for lack of room for the next slice; ``waits_first``: time that it waits for a step's fixed part.
    """
    panel = np.maximum(panel_bytes, 1)
    panels = nbytes // panel
    most = np.clip(free // panel, 1, np.maximum(panels, 1))
    alone = request_s + waits_first
    each = np.minimum((alone + waits) / (most + 1), (alone + waits * most) / (2 * most))
    each = np.minimum(each, np.where(most > 1, request_s / most, np.inf))
    # A line near the cost of all panels; or, where much may be pinned, one near that of the last that are left.
    steep = (panels > most) & ((panels - most) * panel >= free.min(initial=2**62))
    seconds = np.where(steep, request_s + 2 * each * (panels - most), request_s * panels / most)
    saved = np.where(steep, 2 * each, request_s / most) / panel
    return np.where(panels > 0, seconds, 0.0), np.where(panels > 0, saved, 0.0)
