"""Planning of one variant of a graph: the graph and a budget become the engine's program (docs/architecture.md, D3–D9).

costs → placement of activations → drafts → addresses of loads → program. A draft chooses each node's kernel, which
weights are pinned, and how the others are sliced, all three by the predicted time of the whole run. That time covers
requests, the memory that is free at each step, and loads that begin in the run before.

A draft for a budget is searched on a ladder (planning/ladder.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from operator import add, attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn.graph.ir import Graph

from .costs import graph_costs
from .drafts import SLICES_IN_ROOM, Draft, Drafting, Records
from .errors import BudgetError
from .overhead import PART_NAMES
from .program import encode_program, front_bytes
from .report import Plan
from .setting import Setting
from .types import Costs, Placement

if TYPE_CHECKING:
    from .bound import Bounding
    from .decisions import Decisions
    from .ladder import Ladder
    from .pins import Pins

FIRST_RUNG = 0.0316
"""Memory of a rung beyond the one that has room for finer slices, as a fraction of the smallest budget."""
SPARE_ROWS, SPARE_PART = 2, 0.005
"""Steps of the tightest plan per further step that the second rung has room for: finer slices save more time than their
records. And the largest part of the smallest budget, less what Python takes, that the first rung has for them.
"""
SMALL_SIZE, SMALL_WEIGHTS = 200, 12
"""Limits of a small graph: nodes plus steps of the tightest plan, and bytes of weights as a multiple of that plan's.
Only in small graphs is a change fast enough for random changes of a rung's best draft.
"""
DRAFTING_BYTES = 160 << 10
"""Heap memory that the search for a plan leaves beyond the overhead: up to 0.1 MiB measured."""


class Least(NamedTuple):
    """Facts of the tightest plan, by which others are searched."""

    draft_bytes: int
    """Bytes of its draft (``Draft.nbytes``)."""
    nbytes: int
    """Bytes of the lowest rung's drafts, in which a slice takes all of its room: none is loaded beside one in use."""
    paired_bytes: int
    """Bytes of drafts that have room for two slices at once: those of the next rung."""
    sliced_bytes: int
    """Bytes of drafts that have room for finer slices: those of the rung above where that has not."""
    is_small: bool
    """Whether the graph is small: random changes are tried."""
    pins: bool
    """Whether weights are so small that the smallest budget may have room for all of them."""


