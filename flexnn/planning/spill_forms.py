"""Forms of a graph with activations in the spill file: which ones, and which nodes are then walked in bands.

Activations that wait are spilled first. Then the neediest nodes decide: what lives around them and is not made in bands
with them is spilled, too, as long as that spares memory. Each set of spilled activations is searched for bands as the
graph itself is (planning/bands.py), so a form may repeat work, write, or both. The choice depends on sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from flexnn.graph.ir import Graph

from .apart import apart, sums_apart
from .band_search import COSTS_MAX, Found, Search, found_in
from .band_tables import BYTE_WORK, BandTables
from .banding import Region, written
from .bands import SEARCHED_MAX, WORTH_ORDER, Way
from .costs import lives_of
from .order import kept_bytes, ordered
from .spilling import lowered, spillable, waiting, with_spills
from .types import Costs, Lives

FORMS = 1.0, 1.15, 1.4, 2.0, 3.0
"""Memory as multiples of the least, within which each form takes the least time for reading, writing and repeating."""
WORTH = 0.97
"""Memory with one more spilled activation as a fraction of memory without, at which it is worth it."""
REGIONS_MAX = 32
"""Most walks of a graph: where activations are spilled, few nodes are left that are needier than others."""
CUTS_MAX = 8
"""Most activations that are spilled although they do not wait."""
TRIED_MAX, TRIED_INSIDE_MAX = 3, 12
"""Most activations around a walk that are tried for one more to spill, and most inside walks."""
LOOKS, LOOKS_ALL = 3_000, 4
"""Nodes times activations that are tried, which takes time with both; and how many of them a try with all forms is."""
NEAR = 1.15
"""Memory as a multiple of the least, in which such a form takes the least time."""


class SpillForm(NamedTuple):
    """A form of a graph with spilled activations, found but not written out."""

    nbytes: int
    """Bytes that it needs, as far as sizes tell."""
    work: int
    """Multiplications that take as long as what it repeats, reads and writes."""
    waiting: tuple[int, ...]
    """Roots that are spilled where they wait."""
    cuts: tuple[int, ...]
    """Roots that are spilled where they are complete."""
    regions: tuple[Region, ...]
    is_reordered: bool = False
    """Whether nodes stand in another order, which keeps less alive."""

    def written(self, graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs]) -> Graph | None:
        """Return the form of the graph, which has these costs; None where it cannot be written."""
        base = ordered(graph) if self.is_reordered else graph
        way = _way(_all_apart(base, costs if base is graph else lives_of(base)), self.waiting, self.cuts, costs_of)
        return lowered(written(way.graph, way.costs, way.walks, way.tables, self.regions))


def spilled_forms(
    graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs], *, in_bands: bool = True
) -> list[SpillForm]:
    """Return forms of the graph that spill activations, the tightest first; ``in_bands``: with nodes in bands."""
    if len(graph.nodes) > SEARCHED_MAX:
        return []
    pool = list(_all_found(graph, costs, costs_of, in_bands=in_bands))
    least = min((form.nbytes for form in pool), default=0)
    forms: list[SpillForm] = []
    for factor in FORMS:
        form = min(
            (form for form in pool if form.nbytes <= factor * least), key=lambda f: (f.work, f.nbytes), default=None
        )
        if form is not None and form not in forms:
            forms.append(form)
    return forms


def _all_found(
    graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs], *, in_bands: bool
) -> Iterator[SpillForm]:
    """Yield forms of the graph, and a few of it in an order that keeps less alive, if there is one."""
    base = _all_apart(graph, costs)
    yield from _found(base, costs if base is graph else costs_of(base), costs_of, in_bands=in_bands)
    spared = ordered(graph)
    if spared is graph or kept_bytes(spared) > WORTH_ORDER * kept_bytes(graph):
        return
    base = _all_apart(spared, lives_of(spared))
    for form in _found(base, costs_of(base), costs_of, in_bands=in_bands, cuts_max=0):
        yield form._replace(is_reordered=True)


def _all_apart(graph: Graph, costs: Costs | Lives) -> Graph:
    """Return the graph with what waits for a concatenation or a sum in storage of its own."""
    parted = apart(graph, costs)
    return sums_apart(parted, costs if parted is graph else lives_of(parted), waiting=True)


def _found(
    base: Graph,
    costs: Costs,
    costs_of: Callable[[Graph], Costs],
    *,
    in_bands: bool,
    cuts_max: int = CUTS_MAX,
) -> Iterator[SpillForm]:
    fit, waits = spillable(base, costs), waiting(base, costs)
    if not fit:
        return
    starts = [_Set(base, waits, (), costs_of, in_bands=in_bands), _Set(base, (), waits, costs_of, in_bands=in_bands)]
    now = min(starts, key=lambda one: one.best.nbytes)
    for one in starts:
        yield from one.forms()
    looks = LOOKS // len(base.nodes)
    for _ in range(cuts_max):
        region = _region_of(now.best)
        around = [root for root in _around(now.way, region) if root in fit and root not in now.cuts]
        inside = [root for root in _inside(now.way, [region]) if root in fit and root not in now.cuts]
        for root in (*around[:TRIED_MAX], *inside[:TRIED_INSIDE_MAX])[:looks]:
            looks -= 1
            other = now.with_cut(root)
            if other.best.nbytes <= WORTH * now.best.nbytes:
                now = other
                yield from now.forms()
                break
        else:
            break
    if in_bands and cuts_max:
        yield from _repeating_less(now, fit, LOOKS // len(base.nodes) // LOOKS_ALL)


class _Set:
    """A set of spilled activations, and the graph with them."""

    def __init__(
        self,
        base: Graph,
        waits: Sequence[int],
        cuts: Sequence[int],
        costs_of: Callable[[Graph], Costs],
        *,
        in_bands: bool,
    ) -> None:
        self._base, self._costs_of, self._in_bands = base, costs_of, in_bands
        self.waits, self.cuts = tuple(waits), tuple(cuts)
        self.way = _way(base, waits, cuts, costs_of)
        self._forms: list[SpillForm] = []

    @cached_property
    def best(self) -> Found:
        """Walks that need the least memory, of few that are looked at."""
        return _best(self.way, in_bands=self._in_bands)

    def forms(self) -> list[SpillForm]:
        """Return the forms of the graph with this set."""
        if not self._forms:
            self._forms = list(_forms(self.way, self.waits, self.cuts, in_bands=self._in_bands))
        return self._forms

    def with_cut(self, root: int) -> _Set:
        """Return the set that also has an activation from where it is complete."""
        fewer = [other for other in self.waits if other != root]
        return _Set(self._base, fewer, (*self.cuts, root), self._costs_of, in_bands=self._in_bands)


def _repeating_less(now: _Set, fit: Container[int], looks: int) -> Iterator[SpillForm]:
    """Yield forms that also spill activations inside walks: two short walks repeat less than a long one. ``looks``:
    activations that may be tried.
    """
    room = int(NEAR * min((form.nbytes for form in now.forms()), default=0))
    while looks > 0 and now.forms():
        form = _fastest(now.forms(), room)
        inside = [root for root in _inside(now.way, form.regions) if root in fit and root not in now.cuts]
        tried = [now.with_cut(root) for root in inside[: min(TRIED_INSIDE_MAX, looks)]]
        looks -= len(tried)
        near = [one for one in tried if any(other.nbytes <= room for other in one.forms())]
        now = min(near, key=lambda one: _fastest(one.forms(), room).work, default=now)
        if not near or _fastest(now.forms(), room).work > WORTH * form.work:
            return
        yield from now.forms()


def _fastest(forms: list[SpillForm], room: int) -> SpillForm:
    """Return the form that takes the least time of those that need at most ``room`` bytes."""
    return min((form for form in forms if form.nbytes <= room), key=lambda form: form.work)


def _inside(way: Way, regions: Sequence[Region]) -> list[int]:
    """Return the activations that live inside walks, the smallest first."""
    lives = zip(way.costs.roots, way.costs.root_bytes, way.costs.first_node, way.costs.last_node, strict=True)
    inner = [
        (size, root)
        for root, size, first, last in lives
        if any(first >= region.first and last <= region.last for region in regions)
    ]
    return [root for _, root in sorted(inner)]


def _way(
    base: Graph,
    waits: Sequence[int],
    cuts: Sequence[int],
    costs_of: Callable[[Graph], Costs],
) -> Way:
    graph = with_spills(base, waits, cuts)
    costs = costs_of(graph)
    return Way(graph, costs, *BandTables().of(graph, costs))


def _best(way: Way, *, in_bands: bool) -> Found:
    """Return the walks that need the least memory, of few that are looked at."""
    search = Search(way.tables, COSTS_MAX[1], regions_max=REGIONS_MAX)
    return min(search.tightest() if in_bands else [search.whole()], key=lambda found: found.nbytes)


def _region_of(found: Found) -> Region:
    """Return the walk of the neediest node; that node alone where it is not walked."""
    return next((r for r in found.regions if r.first <= found.worst <= r.last), Region(found.worst, found.worst, 1))


def _around(way: Way, region: Region) -> list[int]:
    """Return the activations that live around a walk, the largest first."""
    lives = zip(way.costs.roots, way.costs.root_bytes, way.costs.first_node, way.costs.last_node, strict=True)
    around = [
        (size, root)
        for root, size, first, last in lives
        if first <= region.last and last >= region.first and not (first >= region.first and last <= region.last)
    ]
    return [root for _, root in sorted(around, reverse=True)]


def _forms(way: Way, waits: Sequence[int], cuts: Sequence[int], *, in_bands: bool) -> Iterator[SpillForm]:
    if not way.graph.spills:
        return
    moved = 2 * BYTE_WORK * sum(spill.nbytes for spill in way.graph.spills)
    for found in found_in(way.tables, REGIONS_MAX, joins=False) if in_bands else ():
        yield SpillForm(found.nbytes, found.work + moved, tuple(waits), tuple(cuts), tuple(found.regions))
    whole = Search(way.tables, COSTS_MAX[0]).whole()
    yield SpillForm(whole.nbytes, moved, tuple(waits), tuple(cuts), ())
