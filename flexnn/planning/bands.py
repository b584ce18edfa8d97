"""Activations tiled by rows through several nodes (docs/architecture.md, D1; Lin et al., "MCUNetV2", NeurIPS 2021, §3).

Nodes that follow each other are walked band by band: some rows of what they leave behind, with all rows that these need
of the tensors in between, of which only a band is in memory. Nodes may branch and join, and read maps of several sizes:
which rows a node needs is a function of its operator's record (band_tables.py), which rows a band computes is found in
planner/bands.c, and the nodes are written out in banding.py. Rows that two bands need of a tensor in between are
computed twice, and streamed weights are read once per band. The choice depends on sizes alone, so that the smallest
budget is the same in processes that measure different rates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice, pairwise
from operator import add, or_
from typing import NamedTuple

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph

from .apart import apart, sums_apart
from .band_tables import BandTables, SeenRows, Walks, bytes_between, waits_for_whole
from .banding import Region, written
from .costs import lives_of
from .growing import Pair, more_bytes
from .order import kept_bytes, ordered
from .overhead import ADDED_BYTES, STEP_BYTES
from .twice import twice
from .types import I64, Costs

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
SEARCHED_MAX = 1500
"""Most nodes of a graph in which walks are looked for: that takes time with the square of their number."""
PAIRED_MAX = 120
"""Most nodes of a graph in which longer walks are looked for where maps that grow over others spare much memory in
short ones already: that takes long.
"""
PAIRED_ENOUGH = 0.92
"""Memory with maps that grow over others as a fraction of that without, which is much less."""
NODE_BYTES = ADDED_BYTES + STEP_BYTES + STEP_BYTES // 2
"""Bytes that a node in bands takes outside the arena, and half a step's, which smallest budgets have for finer slices.
"""
NODE_WORK = 2_000_000
"""Multiplications that take about as long as a node's steps and requests do."""
WORTH = 0.95
"""Memory with bands as a fraction of memory without, at which bands are worth it."""
WORTH_WALK = 0.985
"""The same for the nodes of one walk of several."""
WORTH_PAIRS = 0.985
"""Smallest budget with maps that grow over others as a fraction of that without, at which it is worth it."""
WORTH_ORDER = 0.9
"""Bytes times nodes for which activations are alive in another order, as a fraction of those in the graph's own, at
which bands are looked for in that order.
"""
WORTH_OTHER, WORTH_QUERIES, WORTH_TWICE = 0.97, 0.92, 0.88
"""Smallest budget with sums apart or in another order, with queries made last, and with maps made twice, as a fraction
of that without, at which it is worth it: what planning keeps of the tightest form is lacking where budgets are larger.
"""
ENOUGH = 1.02
"""Memory as a multiple of the least that bands could need, within which the cheapest bands are chosen."""
COSTS_MAX = 0.05, 0.4
"""Largest fractions of the graph's multiplications and reading that a walk may repeat; each is tried."""
NEED = 5
"""Column of the bytes that a node needs, in the table of nodes."""
MEMO, MEMO_MAX, MEMO_ROW, MEMO_PART = 1 << 13, 1 << 15, 32, 16
"""Nodes and numbers of bands that searches of one graph remember, at least and at most, powers of two; bytes of
one; and the bytes of the neediest node for each byte of more than the least.
"""
FORMS = 1.005, 1.05, 1.1, 1.2, 1.35, 1.5
"""Memory as multiples of the least, and of the least where maps are made once, or where none grows over another one,
within which each form of the graph is the cheapest: tight budgets take the first form, looser ones a form that repeats
less. Forms that sizes hardly tell apart may differ much in what they repeat.
"""


class Form(NamedTuple):
    """A form of a graph with nodes in bands, found but not written out: it takes next to no memory."""

    nbytes: int
    """Bytes of the neediest node, and of the nodes that were added."""
    way: int
    """Index of the graph that was searched."""
    regions: tuple[Region, ...]
    work: float = 0
    """Multiplications, reading and nodes that are added, as a fraction of what the graph does."""
    added: int = 0
    """Number of nodes that were added."""

    def written(self, ways: Ways) -> Graph:
        """Return the form of the graph."""
        way = ways.at(self.way)
        return written(way.graph, way.costs, way.walks, way.tables, self.regions)


def form_of(way: int, rows: Iterable[tuple[int, int, int, int]]) -> Form:
    """Return the form that walks these regions of a graph. Raises ValueError where no form does."""
    regions = tuple(sorted(Region(*row) for row in rows))
    if not 1 <= len(regions) <= REGIONS_MAX or any(before.last >= after.first for before, after in pairwise(regions)):
        raise ValueError("walks meet")
    if any(
        not (region.first <= region.last < SEARCHED_MAX and 1 <= region.bands <= BANDS_MAX and 0 <= region.pairs <= 1)
        for region in regions
    ):
        raise ValueError("no walk is like this")
    return Form(0, way, regions)