class VariantPlanner:
    """Plans of one variant of a graph for any budget; whatever does not depend on the budget is computed once.

    ``planner.Planner`` chooses between the variants of a graph: each has a VariantPlanner.
    """

    def __init__(
        self,
        graph: Graph,
        setting: Setting,
        *,
        costs: Costs | None = None,
        in_file: bool = False,
        again: Callable[[], Graph] | None = None,
    ) -> None:
        """``again`` returns the same graph once more: its plans keep that, not the graph."""
        from .layout import best_placement  # with the first plan: who imports flexnn alone does without

        started = time.perf_counter_ns()
        self._graph, self._overhead, self._machine = graph, setting.overhead, setting.machine
        self._costs = costs or graph_costs(graph, setting, in_file=in_file)
        self._again = again
        step_bytes = sum(self._parts(1).values()) - sum(self._parts(0).values())
        self._fixed_bytes = sum(self._parts(0).values()) + front_bytes(self._costs)
        self._step_bytes = step_bytes
        self._drafting = self._drafting_of(best_placement(self._costs))
        self._any_order = np.arange(len(self._drafting.items), dtype=np.int32)
        self._prepared_ns = time.perf_counter_ns() - started

    @cached_property
    def _tightest_choices(self) -> tuple[int, Records]:
        return self._drafting.tightest()

    @cached_property
    def _least(self) -> Least:
        """Facts of the tightest plan, which plans without a limit do without."""
        tight = self._tight_draft()
        size = len(self._costs.nodes) + len(tight.steps)
        weights = sum(self._drafting.item_bytes)
        spare = self._step_bytes * (tight.rows // SPARE_ROWS + 1)
        sliced = tight.nbytes + spare
        pins = weights + self.activation_bytes <= sliced
        parts = self._parts(0)  # of which what measuring (in "base") and groups take gives no room
        own = self._fixed_bytes - parts.get("base", 0) - parts.get("groups", 0) + tight.nbytes
        spare = 0 if pins else min(spare, int(SPARE_PART * own))
        single = tight.nbytes if pins else self._single_draft().nbytes
        self._release()
        return Least(
            tight.nbytes,
            min(single, tight.nbytes + spare),
            tight.nbytes + spare,
            tight.nbytes if pins else sliced,
            size <= SMALL_SIZE and weights <= SMALL_WEIGHTS * tight.nbytes,
            pins,
        )

    def _release(self) -> None:
        """Free the memory that drafts are made in: sessions keep planners, but plan seldom."""
        for drafting in vars(self).get("_draftings", [self._drafting]):
            drafting.release()

    def _drafting_of(self, placement: Placement) -> Drafting:
        return Drafting(self._graph, self._costs, placement, self._machine, self._step_bytes)

    @cached_property
    def _draftings(self) -> list[Drafting]:
        """Draftings of all placements. A plan that pins everything needs the first one only."""
        from .layout import alternative_placements

        others = alternative_placements(self._costs, self._drafting.placement)
        return [self._drafting, *map(self._drafting_of, others)]

    @cached_property
    def _bounding(self) -> Bounding:
        from .bound import Bounding  # plans without a limit do without

        return Bounding(self._graph, self._costs, self._drafting, self._machine)

    def _ladder(self) -> Ladder:
        from .ladder import Ladder  # plans without a limit do without

        return Ladder(
            self._costs,
            self._drafting,
            lambda: self._draftings,
            self._bounding,
            self._least,
            step_bytes=self._step_bytes,
            bytes_per_second=self._machine.storage_bytes_per_second,
        )

    def _parts(self, rows: int) -> dict[str, int]:
        return self._overhead(self._graph, rows, rows, self._costs.threads)

    @property
    def minimum(self) -> int:
        """Smallest budget in bytes."""
        return self._fixed_bytes + self._least.nbytes

    @property
    def paired_memory(self) -> int:
        """Smallest budget in bytes that has room for two slices at once."""
        return self._fixed_bytes + self._least.paired_bytes

    @property
    def sliced_memory(self) -> int:
        """Smallest budget in bytes that has room for finer slices."""
        return self._fixed_bytes + self._least.sliced_bytes

    @property
    def beside_bytes(self) -> int:
        """Bytes of the smallest budget with room for two slices at once, beside its working part."""
        return self.paired_memory - self._tightest_choices[0]

    @property
    def smallest_parts(self) -> dict[str, int]:
        """Bytes that the smallest budget is made of, in words for people."""
        parts = self._parts(0)
        told = {"activations": min(self.activation_bytes, self.minimum - sum(parts.values()))}
        told["weights and workspace beside them"] = self.minimum - sum(parts.values()) - told["activations"]
        return told | {PART_NAMES.get(name, name): size for name, size in parts.items()}

    @property
    def pinning_memory(self) -> int:
        """Smallest budget in bytes that pins everything."""
        draft = self._unlimited()
        self._release()
        return self._fixed_bytes + draft.nbytes

    @property
    def least_working_bytes(self) -> int:
        """Bytes of the smallest working part of any plan."""
        if self._least.pins:  # without room for weights
            return self.activation_bytes
        return min(drafting.placement.working_bytes_min for drafting in self._draftings)

    @property
    def graph(self) -> Graph:
        """Graph that is planned."""
        return self._graph

    @property
    def costs(self) -> Costs:
        """Costs of the graph."""
        return self._costs

    @property
    def placement(self) -> Placement:
        """Placement of the activations in the tightest plan."""
        return self._drafting.placement

    def bound_ms(self, memory: int) -> float:
        """Return a time that no plan of the graph for ``memory`` bytes beats (planning/bound.py)."""
        return self._bound_s(memory) * 1e3

    def _bound_s(self, memory: int) -> float:
        return self._bounding.seconds(memory - self._fixed_bytes - self._step_bytes * len(self._costs.nodes))

    @property
    def fastest_ms(self) -> float:
        """Return the least time of any plan."""
        return self._fastest_s() * 1e3

    def _fastest_s(self) -> float:
        """Return the time of all nodes, each by its fastest kernel: the bound without a limit."""
        return sum(min(variant.seconds() for variant in node.variants) for node in self._costs.nodes)

    @property
    def activation_bytes(self) -> int:
        """Most bytes of activations alive at once."""
        return self._drafting.placement.live_bytes_max

    def plan(self, memory: int | None) -> Plan:
        """Return the plan for ``memory`` bytes (None: no limit). Raises BudgetError."""
        plan = self.better_plan(memory, math.inf)
        assert plan is not None
        return plan

    def better_plan(self, memory: int | None, known_ms: float) -> Plan | None:
        """Return the plan for ``memory`` bytes (None: no limit); None where it takes ``known_ms`` or more, up to which
        alone it is looked for. Raises BudgetError.
        """
        started = time.perf_counter_ns()
        if memory is not None and memory < self.minimum:
            raise BudgetError(self.minimum, memory, parts=self.smallest_parts)
        draft = None if self._graph.spills else self._unlimited()
        decisions: Decisions | None = None
        if draft is None or (memory is not None and self._fixed_bytes + draft.nbytes > memory):
            assert memory is not None  # without a limit nothing is spilled
            draft = self._searched(memory, known_ms / 1e3)
            is_first = draft.placement is self._drafting.placement
            index = 0 if is_first else [drafting.placement for drafting in self._draftings].index(draft.placement)
            from .decisions import Decisions  # plans without a limit do without

            decisions = Decisions.of(draft, self._costs, index)
        draft = self._in_phases(draft)
        if draft.seconds * 1e3 >= known_ms:
            self._release()
            return None
        bound_s = self._fastest_s() if memory is None else self._bound_s(memory)
        plan = self._encoded(draft, memory, bound_s, started)
        plan.decisions = decisions
        return plan

    def _searched(self, memory: int, known: float, *, finely: bool = False) -> Draft:
        """Return the best draft for ``memory`` bytes that the ladder finds."""
        within, least = memory - self._fixed_bytes, self._least
        rungs = least.nbytes, least.paired_bytes, least.sliced_bytes
        bytes_max = max(within - DRAFTING_BYTES, *(nbytes for nbytes in rungs if nbytes <= within))
        ladder, spare = self._ladder(), FIRST_RUNG * self.sliced_memory
        draft = self._tight_draft()
        if bytes_max >= least.paired_bytes:
            draft = ladder.best_within(bytes_max, draft, spare, known, finely=finely)
        if bytes_max < least.sliced_bytes and least.nbytes < least.paired_bytes:  # few slices suit slow computing
            single = ladder.best_within(min(bytes_max, least.paired_bytes - 1), self._single_draft(), spare, known)
            draft = single if bytes_max < least.paired_bytes else min(draft, single, key=attrgetter("seconds"))
        return ladder.for_phases(bytes_max, draft, self._in_phases)

    def plan_in_order(self, memory: int) -> Plan:
        """Return the plan for ``memory`` bytes whose pins programs of other graphs take over: of each node the first
        panels are pinned. It is looked for on more rungs than others are, since it serves a whole session.
        """
        started = time.perf_counter_ns()
        found = self._searched(memory, math.inf, finely=True)
        drafting = next(each for each in self._draftings if each.placement is found.placement)
        draft = drafting.place(drafting.as_pinned(found), found.working_bytes, from_top=found.from_top)
        return self._encoded(draft, memory, self._bound_s(memory), started)

    @property
    def pace(self) -> float:
        """Bytes that the storage gives in the time of all nodes' fastest kernels: what is decided depends on it."""
        return self._fastest_s() * self._machine.storage_bytes_per_second

    def follow(self, decisions: Decisions, memory: int, *, resized: bool = False) -> Plan | None:
        """Return the plan for ``memory`` bytes that is made by these decisions; None where it would take more. Raises
        ValueError, IndexError or AssertionError where they are of another graph. ``resized``: of this one at other
        sizes.
        """
        started = time.perf_counter_ns()
        drafting = self._draftings[decisions.placement] if decisions.placement else self._drafting
        working_bytes, choices = decisions.working_bytes, decisions.choices(self._costs, resized=resized)
        if self._fixed_bytes + working_bytes > memory:
            return None
        draft = drafting.place(choices, working_bytes, from_top=decisions.from_top)
        if decisions.filled is not None:
            if len(decisions.filled.rank) != len(choices):
                raise ValueError("of another graph")
            draft = drafting.fill(draft, decisions.filled)
        if self._fixed_bytes + draft.nbytes > memory:
            return None
        bound_s = self._bound_s(memory) if resized else decisions.bound_ms / 1e3
        return self._encoded(self._in_phases(draft), memory, bound_s, started)

    def _in_phases(self, draft: Draft) -> Draft:
        """Return the draft with slices that stay where nodes of the model share them, if that is faster."""
        if self._graph.added or not self._drafting.shares:
            return draft
        from .phases import in_phases  # few graphs share weights

        return in_phases(draft, self._drafting, self._costs.io_align)

    def plan_over(self, pins: Pins, working_bytes: int, *, smallest: bool = False) -> Plan:
        """Return the plan that pins these bytes of the file, and whose working part has so many bytes, or more where
        it needs more. ``smallest``: its bytes do not depend on the machine's rates.
        """
        started = time.perf_counter_ns()
        working_bytes = max(working_bytes, self._tightest_choices[0])
        drafting, room = self._drafting, SLICES_IN_ROOM[0 if smallest else 1]
        choices = drafting.choose(self._any_order, working_bytes, working_bytes, room, smallest=smallest)[0]
        draft = drafting.place(drafting.pinning(choices, pins), working_bytes)
        return self._encoded(draft, None, self._fastest_s(), started)

    def _encoded(self, draft: Draft, memory: int | None, bound_s: float, started: int) -> Plan:
        """Return the plan of a draft; ``started``: when planning began, in ns."""
        self._release()
        plan = Plan(
            program=encode_program(self._graph, self._costs, draft),
            memory=memory,
            minimum_memory=lambda: self.minimum,
            overhead=self._parts(draft.rows),
            predicted_ms=draft.seconds * 1e3,
            stall_ms=draft.stall_s * 1e3,
            bound_ms=bound_s * 1e3,
            plan_ms=(time.perf_counter_ns() - started + self._prepared_ns) / 1e6,
            graph=self._again or self._graph,
            activation_bytes=draft.placement.live_bytes_max,
            working_bytes=draft.kept_bytes + draft.working_bytes,
        )
        self._prepared_ns = 0
        return plan

    # ---- the ends ----

    def _tight_draft(self) -> Draft:
        """Return the tightest draft, made anew each time: it is larger than everything else that a planner holds."""
        working_bytes, choices = self._tightest_choices
        return self._drafting.place(choices.copy(), working_bytes)

    def _single_draft(self) -> Draft:
        """Return the tightest draft in which a slice takes all of its room."""
        working_bytes, choices = self._drafting.tightest(1)
        return self._drafting.place(choices, working_bytes)

    def _unlimited(self) -> Draft:
        """Return the draft that pins everything, each node by its fastest kernel, in the smallest working part."""
        tops = zip(self._drafting.placement.top.tolist(), self._costs.nodes, strict=True)
        threads = self._costs.threads
        return self._pin_all(max((top + node.variants[0].workspace_bytes * threads for top, node in tops), default=0))

    def _pin_all(self, working_bytes: int) -> Draft:
        drafting = self._drafting
        everything = sum(drafting.item_bytes) + self._step_bytes * len(self._costs.nodes)
        choices, _, _ = drafting.choose(self._any_order, working_bytes, working_bytes + 2 * everything, 1)
        draft = drafting.place(choices, working_bytes)
        variants = zip(self._costs.nodes, choices["variant"].tolist(), strict=True)
        workspace = [node.variants[v].workspace_bytes * self._costs.threads for node, v in variants]
        above = [start + size for start, size in zip(draft.node_address[:, 0].tolist(), workspace, strict=True) if size]
        used = max([*map(add, draft.placement.address, self._costs.root_bytes), *above], default=0)
        return replace(draft, working_bytes=used, nbytes=draft.nbytes - working_bytes + used)
