"""Refinement of a profile by runs."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.artifact import open_artifact
from flexnn.measure.refine import SAMPLES_MIN, Watch, overlaps
from flexnn.planning import MachineProfile, Setting, make_plan
from flexnn.planning.costs import graph_costs
from flexnn.planning.machine import load_seconds, variant_key
from flexnn.planning.variant_planner import VariantPlanner
from flexnn.run import engine
from tests.support.plan_graphs import resnet
from tests.support.plans import FAST_DISK
from tests.support.sessions import write_model


class BoundProgram:
    """Runs as slow as it is told, loads and steps never at once."""

    def __init__(self, step_s: Any, load_s: Any) -> None:
        ends = np.cumsum(np.concatenate((step_s, load_s))) * 1e9
        spans = np.stack([np.concatenate(([0], ends[:-1])), ends], 1).reshape(-1).data
        self.spans = spans[: 2 * len(step_s)], spans[2 * len(step_s) :]


def planned(machine: MachineProfile) -> tuple[Any, MachineProfile]:
    graph = resnet()
    costs = graph_costs(graph, Setting(machine), every_variant=True)
    times = {}
    for node, known in zip(graph.nodes, costs.nodes, strict=True):
        for variant in known.variants:
            times[variant_key(node.op, known.params, variant)] = variant.fixed_s, variant.channels_s
    machine = replace(machine, times=times, scales={"direct": 2.0})
    planner = VariantPlanner(graph, Setting(machine))
    return planner.plan(planner.minimum), machine


@pytest.mark.parametrize(("slower", "reads"), [(1.2, 1.0), (1.0, 1.4), (0.9, 0.8)])
def test_a_slower_run_makes_slower_profiles(slower: float, reads: float) -> None:
    plan, machine = planned(FAST_DISK)
    watch = Watch(plan.program, machine)
    steps = np.full(len(plan.steps), plan.predicted_ms - plan.stall_ms) * 1e-3 / len(plan.steps)
    engine = BoundProgram(steps * slower, load_seconds(machine, plan.loads["bytes"]) * reads)
    for _ in range(2**SAMPLES_MIN):
        assert watch.learnt(machine) is None
        watch.ran(lambda: engine.spans)
    learnt = watch.learnt(machine)
    assert learnt
    for key, (fixed, channels) in machine.times.items():
        assert learnt.times[key] == pytest.approx((fixed * (1 + slower) / 2, channels * (1 + slower) / 2), rel=0.01)
    assert learnt.scales["direct"] == pytest.approx(1 + slower, rel=0.01)
    assert learnt.storage_bytes_per_second == pytest.approx(machine.storage_bytes_per_second / ((1 + reads) / 2))


def test_runs_as_predicted_teach_nothing() -> None:
    plan, machine = planned(FAST_DISK)
    watch = Watch(plan.program, machine)
    steps = np.full(len(plan.steps), plan.predicted_ms - plan.stall_ms) * 1e-3 / len(plan.steps)
    for _ in range(64):
        watch.ran(lambda: BoundProgram(steps, load_seconds(machine, plan.loads["bytes"])).spans)
    assert watch.learnt(machine) is None


def test_overlaps() -> None:
    spans = array("d", [0.0, 10.0, 10.0, 20.0, 25.0, 30.0, 1.0, 2.0])
    others = array("d", [-5.0, 1.0, 3.0, 12.0, 18.0, 19.0, 29.0, 40.0])
    assert overlaps(spans, others).tolist() == [8.0, 3.0, 1.0, 0.0]
    assert overlaps(spans, array("d")).tolist() == [0.0] * 4


def test_spans_are_the_trace(tmp_path: Path) -> None:
    with open_artifact(flexnn.compile(write_model(tmp_path / "m.onnx"))) as artifact:
        graph = artifact.graph
        own = engine.Engine(engine.Switches(threads=1), trace=2)
        bound = engine.BoundProgram(own, artifact, make_plan(graph, Setting(MachineProfile.measure())))
        bound.run([np.ones(graph.tensors[i].shape, np.float32) for i in (*graph.inputs, *graph.outputs)])
        assert bound.spans
        assert bound.trace
        for flat, pairs in zip(bound.spans, bound.trace, strict=True):
            assert np.array(flat).reshape(-1, 2).tolist() == [list(pair) for pair in pairs]
        assert any(bound.trace[0])
        own.close()


def test_a_session_that_ends_with_the_process_says_nothing(tmp_path: Path) -> None:
    path = flexnn.compile(write_model(tmp_path / "m.onnx"))
    code = """
import sys
import numpy as np, flexnn
s = flexnn.Session(sys.argv[1], threads=1, profile="measure")
s.run(None, {i.name: np.ones(i.shape, np.float32) for i in s.get_inputs()})
flexnn.measure.Watch.learnt = lambda watch, machine: machine
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", "-c", code, path], capture_output=True, env=environment, check=True)
    assert not done.stderr
