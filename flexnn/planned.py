"""``flexnn.plan``: what a model would do and cost inside a budget, without running it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flexnn import _core
from flexnn.graph.ports import Port
from flexnn.inputs import make_feed
from flexnn.kept_artifacts import compiled
from flexnn.measure import kept_machine
from flexnn.planning import BudgetError, MachineProfile, Plan, Planner
from flexnn.run.arguments import NodeArg, described
from flexnn.run.model_file import ModelFile
from flexnn.run.options import GivenGroups, Io, Kv, Profile, RunOptions, run_options

if TYPE_CHECKING:
    from flexnn.run.region_plan import Part
    from flexnn.run.state_programs import StatePrograms

FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
"""Budgets of a report's curve, as multiples of the smallest one."""
OFFERS = 7
"""Powers of two, in MiB from 1, by which a report makes the budget larger."""
SLOW_MS = 2_000
"""Planning time from which a report has a third of these budgets."""


def plan(
    path: str | os.PathLike[str],
    *,
    memory: str | int | None = None,
    threads: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    io: Io = "buffered",
    profile: Profile | None = None,
    groups: GivenGroups = None,
    reuse_outputs: bool = False,
    own_outputs: bool = True,
    deterministic: bool = False,
    spill: str | os.PathLike[str] | None = None,
    numbers: Mapping[str, Sequence[float]] | None = None,
    kv_capacity: int | None = None,
    kv: Kv = "f16",
    explain: bool = False,
) -> Plan:
    """Plan a model inside a budget without running it.

    A session with the same arguments would have this plan. Times come from what sessions measured before on this
    machine, else from rates. Where the model branches or has open shapes, ``parts`` are the plans of all its segments.

    Args:
        path: Artifact, or ONNX file, which is compiled first.
        memory: Budget in bytes, or like ``"48MiB"``; None: no limit.
        threads: Compute threads; default: the CPUs that this process may use.
        shapes: Shapes of open inputs, by name.
        io: As for Session.
        profile: As for Session; ``"measure"`` means times that sessions measured before.
        groups: As for Session.
        reuse_outputs: As for Session.
        own_outputs: As for Session.
        deterministic: As for Session.
        spill: As for Session; nothing is made in the folder.
        kv_capacity: As for Session. The plan is that of one new token, and counts the memory of the whole session.
        kv: As for Session.
        numbers: Numbers of inputs that decide branches or shapes, by name; one fills its input. Others are random.
        explain: Whether the plan says what its memory and time are made of (``plan.explanation``); takes a few more
            plans. Of models that branch, or whose shapes are open, it says what limits the smallest budget
            (``plan.floor``).

    Returns:
        The plan: ``predicted_ms``, ``minimum_memory``, ``arena_bytes``, ``steps``, ``loads`` …

    Raises:
        BudgetError: The budget is too small; ``.minimum`` is the smallest that works.
        ArtifactError, CompileError: The file is not a usable artifact, or does not compile.
        GraphError: Shapes are missing or wrong.
        OSError: A file cannot be read.
        ValueError: ``numbers`` name no input, or do not fill one.
    """
    how: dict[str, Any] = {"io": io, "profile": profile, "groups": groups, "spill": spill, "kv_capacity": kv_capacity}
    how |= {"reuse_outputs": reuse_outputs, "own_outputs": own_outputs, "deterministic": deterministic, "kv": kv}
    options = run_options(memory, threads, **how)
    with planning(os.fsdecode(path), options, shapes or {}, numbers or {}) as plans:
        return plans.plan(explained=explain)


