"""The public names: what each is, whatever else was imported, and ``flexnn.plan``."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import numpy as np
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.planning import MachineProfile
from flexnn.run.region_plan import RegionPlan
from flexnn.units import format_bytes
from tests.support.hangs import HANG_SECONDS
from tests.support.regions import F32, graph_of, model_of, numbers, value
from tests.support.sessions import feed, smallest, write_branched_model, write_model

FUNCTIONS = {"compile", "generate", "plan"}
ERRORS = {"ArtifactError", "BudgetError", "CompileError", "FlexNNError", "GraphError", "SessionError", "StateError"}
CLASSES = {"EncoderDecoder", "NodeArg", "Plan", "Pool", "Session"}


def test_every_public_name_is_what_its_documentation_says() -> None:
    """Importing a submodule binds its name in the package: none may have the name of something public."""
    for module in pkgutil.walk_packages(flexnn.__path__, "flexnn."):
        if module.name != "flexnn.__main__":  # runs the command line
            importlib.import_module(module.name)
    assert set(flexnn.__all__) == FUNCTIONS | ERRORS | CLASSES | {"__version__"}
    for name in FUNCTIONS:
        assert inspect.isfunction(getattr(flexnn, name)), name
    for name in ERRORS | CLASSES:
        assert inspect.isclass(getattr(flexnn, name)), name
    for name in FUNCTIONS | ERRORS | CLASSES:
        assert getattr(flexnn, name).__doc__, name
    assert isinstance(flexnn.__version__, str)


def test_options_of_few_values_say_which() -> None:
    everything = {"io", "profile", "groups"}
    takers = (flexnn.Session.__init__, everything), (flexnn.plan, everything)
    for function, names in (*takers, (flexnn.Pool.__init__, {"io", "profile"}), (flexnn.Pool.open, {"groups"})):
        hints = {name: set(get_args(hint)) for name, hint in get_type_hints(function).items() if name in everything}
        assert hints.keys() == names
        assert hints.get("io", {"buffered", "direct"}) == {"buffered", "direct"}
        assert Literal["measure", "analytic"] in hints.get("profile", {Literal["measure", "analytic"]})
        assert Literal["auto", "off"] in hints.get("groups", {Literal["auto", "off"]})


def test_all_errors_have_one_base_and_keep_their_own() -> None:
    for name in ERRORS:
        assert issubclass(getattr(flexnn, name), flexnn.FlexNNError)
    for name in ERRORS - {"FlexNNError", "SessionError"}:
        assert issubclass(getattr(flexnn, name), ValueError)
    assert issubclass(flexnn.SessionError, RuntimeError)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("public") / "small.onnx")))


def test_a_plan_is_that_of_a_session(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXNN_PROFILE", "analytic")
    monkeypatch.setattr(MachineProfile, "measure", lambda: MachineProfile(100e9, 10e9))
    least = smallest(artifact)
    for memory in (least, f"{2 * least}B", None):
        plan = flexnn.plan(artifact, memory=memory, threads=2)
        assert isinstance(plan, flexnn.Plan)
        with flexnn.Session(artifact, memory=memory, threads=2) as session:
            same = session.plan
        assert (plan.memory, plan.minimum_memory, plan.session_bytes) == (same.memory, least, same.session_bytes)
        assert (len(plan.steps), len(plan.loads)) == (len(same.steps), len(same.loads))
        assert plan.explanation is None
        plan.check()
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.plan(artifact, memory=least - 1, threads=2)
    assert refused.value.minimum == least


def test_a_plan_explains_itself_where_asked(artifact: Path) -> None:
    plan = flexnn.plan(artifact, memory=2 * smallest(artifact), threads=2, explain=True)
    assert plan.explanation is not None
    assert plan.describe()["peak"]["nbytes"] == plan.explanation.peak.nbytes <= plan.arena_bytes
    assert "\nruled by " in plan.summary()


def test_plans_of_open_shapes(tmp_path: Path) -> None:
    path = flexnn.compile(write_branched_model(tmp_path / "open.onnx", batch="n"))
    with pytest.raises(flexnn.GraphError, match="--shape x="):
        flexnn.plan(path)
    with pytest.raises(ValueError, match="groups need a model with fixed shapes"):
        flexnn.plan(path, shapes={"x": feed()["x"].shape}, groups=2)
    plan = flexnn.plan(path, shapes={"x": feed()["x"].shape}, threads=2, explain=True)
    assert isinstance(plan, flexnn.Plan)
    assert isinstance(plan, RegionPlan)
    (part,) = plan.parts
    assert (plan.graph, plan.program) == (part.graph, part.plan.program)
    assert plan.arena_bytes == part.plan.arena_bytes
    assert plan.barriers == len(plan.steps)
    assert not plan.is_streaming
    plan.check()
    assert plan.floor is not None
    assert plan.floor.moment.node in {node.name for node in part.graph.nodes}
    assert plan.floor.without < plan.floor.minimum == plan.minimum_memory
    assert plan.describe()["smallest"]["node"] == plan.floor.moment.node
    assert f"\nsmallest {format_bytes(plan.minimum_memory)} because of node" in plan.summary()
    again = flexnn.plan(path, shapes={"x": feed()["x"].shape}, threads=2, memory=plan.minimum_memory)
    assert again.floor is None
    assert again.is_streaming
    assert again.session_bytes <= plan.minimum_memory


def test_numbers_decide_the_shapes_of_a_plan(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["n", "width"], ["shape"], axis=0),
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Sigmoid", ["wide"], ["y"]),
    ]
    inputs = [value("x", F32, [1, 64]), value("n", TensorProto.INT64, [1])]
    graph = graph_of(nodes, inputs, [value("y", F32, [None, 64])], {"width": np.array([64])})
    (tmp_path / "m.onnx").write_bytes(model_of(graph).SerializeToString())
    few, many = (flexnn.plan(tmp_path / "m.onnx", numbers={"n": [n]}, threads=1) for n in (10, 1000))
    assert many.minimum_memory - few.minimum_memory > 900 * 64 * 4
    command = [sys.executable, "-P", "-m", "flexnn", "plan", "m.onnx", "--set", "n=1000", "--threads", "1", "--json"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=HANG_SECONDS).stdout
    assert json.loads(told)["minimum_memory"] == many.minimum_memory
    with pytest.raises(ValueError, match="no input 'z'; the inputs are x, n"):
        flexnn.plan(tmp_path / "m.onnx", numbers={"z": [1]})


def test_the_plan_of_a_model_that_numpy_computes_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [helper.make_node("Det", ["x"], ["y"])]
    path.write_bytes(
        model_of(graph_of(nodes, [value("x", F32, [4, 2, 2])], [value("y", F32, [4])])).SerializeToString()
    )
    plan = flexnn.plan(path)
    assert (plan.arena_bytes, len(plan.steps), plan.predicted_ms, plan.kernels) == (0, 0, 0, {})
    with flexnn.Session(path) as session:
        (y,) = session.run(None, {"x": numbers(4, 2, 2)})
        assert y.shape == (4,)
        assert session.statistics()["hosted_operators"] == {"Det": 1}


def test_shapes_of_an_artifact_whose_shapes_are_bound(artifact: Path) -> None:
    for use in (flexnn.plan, flexnn.Session):
        with pytest.raises(flexnn.CompileError, match="its shapes were fixed when it was compiled"):
            use(artifact, shapes={"x": (1, 1)})


STATISTICS = {"segments", "segments_of_last_run", "kept_nodes", "hosted_operators", "bytes", "engine_bytes"} | {
    "pinning",
    "machine",
}


@pytest.mark.parametrize("batch", [1, "n"])
def test_statistics(tmp_path: Path, batch: int | str) -> None:
    path = write_branched_model(tmp_path / "m.onnx", batch=batch)
    with flexnn.Session(path, threads=2, profile="analytic") as session:
        assert session.statistics()["segments_of_last_run"] == 0
        session.run(None, feed())
        found = session.statistics()
        assert found.keys() == STATISTICS
        assert found["segments"] == found["segments_of_last_run"] == 1
        assert found["kept_nodes"] == len(session.plan.graph.nodes)
        assert found["hosted_operators"] == {}
        assert sum(found["bytes"].values()) == session.session_bytes
        assert found["engine_bytes"] >= found["bytes"]["arena"] == session.plan.arena_bytes
        brought = "read" if batch == 1 else "kept"  # an open model's weights came when it was opened
        assert found["pinning"] == {"kept": 0, "moved": 0, "read": 0} | {brought: session.plan.pinned_bytes}
        assert found["machine"]["measured_times"] == 0
        session.memory = found["bytes"]["arena"] // 2 + session.session_bytes - found["bytes"]["arena"]
        assert session.statistics()["pinning"]["read"] == 0
        documentation = flexnn.Session.statistics.__doc__ or ""
        for name in (*found, *found["bytes"], *found["pinning"], *found["machine"]):
            assert f"``{name}``" in documentation, name
    with pytest.raises(flexnn.SessionError, match="closed"):
        session.statistics()


def test_plan_stays_a_function_in_a_process_that_plans(artifact: Path) -> None:
    code = "import flexnn, flexnn.planning.explain, flexnn.cli, sys; print(flexnn.plan(sys.argv[1]).minimum_memory > 0)"
    command = [sys.executable, "-P", "-c", code, str(artifact)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_sources_say_that_they_are_not_compiled() -> None:
    """A program that is started in a clone finds them first."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-c", "import flexnn"]
    clone = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {clone / 'flexnn/_core'} holds FlexNN's sources, not its compiled core: ")
