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
from typing import NamedTuple

from flexnn.graph.ir import Graph

from .apart import apart, sums_apart
from .band_search import BANDS_MAX, COSTS_MAX, NODE_BYTES, REGIONS_MAX, WORTH_PAIRS, Found, Searched, Tables
from .band_tables import BandTables, SeenRows, Walks, waits_for_whole
from .banding import Region, written
from .costs import lives_of
from .order import kept_bytes, ordered
from .twice import twice
from .types import Costs

SEARCHED_MAX = 1500
"""Most nodes of a graph in which walks are looked for: that takes time with the square of their number."""
NODE_WORK = 2_000_000
"""Multiplications that take about as long as a node's steps and requests do."""
WORTH = 0.95
"""Memory with bands as a fraction of memory without, at which bands are worth it."""
WORTH_ORDER = 0.9
"""Bytes times nodes for which activations are alive in another order, as a fraction of those in the graph's own, at
which bands are looked for in that order.
"""
WORTH_OTHER, WORTH_QUERIES, WORTH_TWICE = 0.97, 0.92, 0.88
"""Smallest budget with sums apart or in another order, with queries made last, and with maps made twice, as a fraction
of that without, at which it is worth it: what planning keeps of the tightest form is lacking where budgets are larger.
"""
QUERIES, LATE = 1, 64
"""Numbers of the graphs with queries made last, and with maps made again for late readers (planning/late.py)."""
WAITING = 0.6
"""Bytes of maps that wait as a fraction of the least that bands need, from which on these are made again."""
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

    @property
    def makes_again(self) -> bool:
        """Whether maps are made again for late readers."""
        return self.way == LATE

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


def banded(ways: Ways, whole_bytes: int, *, makes_again: bool = True) -> list[Form]:
    """Return forms of a graph with nodes in bands, the tightest first: those that lower the memory of the neediest
    node. ``whole_bytes``: the smallest budget without bands; ``makes_again``: maps may be made again for late readers.
    """
    if len(ways.graph.nodes) > SEARCHED_MAX:
        return []
    nodes = ways.at(0).tables[0].tolist()
    whole = max((node[5] for node in nodes), default=0)
    work = max(sum(node[3] * node[6] + node[7] for node in nodes), 1)
    wanted = int((1 - WORTH_QUERIES) * whole_bytes)
    beside, pool = whole_bytes - whole, list(_pool(ways, wanted))
    pool = _without_pairs(pool, beside) or pool
    once = min((found.nbytes for found, _ in pool), default=whole)
    pool, plain = _worth_it(pool, ways, whole, beside)
    if makes_again:
        pool += _late(ways, once, min((found.nbytes for found, _ in pool), default=whole), beside)
    least = min((found.nbytes for found, _ in pool), default=0)
    again, others = ([entry for entry in pool if (entry[1] == LATE) is late] for late in (True, False))
    once = min((found.nbytes for found, _ in others), default=plain)
    single = min((found.nbytes for found, _ in others if not found.has_pairs), default=plain)
    if not pool or least > WORTH * whole:
        return []
    forms: list[Form] = []
    limits = [(factor * least, again) for factor in FORMS if factor * least < once]
    limits += [(limit, others) for limit in sorted({factor * n for n in (once, plain, single) for factor in FORMS})]
    for limit, some in limits:
        near = [entry for entry in some if entry[0].nbytes <= limit]
        if not near:
            continue
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
        for found in ways.searched.found_in(way.tables):
            yield found._replace(nbytes=found.nbytes + added, work=found.work + way.work), index


def _late(ways: Ways, once: int, worth: int, beside: int) -> list[tuple[Found, int]]:
    """Return good walks of the graph with maps made again for late readers, where what waits holds the memory up.
    ``once``: the least bytes of walks without; ``worth``: of those that are worth it; ``beside``: what every budget
    has beside them.
    """
    way = ways.late(WAITING * once)
    if way is None:
        return []
    added = (way.graph.added - ways.graph.added) * NODE_BYTES
    pool = [
        (found._replace(nbytes=found.nbytes + added, work=found.work + way.work), LATE)
        for found in ways.searched.found_in(way.tables, COSTS_MAX[-1:])
    ]
    pool = _without_pairs(pool, beside) or pool
    least = min((found.nbytes for found, _ in pool), default=worth)
    return pool if beside + least <= WORTH_TWICE * (beside + worth) else []


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
    tables: Tables
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
    """Graphs that are searched in place of one whose costs are known. ``costs_of`` computes costs; ``searched``: what
    another planner's searches have found.
    """

    def __init__(
        self,
        graph: Graph,
        costs: Costs,
        costs_of: Callable[[Graph], Costs],
        searched: Searched | None = None,
    ) -> None:
        self.graph, self._costs_of = graph, costs_of
        self.searched = searched or Searched()
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
        if index == LATE and index not in self._kept:
            self._kept |= self.all()
            if self.late() is None:
                raise IndexError(index)
        if index not in self._kept:
            found = next(islice(_ways(self._first, self._costs_of, self._seen), index, None), None)
            if found is None:
                raise IndexError(index)
            self._kept[index] = found
        return self._kept[index]

    def late(self, waiting: float = 0) -> Way | None:
        """Return the last one with maps made again for late readers; None where fewer bytes wait, or none can be."""
        from .late import late  # where activations may be spilled there is no room for it

        last = self._kept[max(index for index in self._kept if index not in (QUERIES, LATE))]
        made = late(last.graph, waiting)
        if not made.work:
            return None
        way = _way(made.graph, self._costs_of, self._seen)
        self._kept[LATE] = way._replace(work=last.work + made.work, worth=WORTH_TWICE)
        return self._kept[LATE]

    def keep(self, indices: Collection[int]) -> None:
        """Free those with other numbers, and what is known of their nodes."""
        self._seen.clear()
        self._kept = {index: way for index, way in self._kept.items() if index in indices}
