"""Planning: a graph and a budget become the engine's program (DESIGN D3–D9).

profile → activations' placement → kernels and slices → pins → streams → program. The stages are pure functions; this
module chooses among what they can make: how much memory stays for pinned weights and how finely the rest is sliced, by
predicted time. The tightest plan exists before any of that, so the smallest budget is known, and a budget at or above
it never fails.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from flexnn.graph.ir import Graph

from . import pin
from .errors import BudgetError
from .layout import place_activations
from .overhead import Overhead, overhead_bytes
from .profile import Machine, profile_graph
from .program import encode_program, stay_bytes
from .report import Plan
from .schedule import free_bytes, schedule
from .simulate import bound_seconds, earliest_waits, load_seconds, simulate
from .slices import slice_weights
from .types import LINE, Final, Placement, Profile, Slices, Streams, Timeline

PINNED_SHARES = (1.0, 0.96, 0.9, 0.8, 0.6, 0.35, 0.0)
"""Of the memory beside the tightest plan, tried for pinned weights."""
SHARES = (2, 4, 8)
"""Slices that the room of a layer holds at once, tried."""
STREAM_PENALTY = 0.03
"""Drafts that stream nothing win against those that stream everything unless these are this much faster."""
PLACED_MAX = 12
"""Drafts that are kept, and placed at most."""
WORTH_PLACING = 0.98
"""Another draft is placed when it promises at most this share of the best time so far."""


DRAFTING_BYTES = 160 << 10
"""What looking for a better plan than the tightest leaves in the heap: measured, up to 0.1 MiB beyond the overhead."""


@dataclass(slots=True)
class _Draft:
    """A plan without addresses of its streams: ``seconds`` supposes that memory never fragments."""

    slices: Slices
    final: Final
    region: int
    seconds: float


def make_plan(
    graph: Graph,
    *,
    memory: int | None = None,
    threads: int = 1,
    io_align: int = 64,
    machine: Machine | None = None,
    overhead: Overhead = overhead_bytes,
    isa: str | None = None,
    profile: Profile | None = None,
) -> Plan:
    """The plan for ``memory`` bytes (None: no limit, everything pinned), of an artifact's graph.

    ``io_align``: 64, or 4096 for direct I/O. ``overhead`` says what a session takes beside its arena. Raises
    BudgetError, naming the smallest budget, when ``memory`` is below it. ``profile``: of the graph, where it is not as
    ``profile_graph`` makes it.
    """
    started = time.perf_counter_ns()
    machine = machine or Machine.measure(isa)
    if profile is None:
        profile = profile_graph(graph, threads=threads, io_align=io_align, machine=machine, isa=isa)
    placement = place_activations(profile)
    planner = _Planner(graph, profile, placement, machine, overhead)
    tight = planner.tight()
    minimum = planner.session_bytes(tight)
    if memory is not None and memory < minimum:
        raise BudgetError(minimum, memory)
    drafts = [planner.unlimited()]
    if memory is not None and planner.session_bytes(drafts[0]) > memory:
        drafts = planner.drafts(max(memory - DRAFTING_BYTES, minimum), tight)
    draft, streams, timeline = planner.place(drafts)
    program = encode_program(graph, profile, placement, draft.slices, draft.final, streams, draft.region)
    parts = planner.overhead(draft.final)
    arena = None if memory is None else memory - sum(parts.values())
    weights = sum(w.nbytes for w in graph.weights)
    return Plan(
        program=program,
        memory=memory,
        minimum_memory=minimum,
        overhead=parts,
        predicted_ms=timeline.seconds * 1e3,
        stall_ms=timeline.stall_s * 1e3,
        bound_ms=bound_seconds(profile, machine, weights, arena, placement.live_bytes_max) * 1e3,
        plan_ms=(time.perf_counter_ns() - started) / 1e6,
        names=[node.name for node in graph.nodes],
        activation_bytes=placement.live_bytes_max,
        region_bytes=draft.region,
    )


def _preference(draft: _Draft) -> float:
    """Seconds, and a little for what is streamed."""
    stays = draft.final.stays
    return draft.seconds * (1 + STREAM_PENALTY * stays.count(False) / max(len(stays), 1))


class _Planner:
    """What the drafts of one graph share."""

    def __init__(
        self, graph: Graph, profile: Profile, placement: Placement, machine: Machine, overhead: Overhead
    ) -> None:
        self.graph, self.profile, self.placement, self.machine = graph, profile, placement, machine
        self._overhead = overhead

    def overhead(self, final: Final) -> dict[str, int]:
        return self._overhead(self.graph, len(final.step_node), len(final.piece_step), self.profile.threads)

    def session_bytes(self, draft: _Draft) -> int:
        return draft.region + stay_bytes(self.profile, draft.final) + sum(self.overhead(draft.final).values())

    def tight(self, slices_max: list[int] | None = None) -> _Draft:
        """The plan of the smallest arena: nothing pinned, each layer sliced as far as its room needs.

        By default each node has its smallest workspace, so that the smallest budget does not depend on the machine's
        rates, which differ from one measurement to the next. Other workspaces come in where they lead to no more than
        ``slices_max`` slices of a node.
        """
        region = self.placement.arena_bytes_min
        limit = slices_max or [0] * len(self.profile.nodes)
        slices = slice_weights(self.graph, self.profile, self.placement, region, 2, slices_max=limit)
        return self._draft(slices, np.zeros(len(slices.piece_step), bool), region)

    def unlimited(self) -> _Draft:
        """Everything pinned, each node by its fastest kernel."""
        fastest = [node.variants[0].scratch_bytes * self.profile.threads for node in self.profile.nodes]
        tops = (gaps[-1][0] + size for gaps, size in zip(self.placement.gaps, fastest, strict=True))
        return self.resident(max(tops, default=0))

    def resident(self, region: int) -> _Draft:
        """Everything pinned beside a region of ``region`` bytes, as little of which is kept as is needed."""
        slices = slice_weights(self.graph, self.profile, self.placement, region, 1, stay=True)
        used = [0]
        for index, (at, variant) in enumerate(zip(slices.scratch, slices.variant, strict=True)):
            if at >= 0:
                used.append(at + self.profile.nodes[index].variants[variant].scratch_bytes * self.profile.threads)
        for at, size in zip(self.placement.address, self.profile.root_bytes, strict=True):
            used.append(at + size)
        return self._draft(slices, np.ones(len(slices.piece_step), bool), max(used))

    def drafts(self, memory: int, tight: _Draft) -> list[_Draft]:
        """Drafts that keep to ``memory``, the one with the lowest predicted time first."""
        counts = [0] * len(self.profile.nodes)
        for node in tight.slices.step_node:
            counts[node] += 1
        kept = [tight]
        self._keep(kept, memory, self.tight(counts))
        total = memory - self.session_bytes(tight) + tight.region
        spare = total - tight.region
        if spare > 0:
            self._attempt(kept, memory, total, SHARES[1], PINNED_SHARES)
            pinned = (total - kept[0].region) / spare
            above = min((f for f in PINNED_SHARES if f > pinned), default=1.0)
            below = max((f for f in PINNED_SHARES if f < pinned), default=0.0)
            self._attempt(kept, memory, total, SHARES[1], ((pinned + above) / 2, (pinned + below) / 2))
            pinned = (total - kept[0].region) / spare
            for share in (SHARES[0], SHARES[2]):
                self._attempt(kept, memory, total, share, (pinned,))
            whole = self.resident(tight.region)
            left = memory - self.session_bytes(whole)
            if left >= 0:
                self._keep(kept, memory, self.resident(whole.region + left))
        return kept

    def _keep(self, kept: list[_Draft], memory: int, draft: _Draft) -> None:
        """Enters a draft among the few best, which are in order; the others are forgotten: planning pays for its own
        memory, too.
        """
        if self.session_bytes(draft) <= memory:
            kept.append(draft)
            kept.sort(key=_preference)
            del kept[PLACED_MAX:]

    def place(self, drafts: list[_Draft]) -> tuple[_Draft, Streams, Timeline]:
        """The fastest of the first drafts once its streams have addresses, which fragmentation makes later than drafts
        suppose. Looking ends where the next draft could not win.
        """
        best: tuple[_Draft, Streams, Timeline] | None = None
        for draft in drafts:
            if best and draft.seconds >= best[2].seconds * WORTH_PLACING:
                break
            streams = schedule(self.profile, self.placement, draft.slices, draft.final, draft.region)
            timeline = self._simulate(draft.slices, draft.final, streams.wait_steps)
            if best is None or timeline.seconds < best[2].seconds:
                best = draft, streams, timeline
        assert best is not None
        return best

    def _attempt(self, kept: list[_Draft], memory: int, total: int, share: int, pinned: tuple[float, ...]) -> None:
        """Enters drafts of ``total`` bytes for streaming region and pinned pieces together, of which these shares of
        what the tightest plan leaves are pinned.
        """
        for fraction in pinned:
            spare = total - self.placement.arena_bytes_min
            region = self.placement.arena_bytes_min + int(spare * (1.0 - fraction)) // LINE * LINE
            slices = slice_weights(self.graph, self.profile, self.placement, region, share)
            # Steps beyond the tightest plan's cost memory themselves.
            extra = sum(self._overhead(self.graph, len(slices.step_node), len(slices.piece_step), 1).values())
            extra -= sum(self._overhead(self.graph, 0, 0, 1).values())
            budget = max(total - region - extra, 0)
            sizes = np.asarray(slices.piece_bytes, np.int64)
            masks = [pin.spread(sizes, budget)]
            if masks[0].any():
                every = pin.settle(self.graph, self.profile, slices, np.zeros(len(sizes), bool))
                seconds = np.asarray(pin.step_seconds(self.profile, slices, every))[slices.piece_step]
                masks.append(pin.dense(sizes, seconds, budget))
                if 2 * budget > sizes.sum():
                    masks.append(pin.small(sizes, budget))
            for mask in masks:
                self._keep(kept, memory, self._draft(slices, mask, region))

    def _draft(self, slices: Slices, stays: pin.Mask, region: int) -> _Draft:
        final = pin.settle(self.graph, self.profile, slices, stays)
        streamed = ~np.asarray(final.stays, bool)
        free = free_bytes(self.profile, self.placement, slices, final, region)
        size = np.asarray(final.piece_bytes, np.int64)[streamed]
        use = np.asarray(final.piece_step, np.int64)[streamed]
        waits = earliest_waits(free, size, use)
        return _Draft(slices, final, region, self._simulate(slices, final, waits).seconds)

    def _simulate(self, slices: Slices, final: Final, waits: Any) -> Timeline:
        streamed = ~np.asarray(final.stays, bool)
        size = np.asarray(final.piece_bytes, np.int64)[streamed]
        use = np.asarray(final.piece_step, np.int64)[streamed]
        wait_loads = np.searchsorted(use, np.arange(len(final.step_node)), side="right").tolist()
        loads = load_seconds(self.machine, size).tolist()
        return simulate(self.machine, pin.step_seconds(self.profile, slices, final), wait_loads, loads, waits.tolist())
