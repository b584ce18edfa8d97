"""Plans of a graph, chosen among versions of it: tables in file or memory, activations whole or in bands of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

from flexnn.garbage import Uncollected
from flexnn.graph.ir import Graph
from flexnn.graph.tables import GATHERS
from flexnn.units import Groups

from .costs import Known, graph_costs, stored_table
from .errors import BudgetError
from .overhead import overhead_bytes, with_groups
from .report import Plan
from .setting import Setting
from .types import Costs
from .variant_planner import VariantPlanner

if TYPE_CHECKING:
    from .bands import Form, Ways
    from .grouping import Grouping
    from .spill_forms import SpillForm

WORTH = 0.95
"""Smallest budget with bands as a fraction of that without, at which bands are worth it."""
WORTH_FORM = 0.97
"""Smallest budget of a form as a fraction of that of the form that repeats less, at which it is worth its time."""
MILDER = 0.5
"""Memory that a milder form needs beyond the tightest one, as a fraction of what sizes tell of it: they tell too much
where other things than the neediest node decide.
"""
MILDER_MAX = 2
"""Most forms that repeat less than the tightest, of which one budget's plans are made."""
WRITTEN = 3
"""Forms that spill which are written out to find the one that has the smallest budget."""
AS_FAST = 1 + 1e-9
"""Time as a multiple of the fastest kernels' at which activations are left whole."""


def make_plan(graph: Graph, setting: Setting, memory: int | None = None, *, groups: Groups = None) -> Plan:
    """Return the plan of an artifact's graph for ``memory`` bytes (None: no limit, everything pinned).

    Unless everything fits, tables stay in the file (graph/tables.py) and activations may be tiled (planning/bands.py).
    ``groups`` is explained at ``Planner``. Raises BudgetError, which states the smallest budget.
    """
    return Planner(graph, setting, groups=groups).plan(memory)


