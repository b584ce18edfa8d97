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
from flexnn.planning import MachineProfile, Plan, Planner, Setting
from flexnn.planning.check import check_plan
from flexnn.planning.explain import Explanation, explain
from flexnn.planning.overhead import overhead_for
from flexnn.planning.types import io_alignment
from flexnn.session import check_groups_of_regions, default_profile, default_threads

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
    setting = _setting(artifact, options)
    planner = Planner(artifact.graph, setting, groups=options.groups)
    found = planner.plan(options.memory)
    if options.check:
        check_plan(found.graph, found.program)
    return found, explain(planner, found, setting.machine)


def _setting(artifact: Artifact, options: argparse.Namespace) -> Setting:
    threads, direct, kept = options.threads or default_threads(), options.io == "direct", None
    if default_profile(options.profile) == "measure":
        kept = kept_machine(artifact, threads, direct=direct)
    overhead = overhead_for(reuse_outputs=options.reuse_outputs)
    return Setting(kept or MachineProfile.measure(), threads, io_alignment(direct=direct), overhead)


def _region_plan(artifact: Artifact, contents: StoredModel, options: argparse.Namespace) -> RegionPlan:
    from flexnn.graph.bind import known_shape
    from flexnn.run.region_plan import plan_regions
    from flexnn.run.segments import Programs

    generator = seeded()
    ports = contents.model.graph.inputs
    feeds = {p.name: random_array(generator, known_shape(p), ALL_DTYPES[str(p.dtype)]) for p in ports}
    programs = Programs(artifact, options.memory, _setting(artifact, options))
    regions = plan_regions(programs, feeds)
    if options.check:
        for part in regions.parts:
            check_plan(part.plan.graph, part.plan.program)
    return regions