def banded(ways: Ways, whole_bytes: int) -> list[Form]:
    """Return forms of a graph with nodes in bands, the tightest first: those that lower the memory of the neediest
    node. ``whole_bytes``: the smallest budget without bands.
    """
    if len(ways.graph.nodes) > SEARCHED_MAX:
        return []
    nodes = ways.at(0).tables[0].tolist()
    whole = max((node[5] for node in nodes), default=0)
    work = max(sum(node[3] * node[6] + node[7] for node in nodes), 1)
    wanted = int((1 - WORTH_QUERIES) * whole_bytes)
    beside, pool = whole_bytes - whole, list(_pool(ways, wanted))
    pool, plain = _worth_it(_without_pairs(pool, beside) or pool, ways, whole, beside)
    single = min((found.nbytes for found, _ in pool if not found.has_pairs), default=plain)
    least = min((found.nbytes for found, _ in pool), default=0)
    if not pool or least > WORTH * whole:
        return []
    forms: list[Form] = []
    for limit in sorted({factor * nbytes for nbytes in (least, plain, single) for factor in FORMS}):
        near = [entry for entry in pool if entry[0].nbytes <= limit]
        found, index = min(near, key=lambda entry: (entry[0].work + NODE_WORK * entry[0].added, entry[0].nbytes))
        more = (found.work + NODE_WORK * found.added) / work
        form = Form(found.nbytes, index, tuple(found.regions), more, found.added)
        if found.regions and form not in forms:
            forms.append(form)
    ways.keep({form.way for form in forms})
    return forms


def _pool(ways: Ways, wanted: int) -> Iterator[tuple[Found, int]]:
    """Yield good walks of all graphs that are searched, with what these graphs add themselves."""
    for index, way in ways.all(wanted):
        added = (way.graph.added - ways.graph.added) * NODE_BYTES
        for found in found_in(way):
            yield found._replace(nbytes=found.nbytes + added, work=found.work + way.work), index


def _worth_it(
    pool: list[tuple[Found, int]], ways: Ways, whole: int, beside: int
) -> tuple[list[tuple[Found, int]], int]:
    """Return the walks of graphs that are worth it, and the least bytes of the graph as it is. ``whole``: its bytes
    without walks; ``beside``: what every budget has beside them.
    """
    least: dict[int, int] = {}
    for found, index in pool:
        least[index] = min(found.nbytes, least.get(index, found.nbytes))
    plain = min((nbytes for index, nbytes in least.items() if ways.at(index).worth == 1), default=whole)
    worth = {index for index, nbytes in least.items() if beside + nbytes <= ways.at(index).worth * (beside + plain)}
    return [entry for entry in pool if entry[1] in worth or ways.at(entry[1]).worth == 1], plain


def _without_pairs(pool: list[tuple[Found, int]], beside: int) -> list[tuple[Found, int]]:
    """Return the walks in which no map grows over another one; none where such maps are worth it."""
    single = [entry for entry in pool if not entry[0].has_pairs]
    least, alone = (beside + min((found.nbytes for found, _ in some), default=0) for some in (pool, single))
    return single if least > WORTH_PAIRS * alone else []


class Way(NamedTuple):
    """A graph that is searched, and what its rows are."""

    graph: Graph
    costs: Costs
    walks: Walks
    tables: tuple[I64, I64, I64]
    work: int = 0
    """Multiplications that it repeats by itself."""
    worth: float = 1
    """Smallest budget as a fraction of that of others, at which it is worth it."""


def _ways(first: Way, costs_of: Callable[[Graph], Costs], seen: SeenRows, wanted: int = 0) -> Iterator[Way | None]:
    """Yield the graph with rows of its maps (``first``); with images as rows where there are several; with parts of
    concatenations apart where they wait, over maps that end with them, too; with sums apart from what they add to; and
    with maps made twice, in another order, where that keeps less alive. The second one has queries made last, where
    that may spare ``wanted`` bytes; else it is None.
    """
    yield first
    last, graph, costs = first.graph, first.graph, first.costs
    if any(waits_for_whole(graph, node) for node in graph.nodes):
        from .queries import queries_last  # an import takes memory, and images' graphs have none

        last = queries_last(graph, costs, wanted)  # early: who follows a kept plan makes all those before again
    yield _way(last, costs_of, seen)._replace(worth=WORTH_QUERIES) if last is not graph else None
    given = [graph.tensors[t].shape for t in graph.inputs]
    if any(shape[:1] > (1,) or len(shape) == 5 for shape in given):
        yield Way(graph, costs, *BandTables(by_images=True, seen=seen).of(graph, costs))
    parted = apart(graph, costs)
    if parted is not graph:
        yield _way(parted, costs_of, seen)
        over = apart(graph, costs, over=True)
        if len(over.tensors) < len(parted.tensors):
            yield _way(over, costs_of, seen)
    summed = sums_apart(parted, costs)
    if summed is not parted:
        yield _way(summed, costs_of, seen)._replace(worth=WORTH_OTHER)
    base = summed if parted is graph else sums_apart(graph, costs)
    made = twice(base, costs if base is graph else lives_of(base))
    spared = ordered(made.graph)
    if made.work or kept_bytes(spared) <= WORTH_ORDER * kept_bytes(graph):
        worth = WORTH_TWICE if made.work else WORTH_OTHER
        parted = apart(spared, lives_of(spared), over=True)
        yield _way(parted, costs_of, seen)._replace(work=made.work, worth=worth)


