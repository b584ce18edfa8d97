"""The search for walks in bands of rows (planning/bands.py): those of a graph that need the least memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import add, or_
from typing import NamedTuple, TypeAlias

import numpy as np

from flexnn import _core

from .band_tables import bytes_between
from .banding import Region
from .growing import Pair, more_bytes
from .overhead import ADDED_BYTES, STEP_BYTES
from .types import I64

Tables: TypeAlias = tuple[I64, I64, I64]
"""Tables of nodes, of uses and of roots (band_tables.py)."""

SPARE_FEW = 1.0, 1.15, 1.4
WALKS = (10, False), (40, False), (100, True)
"""Most nodes that are walked at once, and whether the first walk is for all of the neediest nodes: short walks leave
room for others, a long one spares more.
"""
SPARE = 1.0, 1.05, 1.12, 1.25, 1.5
"""Memory as multiples of what the neediest node needs with the best walks, to which others need not fall below."""
BANDS_MAX = 64
"""Most bands of all images."""
REGIONS_MAX = 64
"""Most walks of a graph."""
PAIRED_MAX = 120
"""Most nodes of a graph in which longer walks are looked for where maps that grow over others spare much memory in
short ones already: that takes long.
"""
PAIRED_ENOUGH = 0.92
"""Memory with maps that grow over others as a fraction of that without, which is much less."""
NODE_BYTES = ADDED_BYTES + STEP_BYTES + STEP_BYTES // 2
"""Bytes that a node in bands takes outside the arena, and half a step's, which smallest budgets have for finer slices.
"""
WORTH_WALK = 0.985
"""The same for the nodes of one walk of several."""
WORTH_PAIRS = 0.985
"""Smallest budget with maps that grow over others as a fraction of that without, at which it is worth it."""
ENOUGH = 1.02
"""Memory as a multiple of the least that bands could need, within which the cheapest bands are chosen."""
COSTS_MAX = 0.05, 0.4
"""Largest fractions of the graph's multiplications and reading that a walk may repeat; each is tried."""
NEVER = (1 << 63) - 1
"""Work that is refused where none is."""
NEED = 5
"""Column of the bytes that a node needs, in the table of nodes."""
MEMO, MEMO_MAX, MEMO_ROW, MEMO_PART = 1 << 13, 1 << 15, 32, 16
"""Nodes and numbers of bands that searches of one graph remember, at least and at most, powers of two; bytes of
one; and the bytes of the neediest node for each byte of more than the least.
"""


class Found(NamedTuple):
    """Walks that do not meet, and the memory that they need together."""

    nbytes: int
    """Bytes of the neediest node, and of the nodes that were added."""
    most: int
    """Bytes of the neediest node."""
    worst: int
    """Number of that node."""
    work: int
    """Multiplications and reading that are repeated."""
    regions: list[Region]

    @property
    def added(self) -> int:
        """Number of nodes that were added."""
        return (self.nbytes - self.most) // NODE_BYTES

    @property
    def has_pairs(self) -> bool:
        """Whether maps grow over others."""
        return any(region.pairs for region in self.regions)


class _Walk(NamedTuple):
    """Nodes that are walked in bands, what the neediest of them needs then, and the work that is repeated."""

    first: int
    last: int
    bands: int
    need: int
    work: int
    pairs: tuple[Pair, ...] = ()
    """Maps that grow over others."""

    @property
    def nodes(self) -> slice:
        """Its nodes, of those of the graph."""
        return slice(self.first, self.last + 1)

    @property
    def length(self) -> int:
        """Number of its nodes."""
        return self.last - self.first + 1


class _Chosen(NamedTuple):
    """Walks that are chosen, and what nodes need with them."""

    own: list[int]
    """Bytes that each node needs by itself, or its walk."""
    walks: list[_Walk]
    needs: list[int]
    """The same with what maps that lie over each other take beyond that."""
    barred: bytes
    """Whether each node is walked."""
    most: int
    """Bytes of the neediest node."""
    has_pairs: bool
    """Whether maps grow over others."""


