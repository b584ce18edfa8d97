"""Forms of a graph with activations in the spill file: which ones, and which nodes are then walked in bands.

Activations that wait are spilled first. Then the neediest nodes decide: what lives around them and is not made in bands
with them is spilled, too, as long as that spares memory. Each set of spilled activations is searched for bands as the
graph itself is (planning/bands.py), so a form may repeat work, write, or both. The choice depends on sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

from flexnn.graph.ir import Graph

from .apart import apart
from .band_tables import BYTE_WORK, BandTables
from .banding import Region, rows_of, split
from .bands import COSTS_MAX, SEARCHED_MAX, Found, Search, Way, found_in
from .spilling import lowered, spillable, waiting, with_spills
from .types import Costs

FORMS = 1.0, 1.15, 1.4, 2.0, 3.0
"""Memory as multiples of the least, within which each form takes the least time for reading, writing and repeating."""
WORTH = 0.97
"""Memory with one more spilled activation as a fraction of memory without, at which it is worth it."""
CUTS_MAX = 8
"""Most activations that are spilled although they do not wait."""
TRIED_MAX = 3
"""Most activations that are tried for one more to spill."""
SPLITS_MAX, TRIED_INSIDE_MAX = 4, 12
"""Most activations inside walks that are spilled, and most that are tried for one more."""
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

    def written(self, graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs]) -> Graph | None:
        """Return the form of the graph, which has these costs; None where it cannot be written."""
        way = _way(apart(graph, costs), self.waiting, self.cuts, costs_of)
        form = way.graph
        for region in sorted(self.regions, reverse=True):  # from the last node, so that numbers of nodes hold
            form = split(form, way.costs, way.walks, rows_of(way.tables, region), region)
        return lowered(form)


def spilled_forms(
    graph: Graph, costs: Costs, costs_of: Callable[[Graph], Costs], *, in_bands: bool = True
) -> list[SpillForm]:
    """Return forms of the graph that spill activations, the tightest first; ``in_bands``: with nodes in bands."""
    if len(graph.nodes) > SEARCHED_MAX:
        return []
    base = apart(graph, costs)
    base_costs = costs if base is graph else costs_of(base)
    pool = list(_found(base, base_costs, costs_of, in_bands=in_bands))
    least = min((form.nbytes for form in pool), default=0)
    forms: list[SpillForm] = []
    for factor in FORMS:
        form = min(
            (form for form in pool if form.nbytes <= factor * least), key=lambda f: (f.work, f.nbytes), default=None
        )
        if form is not None and form not in forms:
            forms.append(form)
    return forms


def _found(base: Graph, costs: Costs, costs_of: Callable[[Graph], Costs], *, in_bands: bool) -> Iterator[SpillForm]:
    fit, waits, cuts = spillable(base, costs), waiting(base, costs), list[int]()
    if not fit:
        return
    way = _way(base, waits, cuts, costs_of)
    best = _best(way, in_bands=in_bands)
    forms = list(_forms(way, waits, cuts, in_bands=in_bands))
    yield from forms
    while len(cuts) < CUTS_MAX:
        around = [root for root in _around(way, best) if root in fit and root not in cuts]
        inside = [root for root in _inside(way, [_region_of(best)]) if root in fit and root not in cuts]
        for root in (*around[:TRIED_MAX], *inside[:TRIED_INSIDE_MAX]):
            fewer = [other for other in waits if other != root]
            other_way = _way(base, fewer, [*cuts, root], costs_of)
            other = _best(other_way, in_bands=in_bands)
            if other.nbytes <= WORTH * best.nbytes:
                waits, cuts, way, best = fewer, [*cuts, root], other_way, other
                forms = list(_forms(way, waits, cuts, in_bands=in_bands))
                yield from forms
                break
        else:
            break
    if forms:
        yield from _repeating_less(base, way, forms, fit, costs_of)


def _repeating_less(
    base: Graph, way: Way, forms: list[SpillForm], fit: Container[int], costs_of: Callable[[Graph], Costs]
) -> Iterator[SpillForm]:
    """Yield forms that also spill activations inside the walks of ``forms``, which ``way`` is walked in: two short
    walks repeat less than a long one.
    """
    room = int(NEAR * min(form.nbytes for form in forms))
    for _ in range(SPLITS_MAX):
        form = _fastest(forms, room)
        inside = [root for root in _inside(way, form.regions) if root in fit and root not in form.cuts]
        tried = []
        for root in inside[:TRIED_INSIDE_MAX]:
            fewer, cuts = tuple(other for other in form.waiting if other != root), (*form.cuts, root)
            other_way = _way(base, fewer, cuts, costs_of)
            more = list(_forms(other_way, fewer, cuts, in_bands=True))
            if any(one.nbytes <= room for one in more):
                tried.append((_fastest(more, room).work, other_way, more))
        work, way, forms = min(tried, key=lambda one: one[0], default=(form.work, way, forms))
        if work > WORTH * form.work:
            return
        yield from forms


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
    search = Search(way.tables, COSTS_MAX[1])
    return min(search.tightest() if in_bands else [search.whole()], key=lambda found: found.nbytes)


def _region_of(found: Found) -> Region:
    """Return the walk of the neediest node; that node alone where it is not walked."""
    return next((r for r in found.regions if r.first <= found.worst <= r.last), Region(found.worst, found.worst, 1))


def _around(way: Way, found: Found) -> list[int]:
    """Return the activations that live around the neediest node, or around its walk, the largest first."""
    region = _region_of(found)
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
    for found in found_in(way) if in_bands else ():
        yield SpillForm(found.nbytes, found.work + moved, tuple(waits), tuple(cuts), tuple(found.regions))
    whole = Search(way.tables, COSTS_MAX[0]).whole()
    yield SpillForm(whole.nbytes, moved, tuple(waits), tuple(cuts), ())
