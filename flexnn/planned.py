"""``flexnn.plan``: what a model would do and cost inside a budget, without running it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from flexnn.kept_artifacts import compiled
from flexnn.measure import kept_machine
from flexnn.planning import MachineProfile, Plan, Planner
from flexnn.run.model_file import ModelFile
from flexnn.run.options import GivenGroups, Io, Profile, RunOptions, run_options


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
    explain: bool = False,
) -> Plan:
    """Plan a model inside a budget without running it.

    The plan is the one that a session with the same arguments would have. Nothing is measured: times come from what
    sessions measured before on this machine, else from rates. The plan of a model that branches, or whose shapes are
    open, holds the plans of all segments that a run could meet (``parts``).

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
        explain: Whether the plan says what its memory and time are made of (``plan.explanation``); takes a few more
            plans. Models that branch, or whose shapes are open, have no explanation.

    Returns:
        The plan: ``predicted_ms``, ``minimum_memory``, ``arena_bytes``, ``steps``, ``loads`` …

    Raises:
        BudgetError: The budget is too small; ``.minimum`` is the smallest that works.
        ArtifactError: The file is not a usable artifact.
        CompileError: The ONNX file does not compile.
        GraphError: Shapes are missing or wrong.
        OSError: A file cannot be read.
    """
    options = run_options(
        memory,
        threads,
        io=io,
        profile=profile,
        groups=groups,
        reuse_outputs=reuse_outputs,
        own_outputs=own_outputs,
        deterministic=deterministic,
    )
    return _planned(os.fsdecode(path), shapes or {}, options, explain)


def _planned(model: str, shapes: Mapping[str, tuple[int, ...]], options: RunOptions, explained: bool) -> Plan:
    with compiled(model, shapes) as artifact:
        file = ModelFile(artifact, options.io, shapes if artifact == model else {})
        try:
            if file.open_model is None:
                return _graph_plan(file, options, explained)
            return _region_plan(file, options.counting_outputs)
        finally:
            file.close()


def _graph_plan(file: ModelFile, options: RunOptions, explained: bool) -> Plan:
    machine = _known_machine(file, options)
    planner = Planner(file.artifact.graph, options.setting(machine, file.io_align), groups=options.groups)
    found = planner.plan(options.memory)
    if explained:
        from flexnn.planning.explain import explain

        found.explanation = explain(planner, found, machine)
    return found


def _region_plan(file: ModelFile, options: RunOptions) -> Plan:
    import numpy as np

    from flexnn.graph.bind import known_shape
    from flexnn.graph.ir import DTYPES
    from flexnn.graph.random_array import random_array
    from flexnn.run.region_plan import plan_regions
    from flexnn.run.segments import BoundSegments

    stored = file.open_model
    assert stored is not None
    file.refuse_groups(options.groups)
    random = np.random.default_rng(0)
    ports = stored.model.graph.inputs
    feeds = {port.name: random_array(random, known_shape(port), DTYPES[str(port.dtype)]) for port in ports}
    setting = options.setting(_known_machine(file, options), file.io_align)
    return plan_regions(BoundSegments(stored, options.memory, setting), feeds)


def _known_machine(file: ModelFile, options: RunOptions) -> MachineProfile:
    """Return the machine as sessions measured it before, or its rates alone."""
    kept = None
    if options.measures:
        kept = kept_machine(file.artifact, options.threads, direct=file.direct_fd >= 0)
    return kept or MachineProfile.measure()
