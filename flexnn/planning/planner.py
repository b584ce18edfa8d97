"""Plans of a graph in all its forms: tables in the file or in memory, activations whole or in bands of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flexnn.graph.ir import Graph
from flexnn.units import Groups

from .bands import WORTH, banded
from .costs import MachineProfile, graph_costs, stored_table
from .errors import BudgetError
from .overhead import Overhead, overhead_bytes, with_groups
from .report import Plan
from .types import Costs
from .variant_planner import VariantPlanner

if TYPE_CHECKING:
    from .grouping import Grouping


def make_plan(
    graph: Graph,
    *,
    memory: int | None = None,
    threads: int = 1,
    io_align: int = 64,
    machine: MachineProfile | None = None,
    overhead: Overhead = overhead_bytes,
    isa: str | None = None,
    profile: Costs | None = None,
    groups: Groups = None,
) -> Plan:
    """The plan for ``memory`` bytes (None: no limit, everything pinned), of an artifact's graph.

    ``io_align``: 64, or 4096 for direct I/O. ``overhead`` says what a session takes beside its arena. Raises
    BudgetError, naming the smallest budget, when ``memory`` is below it. Tables stay in the file (graph/tables.py) and
    activations may be tiled (planning/bands.py), unless there is room for everything. ``profile``: of the graph,
    where it is not as ``graph_costs`` makes it; such a graph is planned as it is. ``groups``: as of ``Planner``.
    """
    planners = Planner(
        graph,
        threads=threads,
        io_align=io_align,
        machine=machine,
        overhead=overhead,
        isa=isa,
        profile=profile,
        groups=groups,
    )
    return planners.plan(memory)


class Planner:
    """Plans of one graph for one budget after the other (``make_plan``). ``groups`` of independent nodes run at the
    same time (planning/grouping.py): a number of them is refused where not everything can be pinned, "auto" takes them
    where they are predicted to be faster.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        threads: int = 1,
        io_align: int = 64,
        machine: MachineProfile | None = None,
        isa: str | None = None,
        profile: Costs | None = None,
        groups: Groups = None,
        overhead: Overhead = overhead_bytes,
        **how: Any,
    ) -> None:
        machine = machine or MachineProfile.measure(isa)
        self._groups = groups
        how["overhead"] = overhead if groups is None else with_groups(overhead)
        has_tables = profile is None and any(stored_table(graph, node) for node in graph.nodes)

        def profiled(form: Graph) -> Costs:
            return graph_costs(form, threads=threads, io_align=io_align, machine=machine, isa=isa, in_file=has_tables)

        self._graph = graph
        self._how: dict[str, Any] = how | {"threads": threads, "io_align": io_align, "machine": machine, "isa": isa}
        self._whole = VariantPlanner(graph, profile=profile, in_file=has_tables, **self._how)
        self._resident = None if has_tables else self._whole
        tiled = banded(graph, self._whole.profile, profiled) if profile is None else None
        bands = VariantPlanner(tiled[0], profile=tiled[1], **self._how) if tiled else None
        self._tiled = bands if bands and bands.minimum <= WORTH * self._whole.minimum else None
        self._weight_bytes = sum(weight.nbytes for weight in graph.weights)

    @property
    def minimum(self) -> int:
        """The smallest budget, in bytes."""
        return self.tightest.minimum

    @property
    def tightest(self) -> VariantPlanner:
        """Of the form of the graph that has the smallest budget."""
        return min(self._forms, key=lambda planner: planner.minimum)

    @property
    def least_working_bytes(self) -> int:
        """Bytes that the streaming region of every plan has: workspace for reading tables is not in all of them."""
        least = self._whole.least_working_bytes if self._resident is self._whole else self._whole.activation_bytes
        return min(least, self._tiled.least_working_bytes) if self._tiled else least

    @property
    def _forms(self) -> list[VariantPlanner]:
        return [self._whole, self._tiled] if self._tiled else [self._whole]

    def plan(self, memory: int | None) -> Plan:
        """As ``make_plan``, in groups where they were asked for. Raises BudgetError."""
        if self._groups is None:
            return self._one_by_one(memory)
        if self._groups == "auto":
            plan = self._one_by_one(memory)
            return plan if plan.streams else self._grouping().better(plan)
        grouping = self._grouping()
        smallest = grouping.smallest(self._groups)
        minimum = smallest.session_bytes
        if memory is not None and memory < minimum:
            raise BudgetError(minimum, memory, " in groups, which need all weights pinned,")
        fastest = grouping.plan(self._groups)
        plan = fastest if memory is None or fastest.session_bytes <= memory else smallest
        spent = smallest.plan_ms + fastest.plan_ms
        return replace(plan, memory=memory, minimum_memory=min(minimum, plan.session_bytes), plan_ms=spent)

    def _grouping(self) -> Grouping:
        from .grouping import Grouping  # few sessions have groups; it is not kept: budgets change rarely

        return Grouping(self._graph, **self._how)

    def _one_by_one(self, memory: int | None) -> Plan:
        """Of the forms that fit, the one that is predicted to be the fastest. Each is not slower with more memory, and
        so is the fastest of them.
        """
        if memory is not None and memory < self.minimum:
            raise BudgetError(self.minimum, memory)
        if memory is None or self._resident is self._whole or memory > self._weight_bytes:
            resident = self._resident or VariantPlanner(
                self._graph, **self._how
            )  # not kept: rarely asked for, in the budget
            if memory is None or resident.everything <= memory:
                return replace(resident.plan(memory), minimum_memory=self.minimum)
        bounds = [(form.bound_ms(memory), form) for form in self._forms if form.minimum <= memory]
        bounds.sort(key=lambda pair: pair[0])
        best = bounds[0][1].plan(memory)
        spent = best.plan_ms
        for bound, form in bounds[1:]:
            if bound < best.predicted_ms:
                other = form.plan(memory, best.predicted_ms)
                spent += other.plan_ms
                best = other if other.predicted_ms < best.predicted_ms else best
        return replace(best, minimum_memory=self.minimum, bound_ms=bounds[0][0], plan_ms=spent)
