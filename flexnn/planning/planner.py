"""Plans of a graph, chosen among versions of it: tables in file or memory, activations whole or in bands of rows."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

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
    from .band_search import Searched
    from .bands import Form, Ways
    from .best import Best
    from .decisions import Decisions
    from .grouping import Grouping
    from .spill_forms import SpillForm

    AnyForm: TypeAlias = Form | SpillForm

WORTH = 0.95
"""Smallest budget with bands as a fraction of that without, at which bands are worth it."""
SURE, NEAR_LEAST = 0.85, 1.06
"""Smallest budget that sizes tell of the tightest form, as a fraction of that without bands, at which it is worth it
whatever it needs; and memory as a multiple of it, from which on it is not looked at where it is sure to be slower.
"""
ALIKE = 1.02
"""Memory that sizes tell of a form as a multiple of the tightest one's, up to which the form itself may be tighter."""
UNSURE = 2
"""Memory by which sizes may be wrong about it, as a multiple of that by which they are about the tightest one."""
TOLD = 0.975
"""Least smallest budget of a form, as a fraction of what sizes tell of it."""
MILDER = 0.5
"""Memory that a milder form that spills needs beyond the tightest one, as a fraction of what sizes tell of it: they
tell too much where other things than the neediest node decide.
"""
MILDER_MAX = 3
"""Most forms that repeat less than the tightest, of which one budget's plans are made, where none makes maps again:
with two, more memory was predicted up to 2.6 % slower where a form that repeats less fitted for the first time.
"""
UNSURE_WORK = 0.02
"""Work of forms that make maps again, as a fraction of the graph's, by which it may be wrong."""
MILDER_ROOM = 1.08
"""Memory as a multiple of a form's smallest budget, from which on it has room to load ahead: near that budget a form
that repeats more, but needs less, may be faster.
"""
WRITTEN = 3
"""Forms that spill which are written out to find the one that has the smallest budget."""
CHOOSING_BYTES, CHOOSING_NODE_BYTES = 256 << 10, 1 << 10
"""Heap memory that several forms leave, of which one is chosen: at least, and for each node that the tightest adds."""
CHOOSING_PART = 0.25
"""Largest part of the memory beyond the smallest budget that is left for it."""
NODES_KEPT = 60
"""Most nodes of forms whose planners are kept: each takes a kilobyte or two of the heap, beside the arena."""
PACES = 1.1
"""Largest factor between the paces (``VariantPlanner.pace``) of now and of when a plan was decided."""
NO_PLAN = ValueError, IndexError, AssertionError
"""Errors that decisions raise which do not fit a graph."""
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

    def __init__(
        self, graph: Graph, setting: Setting, *, groups: Groups = None, searched: Searched | None = None
    ) -> None:
        """``searched``: what another planner's searches for bands have found."""
        if groups is not None:
            setting = setting._replace(overhead=with_groups(setting.overhead))
        self._graph, self._setting, self._groups = graph, setting, groups
        self._searched = searched
        self._spent_ns = 0
        """Time that the search for forms took, until a plan's time counts it."""
        self._has_tables = any(node.op in GATHERS and stored_table(graph, node) for node in graph.nodes)
        self._unlimited: VariantPlanner | None = None
        """Planner of the last plan, if that had no limit."""
        self._weight_bytes = sum(weight.nbytes for weight in graph.weights)
        self._seen: Known = {}
        self._costs_of = partial(graph_costs, setting=setting, in_file=self._has_tables, seen=self._seen)
        """Function that computes costs of forms. What has it does not refer to this planner, which would outlive a plan
        that Ctrl-C ends until Python looks for such circles.
        """
        self._written: dict[AnyForm, VariantPlanner] = {}
        """Planners of forms, the one used last at the end."""
        self._minima: dict[AnyForm, int] = {}
        """Smallest budgets of forms."""
        self._paired: dict[AnyForm, int] = {}
        """Smallest budgets of forms that have room for two slices at once."""
        self._added: dict[AnyForm, int] = {}
        """Nodes that forms add."""

    @cached_property
    def _whole(self) -> VariantPlanner:
        """Planner of the graph as it is, tables in the file, which plans without a limit do without."""
        with Uncollected(len(self._graph.nodes)):
            return VariantPlanner(self._graph, self._setting, in_file=self._has_tables)

    @cached_property
    def _ways(self) -> Ways:
        from .bands import Ways  # plans without a limit do without

        return Ways(self._graph, self._whole.costs, self._costs_of, self._searched)

    def _forget(self) -> None:
        """Free what several forms are made from: sessions keep planners."""
        vars(self).pop("_ways", None)
        self._seen.clear()

    def rest(self) -> None:
        """Free the forms of the graph that are written out: a session that runs keeps what makes them again."""
        self._forget()
        self._written.clear()
        self._searched = None

    @cached_property
    def _forms(self) -> list[Form]:
        """Forms of the graph in bands, the tightest first. Plans without a limit do without. Bands cut a map at other
        rows than Winograd's tiles do, so numbers would depend on the budget.
        """
        if self._setting.deterministic:
            return []
        from .bands import banded  # plans without a limit do without

        started = time.perf_counter_ns()
        forms = banded(self._ways, self._whole.paired_memory, makes_again=not self._setting.spills)
        self._spent_ns += time.perf_counter_ns() - started
        return forms

    def written(self, form: AnyForm) -> Graph | None:
        """Return a form of the graph; None where it cannot be written."""
        from .bands import Form

        if isinstance(form, Form):
            return form.written(self._ways)
        return form.written(self._graph, self._whole.costs, self._costs_of)

    def is_large(self, variant: VariantPlanner) -> bool:
        """Return whether planners of as many forms like this as one budget looks at are too large to be kept."""
        return len(variant.graph.nodes) * (MILDER_MAX + 1) > NODES_KEPT

    def _planner_of(self, form: AnyForm) -> VariantPlanner | None:
        """Return the planner of a form; None where it cannot be written. Few are kept: all of them together take more
        memory than small budgets leave.
        """
        known = self._written.pop(form, None)
        if known is None:
            graph = self.written(form)
            if graph is None:
                return None
            for oldest in [*self._written]:
                if sum(len(kept.graph.nodes) for kept in self._written.values()) + len(graph.nodes) > NODES_KEPT:
                    del self._written[oldest]
            again = partial(_written_again, self._graph, self._setting, form)
            known = VariantPlanner(graph, self._setting, costs=self._costs_of(graph), again=again)
            self._minima[form], self._added[form] = known.minimum, graph.added
            self._paired[form] = known.paired_memory
        self._written[form] = known
        return known

    def _minimum_of(self, form: AnyForm) -> float:
        """Return the smallest budget of a form; infinite where it cannot be written."""
        if form not in self._minima and self._planner_of(form) is None:
            return math.inf
        return self._minima[form]

    def _paired_of(self, form: AnyForm) -> float:
        """Return the smallest budget of a form that has room for two slices at once: with less, a form that needs less
        is likely to be faster. Infinite where the form cannot be written.
        """
        return self._paired[form] if self._minimum_of(form) < math.inf else math.inf

    def _told(self, form: Form) -> int:
        """Return the smallest budget of a form as far as sizes tell: where other things than the neediest node decide,
        that of its written form is larger.
        """
        return form.nbytes + self._whole.beside_bytes

    def _is_near(self, memory: int) -> bool:
        """Whether memory is so near the smallest budget that sizes tell of that few forms fit."""
        return memory < NEAR_LEAST * self._told(self._forms[0])

    def _may_fit(self, form: Form, memory: int) -> bool:
        """Whether sizes tell that a form is worth writing, which takes long: near the smallest budget all they tell has
        to fit.
        """
        return (1 if self._is_near(memory) else TOLD) * self._told(form) <= memory

    @cached_property
    def _tight(self) -> Form | None:
        """Tightest form in bands, where it is worth it."""
        if not self._forms:
            return None
        tight, least = self._forms[0], self._whole.minimum
        is_sure = self._told(tight) <= SURE * least
        return tight if is_sure or self._minimum_of(tight) <= WORTH * least else None

    @cached_property
    def _tightest(self) -> AnyForm | None:
        """Form that has the smallest budget, where one is worth it: of forms that sizes hardly tell apart, those that
        read their weights more often need more steps.
        """
        if self._spilling is not None or self._tight is None:
            return self._spilling or self._tight
        told = self._told(self._tight)
        within = min(ALIKE * told, told + UNSURE * (told - self._minimum_of(self._tight)))
        near = [form for form in self._forms if self._told(form) <= max(within, told)]
        if self._minimum_of(self._tight) > within:  # sizes told too little of it
            near += [form for form in self._forms if form.way != self._tight.way][:1]
        return min(near, key=self._minimum_of)

    @cached_property
    def _spill_forms(self) -> list[SpillForm]:
        """Forms of the graph that spill activations, the tightest first."""
        from .spill_forms import spilled_forms  # few sessions spill

        in_bands = not self._setting.deterministic
        return spilled_forms(self._graph, self._whole.costs, self._costs_of, in_bands=in_bands)

    @cached_property
    def _spilling(self) -> SpillForm | None:
        """Tightest form that spills activations, where that is allowed and worth it."""
        if not self._setting.spills or not self._spill_forms:
            return None
        tightest = min(self._spill_forms[:WRITTEN], key=self._minimum_of)  # sizes tell too little of nodes that fetch
        least = self._whole.minimum if self._tight is None else self._minimum_of(self._tight)
        if self._minimum_of(tightest) > WORTH * least:
            return None
        self._spill_forms.remove(tightest)
        self._spill_forms.insert(0, tightest)
        return tightest

    def _forms_within(self, memory: int, best: Best) -> Iterator[AnyForm]:
        """Yield forms that fit beside the tightest, those that repeat the least first: few, again as many where the
        first of them has no room to load ahead. All where some make maps again for late readers, as the walks of these
        are others, so that how much room a form leaves says more than what it repeats. ``best``: the best plan so far.
        """
        if self._tight is not None:
            milder, room = self._forms[:0:-1], int(memory / MILDER_ROOM)
            most = left = len(milder) if any(form.makes_again for form in milder) else MILDER_MAX
            for form in milder:
                if not left:
                    break
                if best.is_slower(form, UNSURE_WORK * form.makes_again):
                    continue
                if self._may_fit(form, memory) and self._paired_of(form) <= memory:
                    is_first = left == most
                    left -= 1
                    if is_first and self._paired_of(form) > room:
                        left, room = most, memory
                    yield form
        if self._spilling is not None:
            if self._tight is not None and self._minimum_of(self._tight) <= memory:
                yield self._tight
            least, least_bytes = self._minimum_of(self._spilling), self._spilling.nbytes
            for spilled in self._spill_forms:
                beyond = MILDER * (spilled.nbytes - least_bytes)
                least_of = self._minimum_of if spilled is self._spilling else self._paired_of
                if memory >= least + beyond and least_of(spilled) <= memory:
                    yield spilled

    @cached_property
    def minimum(self) -> int:
        """Smallest budget in bytes."""
        tightest = self._tightest
        least = self._whole.minimum if tightest is None else int(self._minimum_of(tightest))
        self._forget()
        return least

    @property
    def tightest(self) -> VariantPlanner:
        """Planner of the variant that has the smallest budget."""
        tightest = self.variant(self._tightest)
        self._forget()
        return tightest

    @property
    def whole(self) -> VariantPlanner:
        """Planner of the graph as it is."""
        return self._whole

    @property
    def costs(self) -> Costs:
        """Costs of the graph as it is: its tables are in memory where the last plan had no limit."""
        return (self._unlimited or self._whole).costs

    @property
    def least_working_bytes(self) -> int:
        """Bytes that the working part of every plan has. Workspace for reading tables is not part of every plan."""
        least = self._whole.activation_bytes if self._has_tables else self._whole.least_working_bytes
        tight = self._planner_of(self._tight) if self._tight else None
        self._forget()
        return min(least, tight.least_working_bytes) if tight else least

    def plan(self, memory: int | None) -> Plan:
        """Return the plan for ``memory`` bytes (None: no limit), in groups where they were asked for. BudgetError."""
        if self._groups is None:
            with Uncollected(len(self._graph.nodes)):
                return self._one_by_one(memory)
        if self._groups == "auto":
            plan = self._one_by_one(memory)
            return plan if plan.is_streaming else self._grouping().better(plan)
        return self._grouping().within(self._groups, memory)

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
        if memory is not None and memory < self._whole.minimum:
            plan = self._fastest_of(memory)
            if plan is None:
                raise self._refusal(memory)
            return plan
        self._unlimited = None
        if memory is None or not self._has_tables or memory > self._weight_bytes:
            all_pinned = VariantPlanner(self._graph, self._setting) if self._has_tables else self._whole
            self._unlimited = all_pinned if memory is None else None  # in a budget it is rarely asked for
            if memory is None or all_pinned.pinning_memory <= memory:
                return all_pinned.plan(memory).but(minimum_memory=lambda: self.minimum)
        bound, fastest = self._whole.bound_ms(memory), self._whole.fastest_ms * AS_FAST
        if bound <= fastest:
            best = self._whole.plan(memory)
            if best.predicted_ms <= fastest:  # bands compute no less
                decisions = best.decisions and self._decided(best.decisions, None, bound)
                return best.but(minimum_memory=lambda: self.minimum, bound_ms=bound, decisions=decisions)
        plan = self._fastest_of(memory)
        assert plan is not None
        return plan

    def _fastest_of(self, memory: int) -> Plan | None:
        """Return the fastest plan of the variants that fit; None where none does."""
        from .best import Best  # plans without a limit do without

        started = time.perf_counter_ns() - self._spent_ns
        tightest = self._spilling or self._tight
        best = Best(self, memory, memory if tightest is None else self._room(tightest, memory))
        if tightest is not None:
            self._look_at_forms(best, tightest, memory)
        elif self._whole.minimum <= memory:
            best.add(None)
            best.look_at_all()
        self._forget()
        plan = best.plan
        if plan is None:
            return None
        decisions = plan.decisions and self._decided(plan.decisions, best.form, best.bound_ms)
        spent_ms, self._spent_ns = (time.perf_counter_ns() - started) / 1e6, 0
        facts = {"memory": memory, "bound_ms": best.bound_ms, "plan_ms": spent_ms, "decisions": decisions}
        return plan.but(minimum_memory=lambda: self.minimum, **facts)

    def _look_at_forms(self, best: Best, tightest: AnyForm, memory: int) -> None:
        """Look for the fastest plan of the graph as it is and of its forms. The tightest one is looked at where little
        else fits, or where it is not sure to be slower than others.
        """
        is_near = self._spilling is not None or self._is_near(memory)
        if is_near:
            tightest = self._tightest or tightest
            fits = self._minimum_of(tightest) <= memory
            if not fits and memory < self._whole.minimum:
                return
            if not any(self._may_fit(form, memory) for form in self._forms[1:]):
                self._forget()
            if fits:
                best.add(tightest)
        if self._whole.minimum <= memory:  # with what it needs, as the tightest form has where nothing is left
            best.add(None)
        for form in self._forms_within(best.room, best):
            if form != tightest:
                best.add(form)
        best.look_at_all()
        if not is_near and not best.is_slower(tightest):
            if self._minimum_of(tightest) <= memory:
                best.add(tightest)
            elif best.plan is None and self._whole.minimum <= memory:  # sizes told too little of the tightest
                best.add(None)
            best.look_at_all()

    def _decided(self, decisions: Decisions, form: AnyForm | None, bound_ms: float) -> Decisions | None:
        """Return decisions of a plan of a form; None where the form is not told."""
        if form is None:
            return decisions.in_form(None, bound_ms, self._whole.pace)
        from .bands import Form

        if not isinstance(form, Form):
            return None  # few sessions spill
        return decisions.in_form(form, bound_ms, self._whole.pace)

    def follow(self, decisions: Decisions, memory: int, *, resized: bool = False) -> Plan | None:
        """Return the plan for ``memory`` bytes that decisions of another planner of the graph make; None where they
        make none, or where the machine computes and reads at other rates than then, so that others may be better.
        ``resized``: they were made for the graph at other sizes, whatever the rates.
        """
        if self._setting.spills or (self._setting.deterministic and decisions.regions is not None):
            return None
        if not resized and not 1 / PACES <= decisions.pace / self._whole.pace <= PACES:
            return None
        with Uncollected(len(self._graph.nodes)), contextlib.suppress(*NO_PLAN):
            plan = self._variant_of(decisions).follow(decisions, memory, resized=resized)
            self._forget()
            return plan and plan.but(minimum_memory=lambda: self.minimum)
        self._forget()
        return None

    def in_form(self, decisions: Decisions, memory: int) -> Plan | None:
        """Return the plan for ``memory`` bytes of the form of the graph that decisions name, which were made for other
        sizes or bytes; None where that form needs more, or is none of the graph's.
        """
        if self._setting.spills or (self._setting.deterministic and decisions.regions is not None):
            return None
        plan = None
        with Uncollected(len(self._graph.nodes)), contextlib.suppress(*NO_PLAN, BudgetError):
            plan = self._variant_of(decisions).plan(memory)
        self._forget()
        facts = {"memory": memory, "bound_ms": decisions.bound_ms, "decisions": None}
        return plan and plan.but(minimum_memory=lambda: self.minimum, **facts)

    def _variant_of(self, decisions: Decisions) -> VariantPlanner:
        """Return the planner of the form that was decided. Raises ValueError, IndexError or AssertionError."""
        if decisions.regions is None:
            return self._whole
        from .bands import form_of

        form = form_of(decisions.way, decisions.regions)
        graph = form.written(self._ways)
        again = partial(_written_again, self._graph, self._setting, form)
        return VariantPlanner(graph, self._setting, costs=self._costs_of(graph), again=again)

    def _room(self, tightest: AnyForm, memory: int) -> int:
        """Return the memory that plans may have where there are several forms: some is left for what choosing one of
        them leaves on the heap, less where memory is scarce.
        """
        if self._spilling is None:
            least, added = self._told(self._forms[0]), self._forms[0].added
        else:
            least, added = self._minima[tightest], self._added[tightest]
        left = CHOOSING_BYTES + CHOOSING_NODE_BYTES * added
        return memory - int(min(left, CHOOSING_PART * max(memory - least, 0)))

    @property
    def spills(self) -> bool:
        """Whether forms that spill are looked at."""
        return self._spilling is not None

    def variant(self, form: AnyForm | None) -> VariantPlanner:
        """Return the planner of a form that was written before; None: of the whole."""
        found = self._whole if form is None else self._planner_of(form)
        assert found is not None
        return found


def _written_again(graph: Graph, setting: Setting, form: AnyForm) -> Graph:
    """Return a form of a graph that a planner has written out before."""
    planner = Planner(graph, setting)
    with Uncollected(len(graph.nodes)):
        written = planner.written(form)
    planner.rest()
    assert written is not None
    return written