class Planner:
    """Plans of one graph for any budget. Each variant of the graph has a VariantPlanner; the fastest that fits wins.

    ``groups`` of independent nodes run at the same time (planning/grouping.py). A number of groups is refused where not
    everything can be pinned; "auto" takes groups where they are predicted to be faster.
    """

    def __init__(self, graph: Graph, setting: Setting, *, groups: Groups = None) -> None:
        if groups is not None:
            setting = setting._replace(overhead=with_groups(setting.overhead))
        has_tables = any(node.op in GATHERS and stored_table(graph, node) for node in graph.nodes)

        self._graph, self._setting, self._groups = graph, setting, groups
        with Uncollected(len(graph.nodes)):
            self._whole = VariantPlanner(graph, setting, in_file=has_tables)
        self._all_pinned = None if has_tables else self._whole
        self._weight_bytes = sum(weight.nbytes for weight in graph.weights)
        self._seen: Known = {}
        self._written: dict[Form | SpillForm, VariantPlanner] = {}
        """Planners of the tightest forms, until the planner rests."""

    def _costs_of(self, variant: Graph) -> Costs:
        return graph_costs(variant, self._setting, in_file=self._all_pinned is None, seen=self._seen)

    @cached_property
    def _ways(self) -> Ways:
        from .bands import Ways  # plans without a limit do without

        return Ways(self._graph, self._whole.costs, self._costs_of)

    def _forget(self) -> None:
        """Free what several forms are made from: sessions keep planners. It refers to this planner, too, which would
        outlive its session until Python looks for such circles.
        """
        vars(self).pop("_ways", None)
        self._seen.clear()

    def rest(self) -> None:
        """Free the forms of the graph that are written out: a session that runs keeps what makes them again."""
        self._forget()
        self._written.clear()

    @cached_property
    def _forms(self) -> list[Form]:
        """Forms of the graph in bands, the tightest first. Plans without a limit do without. Bands cut a map at other
        rows than Winograd's tiles do, so numbers would depend on the budget.
        """
        if self._setting.deterministic:
            return []
        from .bands import banded  # plans without a limit do without

        return banded(self._ways, self._whole.minimum)

    def written(self, form: Form | SpillForm) -> Graph:
        """Return a form of the graph."""
        from .bands import Form

        if isinstance(form, Form):
            return form.written(self._ways)
        graph = form.written(self._graph, self._whole.costs, self._costs_of)
        assert graph is not None  # it was written before
        return graph

    def _in_bands(self, form: Form) -> VariantPlanner:
        return self._planning(form, form.written(self._ways))

    def _planning(self, form: Form | SpillForm, graph: Graph) -> VariantPlanner:
        again = partial(_written_again, self._graph, self._setting, form)
        return VariantPlanner(graph, self._setting, costs=self._costs_of(graph), again=again)

    def _beyond(self, index: int) -> float:
        """Return the least bytes that a form may need beyond the tightest one."""
        return MILDER * (self._forms[index].beyond - self._forms[0].beyond)

    @property
    def _tight(self) -> VariantPlanner | None:
        """Planner of the tightest form in bands, where it is worth it."""
        form = self._tight_form
        if form is None:
            return None
        if form not in self._written:
            self._written[form] = self._in_bands(form)
        return self._written[form]

    @cached_property
    def _tight_form(self) -> Form | None:
        """Tightest form in bands, where it is worth it: the next form instead, where that one needs hardly more."""
        if not self._forms:
            return None
        tight = self._in_bands(self._forms[0])
        while len(self._forms) > 1 and self._beyond(1) < (1 - WORTH_FORM) * tight.minimum:
            milder = self._in_bands(self._forms[1])
            if tight.minimum <= WORTH_FORM * milder.minimum:
                break
            del self._forms[0]
            tight = milder
        if tight.minimum > WORTH * self._whole.minimum:
            return None
        self._written[self._forms[0]] = tight
        return self._forms[0]

    @cached_property
    def _spill_forms(self) -> list[SpillForm]:
        """Forms of the graph that spill activations, the tightest first."""
        from .spill_forms import spilled_forms  # few sessions spill

        in_bands = not self._setting.deterministic
        return spilled_forms(self._graph, self._whole.costs, self._costs_of, in_bands=in_bands)

    def _spilling_as(self, form: SpillForm) -> VariantPlanner | None:
        graph = form.written(self._graph, self._whole.costs, self._costs_of)
        return None if graph is None else self._planning(form, graph)

    @property
    def _spilling(self) -> VariantPlanner | None:
        """Planner of the tightest form that spills activations, where that is allowed and worth it."""
        form = self._spilling_form
        if form is None:
            return None
        if form not in self._written:
            self._written[form] = self._planning(form, self.written(form))
        return self._written[form]

    @cached_property
    def _spilling_form(self) -> SpillForm | None:
        """Tightest form that spills activations, where that is allowed and worth it."""
        if not self._setting.spills:
            return None
        spilling: VariantPlanner | None = None
        for form in self._spill_forms[:WRITTEN]:  # sizes tell too little of what nodes take that fetch
            planner = self._spilling_as(form)
            if planner is not None and (spilling is None or planner.minimum < spilling.minimum):
                spilling, tightest = planner, form
        least = min(planner.minimum for planner in (self._whole, self._tight) if planner is not None)
        if spilling is None or spilling.minimum > WORTH * least:
            return None
        self._spill_forms.remove(tightest)
        self._spill_forms.insert(0, tightest)
        self._written[tightest] = spilling
        return tightest

    def _spilling_less(self, memory: int) -> Iterator[VariantPlanner]:
        """Yield planners of the other forms that spill, where memory has room for them. They are not kept."""
        if self._spilling is None:
            return
        for form in self._spill_forms[1:]:
            beyond = MILDER * (form.nbytes - self._spill_forms[0].nbytes)
            if memory >= self._spilling.minimum + beyond and (planner := self._spilling_as(form)) is not None:
                if planner.minimum <= memory:
                    yield planner

    def _milder(self, memory: int) -> Iterator[VariantPlanner]:
        """Yield planners of the forms that repeat the least, where memory has room for them. They are not kept: few
        budgets ask for them.
        """
        if self._tight is None:
            return
        planned = 0
        for index in range(len(self._forms) - 1, 0, -1):
            if planned < MILDER_MAX and memory >= self._tight.minimum + self._beyond(index):
                planner = self._in_bands(self._forms[index])
                if planner.minimum <= memory:
                    planned += 1
                    yield planner

    @cached_property
    def minimum(self) -> int:
        """Smallest budget in bytes."""
        return self.tightest.minimum

    @property
    def tightest(self) -> VariantPlanner:
        """Planner of the variant that has the smallest budget."""
        tightest = self._tightest()
        self._forget()
        return tightest

    def _tightest(self) -> VariantPlanner:
        return self._spilling or self._tight or self._whole

    @property
    def whole(self) -> VariantPlanner:
        """Planner of the graph as it is."""
        return self._whole

    @property
    def least_working_bytes(self) -> int:
        """Bytes that the working part of every plan has. Workspace for reading tables is not part of every plan."""
        least = self._whole.least_working_bytes if self._all_pinned is self._whole else self._whole.activation_bytes
        return min(least, self._tight.least_working_bytes) if self._tight else least

    def plan(self, memory: int | None) -> Plan:
        """Return the plan for ``memory`` bytes (None: no limit), in groups where they were asked for. BudgetError."""
        if self._groups is None:
            with Uncollected(len(self._graph.nodes)):
                return self._one_by_one(memory)
        if self._groups == "auto":
            plan = self._one_by_one(memory)
            return plan if plan.is_streaming else self._grouping().better(plan)
        grouping = self._grouping()
        smallest = grouping.smallest(self._groups)
        minimum = smallest.session_bytes
        if memory is not None and memory < minimum:
            raise BudgetError(minimum, memory, " in groups, which need all weights pinned,")
        fastest = grouping.plan(self._groups)
        plan = fastest if memory is None or fastest.session_bytes <= memory else smallest
        spent = smallest.plan_ms + fastest.plan_ms
        return plan.but(memory=memory, minimum_memory=min(minimum, plan.session_bytes), plan_ms=spent)

    def _refusal(self, memory: int) -> BudgetError:
        """Return the error that says what the smallest budget is made of, and what would make it smaller."""
        tightest = self.tightest
        io = self._setting.overhead(self._graph, 0, 0, 1)["io"]
        saved = max(io - overhead_bytes(self._graph, 0, 0, 1, output_sets=1)["io"], 0)
        return BudgetError(tightest.minimum, memory, parts=tightest.smallest_parts, saved=saved)

    def _grouping(self) -> Grouping:
        from .grouping import Grouping  # few sessions have groups; it is not kept: budgets change rarely

        return Grouping(self._graph, self._setting)

    def _one_by_one(self, memory: int | None) -> Plan:
        """Return the plan of the variant that is predicted to be the fastest of those that fit. None is slower with
        more memory, so neither is the fastest one.
        """
        if memory is not None and memory < self._whole.minimum and memory < self.minimum:
            raise self._refusal(memory)
        if memory is None or self._all_pinned is self._whole or memory > self._weight_bytes:
            # Not kept: rarely asked for, in the budget.
            all_pinned = self._all_pinned or VariantPlanner(self._graph, self._setting)
            if memory is None or all_pinned.pinning_memory <= memory:
                return all_pinned.plan(memory).but(minimum_memory=lambda: self.minimum)
        if memory >= self._whole.minimum:
            bound, fastest = self._whole.bound_ms(memory), self._whole.fastest_ms * AS_FAST
            if bound <= fastest:
                best = self._whole.plan(memory)
                if best.predicted_ms <= fastest:  # bands compute no less
                    return best.but(minimum_memory=lambda: self.minimum, bound_ms=bound)
        variants = [self._tight, *self._milder(memory), self._whole] if self._tight else [self._whole]
        if self._spilling is not None:
            variants += [self._spilling, *self._spilling_less(memory)]
        self._forget()
        bounds = [(variant.bound_ms(memory), variant) for variant in variants if variant.minimum <= memory]
        bounds.sort(key=lambda pair: pair[0])
        best = bounds[0][1].plan(memory)
        spent = best.plan_ms
        for bound, variant in bounds[1:]:
            if bound < best.predicted_ms:
                other = variant.plan(memory, best.predicted_ms)
                spent += other.plan_ms
                best = other if other.predicted_ms < best.predicted_ms else best
        return best.but(minimum_memory=lambda: self.minimum, bound_ms=bounds[0][0], plan_ms=spent)


def _written_again(graph: Graph, setting: Setting, form: Form | SpillForm) -> Graph:
    """Return a form of a graph that a planner has written out before."""
    with Uncollected(len(graph.nodes)):
        return Planner(graph, setting).written(form)
