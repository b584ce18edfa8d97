"""Planning of one variant of a graph: the graph and a budget become the engine's program (docs/architecture.md, D3–D9).

costs → placement of activations → drafts → addresses of loads → program. A draft chooses each node's kernel, which
weights are pinned, and how the others are sliced, all three by the predicted time of the whole run. That time covers
requests, the memory that is free at each step, and loads that begin in the run before.

Budgets form a ladder. The lowest rung fits the tightest plan. That plan is built first, so the smallest budget is
known, and a budget at or above it never fails. Drafts are searched on each rung separately, and the best draft of a
rung pins more in the memory up to the rung above. The plan of a budget is the best of all rungs in it, so more memory
is never predicted slower. The search goes from the highest rung down and ends where a rung's bound is no less than the
best time so far: neither that rung nor a lower one has a better draft. Nothing depends on the clock: the same budget
and costs always give the same plan.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph

from .costs import graph_costs
from .drafts import Draft, Drafting, Records
from .errors import BudgetError
from .layout import alternative_placements, best_placement
from .overhead import PART_NAMES
from .pins import Pins
from .program import encode_program, front_bytes
from .report import Plan
from .setting import Setting
from .types import LINE, Costs, Placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .bound import Bound, Bounding

FIRST_RUNG = 0.03
"""Spare memory (beyond the tightest plan) of the second rung, as a fraction of the smallest budget."""
GROWTH, GROWTH_NODES, GROWTH_SMALL = 0.4, 400, 0.2
"""Growth of the spare memory from rung to rung: GROWTH, or nodes / GROWTH_NODES where that is more, as a rung costs
time by nodes and all rungs shall take tens of milliseconds; GROWTH_SMALL in small graphs, where memory between rungs,
which only pins, costs the most.
"""
WORKING_FRACTIONS = (0.02, 0.08, 0.2, 0.4, 0.7, 1.0)
"""Fractions of the spare memory that are tried for the arena's working part; the rest pins weights."""
SLICES_IN_ROOM = (2, 4, 8)
"""Numbers of slices that are tried to fit the room of a node at once."""
SPARE_ROWS = 2
"""Steps of the tightest plan per further step that the smallest budget has room for: finer slices save more time than
their records, half a percent of memory, would.
"""
PRICES = 2.0
"""Levels per reading time of a byte that prices of pinned bytes are rounded to, so that near prices are equal."""
ROUNDS = 10
"""Rounds of the bound that prices pins on a rung and tells whether the rung can have a better draft. Small graphs,
where a rung costs more than a bound, have all rounds.
"""
CHANGES = 2_500
"""Nodes times changes of single nodes that are tried on each rung's best draft."""
LOOKS = 20_000
"""Nodes times slices that are tried on each rung to fill the memory up to the rung above with pins."""
PLACED, FROM_TOP, PLACED_ELSEWHERE = 6, 3, 3
"""Drafts that get addresses on each rung, as fragmentation makes runs longer than drafts predict; how many of them are
also placed from the top; and how many with each other placement of the activations.
"""
NEAR, FAR = 1.005, 1.03
"""Times as multiples of the bound: below the first, the search of a rung ends; above the second, other placements of
the activations are tried.
"""
SMALL_SIZE, SMALL_WEIGHTS = 200, 12
"""Limits of a small graph: nodes plus steps of the tightest plan, and bytes of weights as a multiple of that plan's.
Only in small graphs is a change fast enough for random changes of a rung's best draft.
"""
TRIES, TRIES_LOWEST = 6_000, 1_500
"""Random changes of a rung whose next rung has twice the memory (in proportion for others), and of the lowest rung."""
WORTH_PLACING = 0.9995
"""Largest predicted time, as a fraction of the best so far, of a draft that is worth placing."""
DRAFTING_BYTES = 160 << 10
"""Heap memory that the search for a plan leaves beyond the overhead: up to 0.1 MiB measured."""


class _Recipe(NamedTuple):
    """How a draft is made."""

    placement: int
    """Index of the activations' placement."""
    working_fraction: float
    """Fraction of the spare memory that the working part has."""
    slices_in_room: int
    """Slices that fit the room of a node at once."""
    order: int
    """Index of the order in which items are pinned."""


START = _Recipe(0, WORKING_FRACTIONS[-1], SLICES_IN_ROOM[1], 0)
"""First recipe tried; each other one differs from the best so far in one field."""


class _Rung(NamedTuple):
    """A rung of the ladder. Sizes in bytes of drafts (``Draft.nbytes``)."""

    bytes_max: int
    """Most bytes of its drafts."""
    next_bytes_max: int
    """Most bytes of the rung above."""