class Plans:
    """Plans of one open file for any budget."""

    def __init__(self, file: ModelFile, options: RunOptions, numbers: Mapping[str, Sequence[float]]) -> None:
        self._file, self._numbers = file, numbers
        self.options = options if file.open_model is None else options.counting_outputs
        kept = _kept_machine(file, options)
        self.machine = kept or MachineProfile.measure()
        is_new = options.measures and kept is None and file.open_model is None
        self._setting = self.options.setting(self.machine, file.io_align, measuring=is_new)
        self._state: StatePrograms | None = None
        if file.keeps_state(options):
            from flexnn.run.state_programs import StatePrograms

            file.refuse_groups(options.groups)
            file.refuse_spill(options.spill)
            self._state = StatePrograms(file, file.with_capacity(options), self.machine)
            return
        if file.open_model is None:
            self._planner = Planner(file.artifact.graph, self._setting, groups=options.groups)
        else:
            file.refuse_groups(options.groups)
            file.refuse_spill(options.spill)
        make_feed(self._inputs, numbers, {})  # numbers of what is no input are refused

    def plan(self, *, explained: bool = False) -> Plan:
        """Return the plan for the budget of the options. Raises BudgetError, GraphError."""
        found = self.at(self.options.memory, explained=explained)
        if explained and self._file.open_model is None:
            from flexnn.planning.explain import explain

            found.explanation = explain(self._planner, found, self.machine)
        return found

    @property
    def weights(self) -> str:
        """How compiling narrowed the weights; "": it did not."""
        return self._file.artifact.about().weights

    def at(self, memory: int | None, *, explained: bool = False) -> Plan:
        """Return the plan for a budget; None: no limit; ``explained``: of open shapes with what limits the smallest
        one. Raises BudgetError, GraphError.
        """
        if self._file.open_model is None:
            return self._planner.plan(memory)
        if self._state is not None:
            return self._state.plan_for(memory)
        from flexnn.run.region_plan import plan_regions
        from flexnn.run.segments import BoundSegments

        stored = self._file.open_model
        feeds, _ = make_feed(self._inputs, self._numbers, None)
        try:
            return plan_regions(BoundSegments(stored, memory, self._setting), feeds, explained=explained)
        except BudgetError as error:  # of the first part that does not fit; another one may need more
            smallest = plan_regions(BoundSegments(stored, None, self._setting), feeds).minimum_memory
            if smallest <= error.minimum:
                raise
            raise BudgetError(smallest, error.budget) from None

    @property
    def _inputs(self) -> list[NodeArg]:
        if self._file.open_model is not None:
            return [described(port) for port in self._file.open_model.model.graph.inputs]
        graph = self._file.artifact.graph
        tensors = [graph.tensors[i] for i in graph.inputs]
        return [described(Port(t.name, t.dtype, t.shape)) for t in tensors]


@contextlib.contextmanager
def planning(
    path: str,
    options: RunOptions,
    shapes: Mapping[str, tuple[int, ...]],
    numbers: Mapping[str, Sequence[float]],
    *,
    shown: bool = False,
) -> Iterator[Plans]:
    """Open what plans a model for as long as the context lasts; progress of compiling may be ``shown``. Raises as
    ``plan`` does.
    """
    with compiled(path, shapes, shown=shown) as artifact:
        file = ModelFile(artifact, options.io, shapes if artifact == path else {})
        try:
            yield Plans(file, options, numbers)
        finally:
            file.close()


def page(path: str, plans: Plans, plan: Plan) -> str:
    """Return the report of a plan as one HTML page (flexnn/report). It plans other budgets, too."""
    from flexnn.report.page import Subject, page

    everything = plans.at(None)
    few = plan.plan_ms > SLOW_MS
    smallest, most = plan.minimum_memory, everything.session_bytes
    budgets = [int(smallest * factor) for factor in FACTORS[:: 3 if few else 1]]
    curve = [(budget, plans.at(budget).predicted_ms) for budget in budgets if budget < most]
    offers = []
    if plan.memory is not None and plan.memory < most:
        wanted = [1 << k << 20 for k in range(0, OFFERS, 3 if few else 1)]
        offers = [(more, plans.at(plan.memory + more).predicted_ms) for more in wanted if plan.memory + more < most]
        offers.append((most - plan.memory, everything.predicted_ms))
    way: list[Part] = getattr(plan, "longest_way", list)()
    parts = [(f"{part.where}, from {part.graph.nodes[0].name}", part.plan) for part in way]
    known = "measured on this machine" if plans.machine.times else "estimated from this machine's rates"
    return page(
        Subject(
            model=os.path.basename(path),
            plan=plan,
            parts=parts or [("", plan)],
            machine=plans.machine,
            threads=plans.options.threads,
            curve=[*curve, (most, everything.predicted_ms)],
            offers=offers,
            about=f"Predicted by FlexNN {_version()} from times {known}; {_core.isa_level()}.",
        )
    )


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("flexnn")
    except metadata.PackageNotFoundError:
        return ""


def _kept_machine(file: ModelFile, options: RunOptions) -> MachineProfile | None:
    """Return the machine as sessions measured it before; None: they did not, or take rates."""
    if not options.measures:
        return None
    return kept_machine(file.artifact, options.threads, direct=file.direct_fd >= 0)