class _Kind(NamedTuple):
    """How walks are chosen."""

    pairs: bool
    """Maps grow over others that end."""
    joins: bool
    """A walk that is too short for its neighbour is replaced."""


_Run: TypeAlias = tuple[int, int, bool, _Kind]
"""Facts that walks are chosen by: most nodes of one, bytes that nodes need not fall below, whether the first walk
spares all of the neediest nodes, and the kind.
"""


class _Known(NamedTuple):
    """Walks that a search has found which may repeat more or less work."""

    found: Found
    work: int
    """Work that it was allowed to repeat in a walk."""
    refused: int
    """Least work that it was refused: who is allowed less than that, and no less than it was, finds the same."""


class Search:
    """Search for the walks of a graph whose memory, with that of its nodes, is the least."""

    def __init__(
        self,
        tables: Tables,
        cost_max: float,
        memo: I64 | None = None,
        *,
        regions_max: int = REGIONS_MAX,
        known: dict[_Run, _Known] | None = None,
    ) -> None:
        """``memo``: of another search of the same tables (``new_memo``), which makes this one faster; ``regions_max``:
        most walks; ``known``: what another one for as many walks at most has found, and what this one will.
        """
        nodes = tables[0].tolist()
        self._regions_max = regions_max
        self._memo = new_memo() if memo is None else memo
        self._plain: dict[tuple[object, ...], tuple[_Walk | None, int]] = {}
        """Walks that were found, with the least work that was refused."""
        self._stuck: dict[tuple[int, int, bool, bool], tuple[_Chosen, int, int, int]] = {}
        """Walks chosen where nothing but to replace one was left, the bytes reached, the step, and the least work that
        was refused: a search that replaces goes on from there.
        """
        self._known: dict[_Run, _Known] = {} if known is None else known
        self._refused = NEVER
        """Least work that was refused since these walks began to be chosen."""
        self._tables, self._images, self._needs = tables, [node[3] for node in nodes], [node[5] for node in nodes]
        self._roots: list[list[int]] = tables[2].tolist()
        between = bytes_between(self._roots, len(nodes))
        grows = [after - before for before, after in pairwise(between)]
        no_start, no_end = _core.BANDS_NO_START, _core.BANDS_NO_END
        self._ends = [no_end if grown > 0 else no_start if grown < 0 else no_start | no_end for grown in grows]
        self._work_max = int(cost_max * sum(node[3] * node[6] + node[7] for node in nodes))

    def all(self, *, joins: bool = True) -> Iterator[Found]:
        """Yield good walks. Walks that spare more memory than others need are made again with what these need.
        ``joins``: walks are tried, too, that replace some which are too short for their neighbours.
        """
        looks_on = True
        for nodes_max, is_wide in WALKS:
            factors = SPARE if nodes_max == WALKS[0][0] else SPARE_FEW
            least = max(self._needs, default=0)
            for joined in (False, True)[: 1 + joins]:
                tight = self._walks(nodes_max, 0, is_wide, _Kind(False, joined))
                may_pair = not is_wide and (looks_on or len(self._needs) <= PAIRED_MAX)
                floors = (0, tight.most) if may_pair else ()
                some = [self._walks(nodes_max, floor, is_wide, _Kind(True, joined)) for floor in floors]
                paired = min(some, key=lambda found: found.nbytes, default=tight)
                if not (tight.regions or paired.regions) or min(tight.most, paired.most) > WORTH_WALK * least:
                    break
                is_worth_it = paired.nbytes <= WORTH_PAIRS * tight.nbytes
                looks_on = looks_on and paired.nbytes > PAIRED_ENOUGH * tight.nbytes
                for found in (tight, paired)[: 1 + is_worth_it]:
                    kind = _Kind(found is not tight, joined)
                    yield found
                    yield from (self._walks(nodes_max, int(factor * found.most), is_wide, kind) for factor in factors)
                least = tight.most

    def tightest(self) -> list[Found]:
        """Return walks that need little memory: a few of those that ``all`` yields."""
        kinds = _Kind(False, False), _Kind(True, False)
        return [self._walks(nodes_max, 0, is_wide, kind) for nodes_max, is_wide in WALKS for kind in kinds]

    def whole(self) -> Found:
        """Return no walks, and the memory without any."""
        most = max(self._needs)
        return Found(most, most, self._needs.index(most), 0, [])

    def _walks(self, nodes_max: int, floor: int, is_wide: bool, kind: _Kind) -> Found:
        """Return what ``_choose`` does, which may be known."""
        run = nodes_max, floor, is_wide, kind
        known = self._known.get(run)
        if known is None or not known.work <= self._work_max < known.refused:
            known = self._known[run] = _Known(self._choose(*run), self._work_max, self._refused)
        return known.found

    def _choose(self, nodes_max: int, floor: int, is_wide: bool, kind: _Kind) -> Found:
        """Return walks that bring one neediest node after the other near the least that any walk of it needs, or to
        ``floor`` bytes. No walk need be better than the ones before it. ``is_wide``: the first of them spares all of
        the neediest nodes as far as one walk can.
        """
        now = _Chosen(self._needs, [], self._needs, bytes(len(self._needs)), max(self._needs, default=0), False)
        run, ends = (nodes_max, floor, is_wide, kind.pairs), self._ends
        start = now, floor, 0, NEVER
        now, reached, begun, self._refused = self._stuck.get(run, start) if kind.joins else start
        stuck = 2 * self._regions_max if now.needs else 0
        for step in range(begun, stuck):
            worst, most = now.needs.index(now.most), now.most
            if len(now.walks) == self._regions_max or now.barred[worst] or most <= floor:
                break
            limits = nodes_max, BANDS_MAX, self._work_max, NODE_BYTES, reached
            is_first = int(is_wide and not now.walks)
            closed = bytes(map(or_, now.barred, ends)) if is_wide else now.barred
            key = limits, is_first, worst, closed
            if key not in self._plain:  # a search with maps that grow over others begins as one without
                before, self._refused = self._refused, NEVER
                self._plain[key] = self._find(self._tables, (*limits, is_first, 0), worst, closed), self._refused
                self._refused = before
            found, refused = self._plain[key]
            self._refused = min(self._refused, refused)
            after = now if found is None else self._with(now, found)
            below = int(WORTH_WALK * (most if found is None else max(found.need, 0) + self._added(found) * NODE_BYTES))
            if kind.pairs and below > reached:
                other = self._find(self._tables, (*limits, is_first, below), worst, closed)
                paired = now if other is None else self._with(now, other)
                if paired.most <= most and paired.needs[worst] < after.needs[worst]:
                    after, found = paired, other
            if found is None or after.needs[worst] > WORTH_WALK * most:
                found, replaced = self._joined(limits, now) if kind.joins else (None, None)
                stuck = step
                if found is None or replaced is None:
                    break
                after = self._with(now, found, replaced)
                if after.needs[worst] > WORTH_WALK * most:
                    break
            now, reached = after, max(reached, found.need)
        if not kind.joins:
            self._stuck[run] = now, reached, stuck, self._refused
        added = sum(map(self._added, now.walks))
        regions = [Region(*walk[:3], int(bool(walk.pairs))) for walk in now.walks]
        worst = now.needs.index(now.most) if now.needs else 0
        return Found(now.most + added * NODE_BYTES, now.most, worst, sum(walk.work for walk in now.walks), regions)

    def _added(self, walk: _Walk) -> int:
        """Return how many nodes a walk adds."""
        copies: int = self._images[walk.first] * walk.bands
        return walk.length * (copies - 1)

    def _with(self, now: _Chosen, found: _Walk, replaced: _Walk | None = None) -> _Chosen:
        """Return what is chosen with one more walk, in the place of another one, and what nodes need then."""
        walks, has_pairs = [*now.walks, found], now.has_pairs or bool(found.pairs)
        own, barred = now.own.copy(), bytearray(now.barred)
        if replaced is not None:
            walks.remove(replaced)
            own[replaced.nodes], barred[replaced.nodes] = self._needs[replaced.nodes], bytes(replaced.length)
            has_pairs = any(walk.pairs for walk in walks)
        own[found.nodes], barred[found.nodes] = [found.need] * found.length, b"\1" * found.length
        if not has_pairs:
            return _Chosen(own, walks, own, bytes(barred), max(own), False)
        more = more_bytes(((walk.first, walk.last, walk.pairs) for walk in walks), self._roots, len(own))
        needs = list(map(add, own, more))
        return _Chosen(own, walks, needs, bytes(barred), max(needs), True)

    def _find(
        self,
        tables: Tables,
        limits: tuple[int, int, int, int, int, int, int],
        worst: int,
        closed: bytes,
    ) -> _Walk | None:
        found, refused = _core.bands_find(tables, limits, ENOUGH, worst, closed, self._memo)
        self._refused = min(self._refused, refused)
        return None if found is None else _Walk(*found[:5], tuple(Pair(*pair) for pair in found[5]))

    def _joined(self, limits: tuple[int, int, int, int, int], now: _Chosen) -> tuple[_Walk | None, _Walk | None]:
        """Return a walk through the neediest node and nodes of a chosen walk near it, and that walk, which it
        replaces: of walks that need as much, the chosen one may be too short for its neighbours. None: there is none.
        """
        best: tuple[_Walk | None, _Walk | None] = None, None
        worst, most = now.needs.index(now.most), WORTH_WALK * now.most
        for walk in now.walks:
            both = range(min(walk.first, worst), max(walk.last, worst) + 1)
            if len(both) > limits[0] or sum(now.barred[both.start : both.stop]) > walk.last - walk.first + 1:
                continue  # too far away, or another walk is between
            nodes = self._tables[0].copy()
            nodes[: both.start, NEED], nodes[both.stop :, NEED] = 0, 0
            closed = [0 if node in both else is_barred for node, is_barred in enumerate(now.barred)]
            found = self._find((nodes, *self._tables[1:]), (*limits, 1, 0), worst, bytes(closed))
            if found is None:
                continue
            left = [self._needs[node] for node in both if not found.first <= node <= found.last]
            if max(found.need, *left, 0) <= most:
                best, most = (found, walk), max(found.need, *left, 0)
        return best


