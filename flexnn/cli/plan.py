"""``flexnn plan``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import flexnn
from flexnn.artifact import Artifact, open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.compiler import compiled
from flexnn.graph import bind_shapes
from flexnn.graph.ir import ALL_DTYPES
from flexnn.measure import kept_machine
from flexnn.planning import MachineProfile, Plan, Planner
from flexnn.planning.check import check_plan
from flexnn.planning.explain import Explanation, explain
from flexnn.planning.overhead import overhead_for
from flexnn.session import check_groups_of_regions, default_profile, default_threads, io_align

from .inputs import random_array, seeded

if TYPE_CHECKING:
    from flexnn.run.region_plan import RegionPlan


def plan(options: argparse.Namespace) -> None:
    """``flexnn plan``: the plan, and what decides its time and its peak."""
    with compiled(options.model, dict(options.shape)) as path, open_artifact(path) as artifact:
        try:
            if isinstance(artifact.contents, StoredModel):
                if path == options.model:
                    bind_shapes(artifact.contents.model, dict(options.shape))
                check_groups_of_regions(options.groups, path)
                regions = _region_plan(artifact, artifact.contents, options)
                told, text = regions.describe(), regions.summary()
            else:
                found, why = _graph_plan(artifact, options)
                told, text = found.describe() | why.describe(), f"{found.summary()}\n{why.summary(found)}"
        except flexnn.BudgetError as error:
            if options.json:
                print(json.dumps({"feasible": False, "minimum_memory": error.minimum}))
            raise
    if options.json:
        print(json.dumps({"feasible": True, **told}))
    else:
        print(text)
        if options.check:
            print("check    no two live tensors overlap, at any interleaving of loads and steps")


def _graph_plan(artifact: Artifact, options: argparse.Namespace) -> tuple[Plan, Explanation]:
    threads, align = options.threads or default_threads(), io_align(options.io)
    machine = _known_machine(artifact, options)
    overhead = overhead_for(reuse_outputs=options.reuse_outputs)
    planners = Planner(
        artifact.graph, threads=threads, io_align=align, machine=machine, overhead=overhead, groups=options.groups
    )
    found = planners.plan(options.memory)
    if options.check:
        check_plan(found.graph, found.program)
    return found, explain(planners, found, machine)


def _known_machine(artifact: Artifact, options: argparse.Namespace) -> MachineProfile:
    kept = None
    if default_profile(options.profile) == "measure":
        kept = kept_machine(artifact, options.threads or default_threads(), direct=options.io == "direct")
    return kept or MachineProfile.measure()


def _region_plan(artifact: Artifact, contents: StoredModel, options: argparse.Namespace) -> RegionPlan:
    from flexnn.graph.bind import known_shape
    from flexnn.run.region_plan import plan_regions
    from flexnn.run.segments import Programs

    threads = options.threads or default_threads()
    generator = seeded()
    ports = contents.model.graph.inputs
    feeds = {p.name: random_array(generator, known_shape(p), ALL_DTYPES[str(p.dtype)]) for p in ports}
    align = io_align(options.io)
    machine = _known_machine(artifact, options)
    programs = Programs(artifact, options.memory, threads, align, machine, reuse_outputs=options.reuse_outputs)
    regions = plan_regions(programs, feeds)
    if options.check:
        for part in regions.parts:
            check_plan(part.plan.graph, part.plan.program)
    return regions
