"""Search for the plan of a budget on a ladder (docs/architecture.md, D3–D9).

Budgets form a ladder. The lowest rung fits the tightest plan. That plan is built first, so the smallest budget is
known, and a budget at or above it never fails. Drafts are searched on each rung separately, and the best draft of a
rung pins more in the memory up to the rung above. The plan of a budget is the best of all rungs in it, so more memory
is not predicted slower, but where random changes of a lower rung were not tried (HOPELESS), where drafts of lower rungs
were not looked for (FALLING), and by less than half a percent in large graphs (LARGE). The search goes from the highest
rung down and ends where a rung's bound is no less than the best time so far: neither that rung nor a lower one has a
better draft. Nothing depends on the clock: the same budget and costs always give the same plan.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flexnn import _core

from .drafts import SLICES_IN_ROOM, Draft, Drafting, Filled, Records
from .lean import Lean, lean_parts
from .types import LINE, Costs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .bound import Bound, Bounding
    from .variant_planner import Least

GROWTH, GROWTH_NODES, GROWTH_SMALL = 0.4, 400, 0.2
"""Growth of the spare memory from rung to rung: GROWTH, or nodes / GROWTH_NODES where that is more, as a rung costs
time by nodes and all rungs shall take tens of milliseconds; GROWTH_SMALL in small graphs, where memory between rungs,
which only pins, costs the most.
"""
WORKING_FRACTIONS = (0.02, 0.08, 0.2, 0.4, 0.7, 1.0)
"""Fractions of the spare memory that are tried for the arena's working part; the rest pins weights."""
PHASE_FRACTIONS = (0.08, 0.2, 0.4)
"""Those that are tried where slices may stay for a phase of the run: what pins has more worth then."""
FINE = 64
"""Rungs of a fine ladder up to the memory that holds all weights. One takes 2 ms for the program of a session's single
token. Near that memory the other rungs are so far apart that plans between them took up to 1.7 times as long.
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
LARGE = 3000
"""Nodes from which on a rung costs so much that none is searched for less than NEAR saves."""
HOPELESS = 1.05
"""Time as a multiple of the best known, above which a draft is not changed at random, which takes more time than all
else of its rung. 1.01 made one of SqueezeNet's plans 2.9 % slower, and takes a fifth less time for GoogLeNet. Drafts of
the rung below the highest are changed in any case: with a little less memory it was the highest.
"""
FALLING, FALLING_NODES = 1.03, 50
"""Time as a multiple of the best known, above which a rung's draft is the last one that is looked for, and nodes from
which on: lower rungs were never better. Graphs of few nodes take little time, but their large weights fit suddenly.
"""
TRIES, TRIES_LOWEST = 6_000, 1_500
"""Random changes of a rung whose next rung has twice the memory (in proportion for others), and of the lowest rung."""
TRIES_PER_SECOND = 2_500_000
"""Most random changes of a rung per second that its best draft takes beyond the bound. A change takes 4 us, and they
save about a tenth of that time in each run: this many are worth it in a session of a hundred runs.
"""
WORTH_PLACING = 0.9995
"""Largest predicted time, as a fraction of the best so far, of a draft that is worth placing."""


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
    lean: Lean | None = None
    """Smaller working part, whose items are pinned before all others."""


START = _Recipe(0, WORKING_FRACTIONS[-1], SLICES_IN_ROOM[1], 0)
"""First recipe tried; each other one differs from the best so far in one field."""


class _Rung(NamedTuple):
    """A rung of the ladder. Sizes in bytes of drafts (``Draft.nbytes``)."""

    bytes_max: int
    """Most bytes of its drafts."""
    next_bytes_max: int
    """Most bytes of the rung above."""


_Unplaced = tuple[float, int, Records]
"""Seconds if memory were never fragmented, bytes of the working part, choices."""


class Ladder:
    """Rungs of one variant of a graph."""

    def __init__(
        self,
        costs: Costs,
        drafting: Drafting,
        draftings: Callable[[], list[Drafting]],
        bounding: Bounding,
        least: Least,
        *,
        step_bytes: int,
        bytes_per_second: float,
    ) -> None:
        """``draftings``: those of all placements, of which ``drafting`` is the first."""
        self._costs, self._bounding, self._least = costs, bounding, least
        self._step_bytes, self._bytes_per_second = step_bytes, bytes_per_second
        self._drafting, self._all_draftings = drafting, draftings
        sizes = self._drafting.item_bytes
        self._item_nodes: list[int] = self._drafting.items["node"].tolist()
        seconds = [max(costs.nodes[node].variants[0].seconds(), 1e-9) for node in self._item_nodes]
        slow = [-size / taken for size, taken in zip(sizes, seconds, strict=True)]
        self._pin_orders = [
            sorted(range(len(sizes)), key=rank.__getitem__) for rank in (_evenly(len(sizes)), slow, sizes)
        ]

    @cached_property
    def _leans(self) -> list[Lean]:
        return lean_parts(self._costs, self._drafting)

    def _draftings(self, placement: int) -> Drafting:
        """Return the drafting of a placement. Others than the first are made where they are needed."""
        return self._all_draftings()[placement] if placement else self._drafting

    def best_within(
        self, bytes_max: int, tight: Draft, spare: float, known: float = math.inf, *, finely: bool = False
    ) -> Draft:
        """Return the best draft of at most ``bytes_max`` bytes, ``tight`` if nothing is better. ``spare``: bytes of a
        rung beyond the one that has room for finer slices. The search may stop at any draft that takes ``known``
        seconds or more. ``finely``: further rungs lie between those of the ladder.
        """
        best = self._best_of(self._rungs(bytes_max, spare), bytes_max, tight, tight, known)
        return self._best_of(self._fine_rungs(bytes_max), bytes_max, tight, best, known) if finely else best

    def _best_of(self, rungs: Sequence[_Rung], bytes_max: int, tight: Draft, best: Draft, known: float) -> Draft:
        """Return the best of ``best`` and of the drafts of these rungs, the lowest of which is the first."""
        rounds = _core.ROUNDS_MAX if self._least.is_small else ROUNDS
        worth = NEAR if len(self._costs.nodes) >= LARGE else 1.0
        end, above = bytes_max, self._bounding.at(self._arena_bytes(bytes_max), rounds)
        for rung in reversed(rungs):
            if worth * above.seconds >= min(best.seconds, known):
                break  # nor is any lower rung's draft better, or worth its search
            bound = self._bounding.at(self._arena_bytes(rung.bytes_max), rounds)
            found = self._drafted(rung.bytes_max, bound, tight)
            draft = self._fill(found, bound, rung, end)
            best = draft if draft.seconds < best.seconds else best
            if draft.seconds > FALLING * min(best.seconds, known) and len(self._costs.nodes) >= FALLING_NODES:
                break
            worth_it = draft.seconds <= HOPELESS * min(best.seconds, known) or rung is rungs[-2:][0]
            hopes = found.seconds > NEAR * bound.seconds and worth_it
            if self._least.is_small and hopes:
                draft = self._fill(self._annealed(found, bound, rung), bound, rung, end)
                best = draft if draft.seconds < best.seconds else best
            end, above = rung.bytes_max, bound
        return best

    def for_phases(self, bytes_max: int, best: Draft, in_phases: Callable[[Draft], Draft]) -> Draft:
        """Return the draft that ``in_phases`` makes the fastest of: ``best``, or one that pins more than would be best
        for the whole run.
        """
        if not self._bounding.has_phases:
            return best
        from .phases import WORTH  # few graphs share weights

        seconds = in_phases(best).seconds
        order = self._orders(self._bounding.at(self._arena_bytes(bytes_max), ROUNDS))[0]
        for fraction in PHASE_FRACTIONS:
            recipe = _Recipe(0, fraction, SLICES_IN_ROOM[0], 0)
            chosen = self._chosen(recipe, order, bytes_max)
            if chosen is None:
                continue
            draft = self._drafting.place_faster(chosen[2], chosen[1], math.inf)
            taken = in_phases(draft).seconds if draft is not None else math.inf
            if draft is not None and taken < WORTH * seconds:
                best, seconds = draft, taken
        return best

    def _rungs(self, bytes_max: int, spare: float) -> list[_Rung]:
        """Return the rungs up to ``bytes_max``, the lowest first. ``spare``: as in ``best_within``."""
        paired, sliced = self._least.paired_bytes, self._least.sliced_bytes
        lowest = _Rung(self._least.nbytes, paired), _Rung(paired, sliced)
        rungs = [rung for rung in lowest if rung.bytes_max < rung.next_bytes_max and rung.bytes_max <= bytes_max]
        reached, nodes = sliced, len(self._costs.nodes)
        growth = 1 + (GROWTH_SMALL if self._least.is_small else max(GROWTH, nodes / GROWTH_NODES))
        while reached <= bytes_max:
            rungs.append(_Rung(reached, sliced + int(spare)))
            reached, spare = rungs[-1].next_bytes_max, spare * growth
        return rungs

    def _fine_rungs(self, bytes_max: int) -> list[_Rung]:
        """Return rungs from ``bytes_max`` down, a small part of all weights apart, the lowest first."""
        sliced = self._least.sliced_bytes
        step = max(sum(self._drafting.item_bytes) // FINE, LINE)
        count = max(bytes_max - sliced, 0) // step
        return [_Rung(sliced + i * step, sliced + (i + 1) * step) for i in range(count + 1)]

    def _annealed(self, draft: Draft, bound: Bound, rung: _Rung) -> Draft:
        """Return the rung's best draft after random changes, as many as the time beyond the bound is worth."""
        drafting = self._drafting
        if draft.placement is not drafting.placement:
            drafting = next(d for d in self._all_draftings() if d.placement is draft.placement)
        lowest = rung.bytes_max <= self._least.paired_bytes
        tries = TRIES_LOWEST if lowest else TRIES * (rung.next_bytes_max - rung.bytes_max) // rung.bytes_max
        worth = int((draft.seconds - bound.seconds) * TRIES_PER_SECOND)
        return drafting.anneal(draft, rung.bytes_max, min(tries, worth))

    def _arena_bytes(self, bytes_max: int) -> int:
        """Return the largest arena of drafts of ``bytes_max`` bytes, without what is always pinned."""
        return bytes_max - self._step_bytes * len(self._costs.nodes)

    def _fill(self, draft: Draft, bound: Bound, rung: _Rung, bytes_max: int) -> Draft:
        """Return a draft of the rung with more pinned in ``bytes_max``."""
        looks = LOOKS // len(self._costs.nodes)
        return self._drafting.fill(draft, Filled(tuple(bound.price), bytes_max, rung.next_bytes_max, looks))

    def _drafted(self, bytes_max: int, bound: Bound, best: Draft) -> Draft:
        """Return the best of ``best`` and of new drafts."""
        if best.seconds <= bound.seconds * NEAR:
            return best
        orders = self._orders(bound)
        found: dict[_Recipe, _Unplaced] = {}

        def attempt(recipe: _Recipe) -> None:
            if recipe not in found:
                chosen = self._chosen(recipe, orders[recipe.order], bytes_max)
                if chosen is not None:
                    found[recipe] = chosen

        def best_recipe() -> _Recipe:
            return min(found, key=lambda recipe: found[recipe][0], default=START)

        start = START if bytes_max >= self._least.paired_bytes else START._replace(slices_in_room=1)
        fractions = [start._replace(working_fraction=fraction) for fraction in WORKING_FRACTIONS]
        for recipe in fractions:
            attempt(recipe)
        for lean in self._leans:
            if lean.pinned_bytes + lean.working_bytes <= self._arena_bytes(bytes_max):
                for recipe in fractions:
                    attempt(recipe._replace(lean=lean))
        for slices_in_room in SLICES_IN_ROOM:
            attempt(best_recipe()._replace(slices_in_room=slices_in_room))
        for order in range(len(orders)):
            attempt(best_recipe()._replace(order=order))
        first = best_recipe()
        for factor in (0.8, 1.2):
            attempt(first._replace(working_fraction=min(first.working_fraction * factor, 1.0)))
        recipes = sorted(found, key=lambda recipe: found[recipe][0])[:PLACED]
        best = self._placed(0, [found[recipe] for recipe in recipes], bytes_max, best)
        is_far = best.seconds > bound.seconds * FAR
        for other in range(1, len(self._all_draftings())) if is_far else ():
            if best.seconds <= bound.seconds * FAR:
                break
            elsewhere = [recipe._replace(placement=other) for recipe in recipes[:PLACED_ELSEWHERE] or fractions]
            for recipe in elsewhere:
                attempt(recipe)
            best = self._placed(other, [found[recipe] for recipe in elsewhere if recipe in found], bytes_max, best)
        return best

    def _placed(self, placement: int, drafts: list[_Unplaced], bytes_max: int, best: Draft) -> Draft:
        """Return the best of ``best`` and of ``drafts`` with addresses. The first of them (the tightest plan if there
        is none, which may take more bytes than that of the first placement) is improved and tried, too.
        """
        drafting = self._draftings(placement)
        at_once = SLICES_IN_ROOM[0] if bytes_max >= self._least.paired_bytes else 1
        working_bytes, choices = drafts[0][1:] if drafts else drafting.tightest(at_once)
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
                placed = drafting.place_faster(choices, working_bytes, best.seconds, from_top=from_top)
                best = placed if placed is not None and placed.nbytes <= bytes_max else best
        return best

    def _chosen(self, recipe: _Recipe, order: NDArray[np.int32], bytes_max: int) -> _Unplaced | None:
        """Return what a recipe makes; None where it takes more than ``bytes_max``."""
        lean, working_bytes = recipe.lean, self._working_bytes(bytes_max, recipe)
        if lean is not None:
            order = np.array([*lean.items, *(item for item in order.tolist() if item not in lean.items)], np.int32)
        drafting = self._draftings(recipe.placement)
        choices, seconds, nbytes = drafting.choose(order, working_bytes, bytes_max, recipe.slices_in_room)
        if nbytes > bytes_max or (lean is not None and not drafting.are_pinned(choices, lean.items)):
            return None
        return seconds, working_bytes, choices

    def _working_bytes(self, bytes_max: int, recipe: _Recipe) -> int:
        """Return the size of a recipe's working part: the smallest one, and a fraction of the spare memory."""
        least, taken = self._drafting.placement.working_bytes_min, self._least.draft_bytes
        if recipe.lean is not None:
            taken += recipe.lean.pinned_bytes + recipe.lean.working_bytes - least
            least = recipe.lean.working_bytes
        return least + int(max(bytes_max - taken, 0) * recipe.working_fraction) // LINE * LINE

    def _orders(self, bound: Bound) -> list[NDArray[np.int32]]:
        """Return orders in which items may be pinned, by price. They differ for items of equal price: spread evenly
        along the run, as even demand needs the least memory to load ahead; the most bytes per second of their node
        first, which computing hides least; or the smallest first, which leaves the fewest requests.
        """
        scale = PRICES * self._bytes_per_second
        price = [round(bound.price[node] * scale) for node in self._item_nodes]
        return [np.array(sorted(order, key=price.__getitem__), np.int32) for order in self._pin_orders]


def _evenly(count: int) -> list[float]:
    """Return ranks whose lowest ones, however many, are spread evenly: 0, 1, … with reversed bits."""
    ranks = []
    for number in range(count):
        rank, scale = 0.0, 0.5
        while number:
            rank += scale * (number % 2)
            number, scale = number // 2, scale / 2
        ranks.append(rank)
    return ranks