def _way(graph: Graph, costs_of: Callable[[Graph], Costs], seen: SeenRows) -> Way:
    costs = costs_of(graph)
    return Way(graph, costs, *BandTables(seen=seen).of(graph, costs))


class Ways:
    """Graphs that are searched in place of one whose costs are known. ``costs_of`` computes costs."""

    def __init__(self, graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs]) -> None:
        self.graph, self._costs_of = graph, costs_of
        self._seen: SeenRows = {}
        self._first = Way(graph, costs, *BandTables(seen=self._seen).of(graph, costs))
        self._kept: dict[int, Way] = {}

    def all(self, wanted: int = 0) -> Iterator[tuple[int, Way]]:
        """Yield all of them with their numbers, and keep them; not that with queries last where it can not spare
        ``wanted`` bytes.
        """
        for index, way in enumerate(_ways(self._first, self._costs_of, self._seen, wanted)):
            if way is not None:
                self._kept[index] = way
                yield index, way

    def at(self, index: int) -> Way:
        """Return the one with this number. Raises IndexError."""
        if index not in self._kept:
            found = next(islice(_ways(self._first, self._costs_of, self._seen), index, None), None)
            if found is None:
                raise IndexError(index)
            self._kept[index] = found
        return self._kept[index]

    def keep(self, indices: Collection[int]) -> None:
        """Free those with other numbers, and what is known of their nodes."""
        self._seen.clear()
        self._kept = {index: way for index, way in self._kept.items() if index in indices}


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


class Search:
    """Search for the walks of a graph whose memory, with that of its nodes, is the least."""

    def __init__(
        self,
        tables: tuple[I64, I64, I64],
        cost_max: float,
        memo: I64 | None = None,
        *,
        regions_max: int = REGIONS_MAX,
    ) -> None:
        """``memo``: of another search of the same tables (``new_memo``), which makes this one faster; ``regions_max``:
        most walks.
        """
        nodes = tables[0].tolist()
        self._regions_max = regions_max
        self._memo = new_memo() if memo is None else memo
        self._plain: dict[tuple[object, ...], _Walk | None] = {}
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
        """Return walks that bring one neediest node after the other near the least that any walk of it needs, or to
        ``floor`` bytes. No walk need be better than the ones before it. ``is_wide``: the first of them spares all of
        the neediest nodes as far as one walk can.
        """
        now = _Chosen(self._needs, [], self._needs, bytes(len(self._needs)), max(self._needs, default=0), False)
        ends, reached = self._ends, floor
        for _ in range(2 * self._regions_max if now.needs else 0):
            worst, most = now.needs.index(now.most), now.most
            if len(now.walks) == self._regions_max or now.barred[worst] or most <= floor:
                break
            limits = nodes_max, BANDS_MAX, self._work_max, NODE_BYTES, reached
            is_first = int(is_wide and not now.walks)
            closed = bytes(map(or_, now.barred, ends)) if is_wide else now.barred
            key = limits, is_first, worst, closed
            if key not in self._plain:  # a search with maps that grow over others begins as one without
                self._plain[key] = self._find(self._tables, (*limits, is_first, 0), worst, closed)
            found = self._plain[key]
            after = now if found is None else self._with(now, found)
            below = int(WORTH_WALK * (most if found is None else max(found.need, 0) + self._added(found) * NODE_BYTES))
            if kind.pairs and below > reached:
                other = self._find(self._tables, (*limits, is_first, below), worst, closed)
                paired = now if other is None else self._with(now, other)
                if paired.most <= most and paired.needs[worst] < after.needs[worst]:
                    after, found = paired, other
            if found is None or after.needs[worst] > WORTH_WALK * most:
                found, replaced = self._joined(limits, now) if kind.joins else (None, None)
                if found is None or replaced is None:
                    break
                after = self._with(now, found, replaced)
                if after.needs[worst] > WORTH_WALK * most:
                    break
            now, reached = after, max(reached, found.need)
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
        tables: tuple[I64, I64, I64],
        limits: tuple[int, int, int, int, int, int, int],
        worst: int,
        closed: bytes,
    ) -> _Walk | None:
        found = _core.bands_find(tables, limits, ENOUGH, worst, closed, self._memo)
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


def found_in(way: Way, regions_max: int = REGIONS_MAX, *, joins: bool = True) -> Iterator[Found]:
    """Yield good walks of a graph, of each cost; ``regions_max``: most walks at once; ``joins``: see Search.all."""
    memo, seen = new_memo(max(node[NEED] for node in way.tables[0].tolist())), set[tuple[int, int]]()
    for cost in COSTS_MAX:
        for found in Search(way.tables, cost, memo, regions_max=regions_max).all(joins=joins):
            if (found.nbytes, found.work) not in seen:  # dozens of walks, found again with most limits, would take room
                seen.add((found.nbytes, found.work))
                yield found