class _Least(NamedTuple):
    """Facts of the tightest plan, by which others are searched."""

    draft_bytes: int
    """Bytes of its draft (``Draft.nbytes``)."""
    nbytes: int
    """Bytes of the lowest rung's drafts."""
    is_small: bool
    """Whether the graph is small: random changes are tried."""
    pins: bool
    """Whether weights are so small that the smallest budget may have room for all of them."""


_Unplaced = tuple[float, int, Records]
"""Seconds if memory were never fragmented, bytes of the working part, choices."""


class VariantPlanner:
    """Plans of one variant of a graph for any budget; whatever does not depend on the budget is computed once.

    ``planner.Planner`` chooses between the variants of a graph: each has a VariantPlanner.
    """

    def __init__(self, graph: Graph, setting: Setting, *, costs: Costs | None = None, in_file: bool = False) -> None:
        started = time.perf_counter_ns()
        self._graph, self._overhead, self._machine = graph, setting.overhead, setting.machine
        self._costs = costs or graph_costs(graph, setting, in_file=in_file)
        self._beside_bytes = 0
        step_bytes = sum(self._parts(1).values()) - sum(self._parts(0).values())
        self._fixed_bytes = sum(self._parts(0).values()) + front_bytes(self._costs)
        self._step_bytes = step_bytes
        self._drafting = self._drafting_of(best_placement(self._costs))
        self._any_order = np.arange(len(self._drafting.items), dtype=np.int32)
        self._prepared_ns = time.perf_counter_ns() - started

    @cached_property
    def _pin_ranks(self) -> tuple[NDArray[Any], ...]:
        """Ranks of items of equal price (``_orders``)."""
        item_bytes = self._drafting.item_bytes
        seconds = np.array([max(node.variants[0].seconds(), 1e-9) for node in self._costs.nodes])
        return _evenly(len(item_bytes)), -item_bytes / seconds[self._drafting.items["node"]], item_bytes

    @cached_property
    def _tightest_choices(self) -> tuple[int, Records]:
        return self._tightest(self._drafting)

    @cached_property
    def _least(self) -> _Least:
        """Facts of the tightest plan, which plans without a limit do without."""
        tight = self._tight_draft()
        size = len(self._costs.nodes) + len(tight.steps)
        weights = int(self._drafting.item_bytes.sum())
        sliced = tight.nbytes + self._step_bytes * (tight.rows // SPARE_ROWS + 1)
        pins = weights + self.activation_bytes <= sliced
        self._release()
        return _Least(
            tight.nbytes,
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
        others = alternative_placements(self._costs, self._drafting.placement)
        return [self._drafting, *map(self._drafting_of, others)]

    @cached_property
    def _bounding(self) -> Bounding:
        from .bound import Bounding  # plans without a limit do without

        return Bounding(self._graph, self._costs, self._machine)

    def _parts(self, rows: int) -> dict[str, int]:
        parts = self._overhead(self._graph, rows, rows, self._costs.threads)
        return parts | {"program": parts["program"] + self._beside_bytes}

    def count_beside(self, nbytes: int) -> None:
        """Count bytes that planning keeps beside this variant, whichever is chosen: of larger forms of the graph."""
        self._beside_bytes += nbytes
        self._fixed_bytes += nbytes

    @property
    def minimum(self) -> int:
        """Smallest budget in bytes."""
        return self._fixed_bytes + self._least.nbytes

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
        return self._bound(memory).seconds * 1e3

    def _bound(self, memory: int) -> Bound:
        return self._bounding.at(memory - self._fixed_bytes - self._step_bytes * len(self._costs.nodes))

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

    def plan(self, memory: int | None, known_ms: float = math.inf) -> Plan:
        """Return the plan for ``memory`` bytes (None: no limit). The search may stop at any plan that takes
        ``known_ms`` or more. Raises BudgetError.
        """
        started = time.perf_counter_ns()
        if memory is not None and memory < self.minimum:
            raise BudgetError(self.minimum, memory, parts=self.smallest_parts)
        draft = None if self._graph.spills else self._unlimited()
        if draft is None or (memory is not None and self._fixed_bytes + draft.nbytes > memory):
            assert memory is not None  # without a limit nothing is spilled
            bytes_max = max(memory - DRAFTING_BYTES, self.minimum) - self._fixed_bytes
            draft = self._found_within(bytes_max, known_ms / 1e3)
        bound_s = self._fastest_s() if memory is None else self._bound(memory).seconds
        return self._encoded(draft, memory, bound_s, started)

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
            graph=self._graph,
            activation_bytes=draft.placement.live_bytes_max,
            working_bytes=draft.working_bytes,
        )
        self._prepared_ns = 0
        return plan

    # ---- the ends ----

    def _tightest(self, drafting: Drafting) -> tuple[int, Records]:
        """Return the working part's bytes and the choices of the smallest arena: nothing pinned, each node with its
        smallest workspace, slices as its room allows. So the smallest budget does not depend on the machine's rates,
        which differ from one measurement to the next.
        """
        working_bytes = drafting.placement.working_bytes_min
        choices, _, _ = drafting.choose(self._any_order, working_bytes, working_bytes, 2, smallest=True)
        return working_bytes, choices

    def _tight_draft(self) -> Draft:
        """Return the tightest draft, made anew each time: it is larger than everything else that a planner holds."""
        working_bytes, choices = self._tightest_choices
        return self._drafting.place(choices.copy(), working_bytes)

    def _unlimited(self) -> Draft:
        """Return the draft that pins everything, each node by its fastest kernel, in the smallest working part."""
        fastest = [node.variants[0].workspace_bytes for node in self._costs.nodes]
        tops = self._drafting.placement.top + np.array(fastest, np.int64) * self._costs.threads
        return self._pin_all(int(tops.max(initial=0)))

    def _pin_all(self, working_bytes: int) -> Draft:
        drafting = self._drafting
        everything = int(drafting.item_bytes.sum()) + self._step_bytes * len(self._costs.nodes)
        choices, _, _ = drafting.choose(self._any_order, working_bytes, working_bytes + 2 * everything, 1)
        draft = drafting.place(choices, working_bytes)
        variants = zip(self._costs.nodes, choices["variant"].tolist(), strict=True)
        workspace = np.array([node.variants[v].workspace_bytes for node, v in variants], np.int64) * self._costs.threads
        ends = np.asarray(draft.placement.address, np.int64) + np.asarray(self._costs.root_bytes, np.int64)
        above = (draft.node_address[:, 0] + workspace)[workspace > 0]
        used = int(max(ends.max(initial=0), above.max(initial=0)))
        return replace(draft, working_bytes=used, nbytes=draft.nbytes - working_bytes + used)

    # ---- the ladder ----

    def _found_within(self, bytes_max: int, known: float = math.inf) -> Draft:
        """Return the best draft of at most ``bytes_max`` bytes. The search may stop at any draft that takes ``known``
        seconds or more.
        """
        best = tight = self._tight_draft()
        rounds = _core.ROUNDS_MAX if self._least.is_small else ROUNDS
        end, above = bytes_max, self._bounding.at(self._arena_bytes(bytes_max), rounds)
        for rung in reversed(self._rungs(bytes_max)):
            if above.seconds >= min(best.seconds, known):
                break  # nor is any lower rung's draft better
            bound = self._bounding.at(self._arena_bytes(rung.bytes_max), rounds)
            draft = self._fill(self._found(rung, bound, tight), bound, rung, end)
            best = draft if draft.seconds < best.seconds else best
            end, above = rung.bytes_max, bound
        return best

    def _rungs(self, bytes_max: int) -> list[_Rung]:
        """Return the rungs up to ``bytes_max``, the lowest first."""
        rungs, reached, spare = [], self._least.nbytes, FIRST_RUNG * self.minimum
        nodes = len(self._costs.nodes)
        growth = 1 + (GROWTH_SMALL if self._least.is_small else max(GROWTH, nodes / GROWTH_NODES))
        while reached <= bytes_max:
            rungs.append(_Rung(reached, self._least.nbytes + int(spare)))
            reached, spare = rungs[-1].next_bytes_max, spare * growth
        return rungs

    def _found(self, rung: _Rung, bound: Bound, tight: Draft) -> Draft:
        """Return the best draft of the rung that is found, the tightest one if nothing better."""
        best = self._drafted(rung.bytes_max, bound, tight)
        if not self._least.is_small or best.seconds <= bound.seconds * NEAR:
            return best
        drafting = next(d for d in self._draftings if d.placement is best.placement)
        lowest = rung.bytes_max == self._least.nbytes
        tries = TRIES_LOWEST if lowest else TRIES * (rung.next_bytes_max - rung.bytes_max) // rung.bytes_max
        return drafting.anneal(best, rung.bytes_max, tries)

    def _arena_bytes(self, bytes_max: int) -> int:
        """Return the largest arena of drafts of ``bytes_max`` bytes, without what is always pinned."""
        return bytes_max - self._step_bytes * len(self._costs.nodes)

    def _fill(self, draft: Draft, bound: Bound, rung: _Rung, bytes_max: int) -> Draft:
        """Return a draft of the rung with more pinned in ``bytes_max``."""
        looks = LOOKS // len(self._costs.nodes)
        return self._drafting.fill(draft, bound.price, bytes_max, rung.next_bytes_max, looks)

    def _drafted(self, bytes_max: int, bound: Bound, best: Draft) -> Draft:
        """Return the best of ``best`` and of new drafts."""
        if best.seconds <= bound.seconds * NEAR:
            return best
        orders = self._orders(bound)
        found: dict[_Recipe, _Unplaced] = {}

        def attempt(recipe: _Recipe) -> None:
            if recipe not in found:
                working_bytes = self._working_bytes(bytes_max, recipe.working_fraction)
                drafting = self._draftings[recipe.placement]
                chosen = drafting.choose(orders[recipe.order], working_bytes, bytes_max, recipe.slices_in_room)
                choices, seconds, nbytes = chosen
                if nbytes <= bytes_max:
                    found[recipe] = seconds, working_bytes, choices

        def best_recipe() -> _Recipe:
            return min(found, key=lambda recipe: found[recipe][0], default=START)

        fractions = [START._replace(working_fraction=fraction) for fraction in WORKING_FRACTIONS]
        for recipe in fractions:
            attempt(recipe)
        for slices_in_room in SLICES_IN_ROOM:
            attempt(best_recipe()._replace(slices_in_room=slices_in_room))
        for order in range(len(orders)):
            attempt(best_recipe()._replace(order=order))
        first = best_recipe()
        for factor in (0.8, 1.2):
            attempt(first._replace(working_fraction=min(first.working_fraction * factor, 1.0)))
        recipes = sorted(found, key=lambda recipe: found[recipe][0])[:PLACED]
        best = self._placed(0, [found[recipe] for recipe in recipes], bytes_max, best)
        for other in range(1, len(self._draftings)):
            if best.seconds <= bound.seconds * FAR:
                break
            elsewhere = [recipe._replace(placement=other) for recipe in recipes[:PLACED_ELSEWHERE] or fractions]
            for recipe in elsewhere:
                attempt(recipe)
            best = self._placed(other, [found[recipe] for recipe in elsewhere if recipe in found], bytes_max, best)
        return best

    def _placed(self, placement: int, drafts: list[_Unplaced], bytes_max: int, best: Draft) -> Draft:
        """Return the best of ``best`` and of ``drafts`` with addresses. The first of them (the tightest plan if there
        is none) is improved and tried, too.
        """
        drafting = self._draftings[placement]
        working_bytes, choices = drafts[0][1:] if drafts else self._tightest(drafting)
        improved = choices.copy()
        seconds = drafting.improve(improved, working_bytes, bytes_max, CHANGES // len(self._costs.nodes))
        drafts = sorted([*drafts, (seconds, working_bytes, improved)], key=lambda draft: draft[0])
        different = {
            (working_bytes, choices.tobytes()): (seconds, working_bytes, choices)
            for seconds, working_bytes, choices in drafts
        }
        for rank, (seconds, working_bytes, choices) in enumerate(different.values()):
            if seconds >= best.seconds * WORTH_PLACING:
                break
            for from_top in (False, True) if rank < FROM_TOP else (False,):
                best = drafting.place_faster(choices, working_bytes, best.seconds, from_top=from_top) or best
        return best

    def _working_bytes(self, bytes_max: int, fraction: float) -> int:
        """Return the size of a working part that has a fraction of the spare memory."""
        least = self._tightest_choices[0]
        spare = max(bytes_max - self._least.draft_bytes, 0)
        return least + int(spare * fraction) // LINE * LINE

    def _orders(self, bound: Bound) -> list[NDArray[np.int32]]:
        """Return orders in which items may be pinned, by price. They differ for items of equal price: spread evenly
        along the run, as even demand needs the least memory to load ahead; the most bytes per second of their node
        first, which computing hides least; or the smallest first, which leaves the fewest requests.
        """
        price = np.round(bound.price[self._drafting.items["node"]] * (PRICES * self._machine.storage_bytes_per_second))
        return [np.lexsort((rank, price)).astype(np.int32) for rank in self._pin_ranks]


def _evenly(count: int) -> NDArray[np.float64]:
    """Return ranks whose lowest ones, however many, are spread evenly: 0, 1, … with reversed bits."""
    rank, scale, left = np.zeros(count), 0.5, np.arange(count)
    while left.any():
        rank += scale * (left % 2)
        left, scale = left // 2, scale / 2
    return rank