def new_memo(need_bytes: int = 0) -> I64:
    """Return what searches of the same tables may share: what they found out. ``need_bytes``: of the neediest node,
    beside which this is little.
    """
    rows = MEMO
    while rows < MEMO_MAX and 2 * rows * MEMO_ROW * MEMO_PART <= need_bytes:
        rows *= 2
    return np.zeros((rows, MEMO_ROW // 8), np.int64)


def found_in(
    tables: Tables, regions_max: int = REGIONS_MAX, *, joins: bool = True, costs: Sequence[float] = COSTS_MAX
) -> Iterator[Found]:
    """Yield good walks of a graph, of each cost; ``regions_max``: most walks at once; ``joins``: see Search.all."""
    memo, seen = new_memo(max(node[NEED] for node in tables[0].tolist())), set[tuple[int, int]]()
    known: dict[_Run, _Known] = {}
    for cost in costs:
        for found in Search(tables, cost, memo, regions_max=regions_max, known=known).all(joins=joins):
            if (found.nbytes, found.work) not in seen:  # dozens of walks, found again with most limits, would take room
                seen.add((found.nbytes, found.work))
                yield found


class Searched:
    """Walks that searches have found, by the tables of their graphs: a session that measures the machine between two
    planners searches once. Small, as the machine is measured beside it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[tuple[Found, bytes]]] = {}

    def found_in(self, tables: Tables, costs: Sequence[float] = COSTS_MAX) -> Iterator[Found]:
        """Yield good walks of a graph, as ``found_in`` does."""
        key = (*costs, *(hash(table.tobytes()) for table in tables))
        if key not in self._known:
            found = found_in(tables, costs=costs)
            self._known[key] = [
                (each._replace(regions=[]), np.array(each.regions, np.int32).tobytes()) for each in found
            ]
        for each, regions in self._known[key]:
            rows = np.frombuffer(regions, np.int32).reshape(-1, len(Region._fields)).tolist()
            yield each._replace(regions=[Region(*row) for row in rows])
