"""Sessions and commands whose independent nodes run at the same time: what they give, take and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn import cli
from flexnn.planning import MachineProfile
from flexnn.planning.check import check_plan
from flexnn.planning.overhead import GROUPING_BYTES
from flexnn.session import open_for_tests
from tests.support.sessions import feed, smallest, write_branched_model, write_model

BRANCHES, OTHERS = 6, 4
"""Nodes: the others are two convolutions, and copies of input and output to and from channels last."""


@pytest.fixture(autouse=True, scope="module")
def kernels_by_rates() -> Iterator[None]:
    """Bits depend on kernels, and these on rates: measured ones may differ from session to session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEXNN_PROFILE", "analytic")
        patch.setattr(MachineProfile, "measure", lambda: MachineProfile(100e9, 10e9))
        yield


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups")
    return Path(flexnn.compile(write_branched_model(folder / "branched.onnx", BRANCHES)))


@pytest.fixture(scope="module")
def expected(artifact: Path) -> np.ndarray:
    with flexnn.Session(artifact, threads=2) as session:
        return session.run(None, feed())[0]


def needed(artifact: Path, groups: int) -> int:
    """The smallest budget in groups."""
    with flexnn.Session(artifact, threads=2, groups=groups) as session:
        assert session.plan.minimum_memory <= session.session_bytes
        return session.plan.minimum_memory


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4, 99, "3", "auto", "off", None])
def test_outputs_are_those_of_one_by_one(
    artifact: Path, expected: np.ndarray, groups: int | str | None, threads: int
) -> None:
    for seed in (0, 7):
        with open_for_tests(artifact, threads=threads, groups=groups, poison=True, jitter_seed=seed) as session:
            for _ in range(3):
                assert np.array_equal(session.run(None, feed())[0], expected)
            check_plan(session.plan.graph, session.plan.program)


@pytest.mark.parametrize(("groups", "sizes"), [(1, [6]), (2, [3, 3]), (4, [2, 2, 2]), (99, [1] * 6)])
def test_groups_of_a_session(artifact: Path, groups: int, sizes: list[int]) -> None:
    with flexnn.Session(artifact, threads=2, groups=groups) as session:
        assert session.plan.groups == groups
        assert session.plan.program.groups.tolist() == [1, 1, *sizes, 1, 1]
        assert session.plan.barriers == len(sizes) + OTHERS


@pytest.mark.parametrize("groups", [0, -1, True, "", "x", "1.5", 1.5, "0", "\u0662", [1]])
def test_wrong_groups(artifact: Path, groups: Any) -> None:
    with pytest.raises(ValueError, match="not a number of groups"):
        flexnn.Session(artifact, threads=2, groups=groups)


def test_a_budget_that_does_not_pin_everything_is_refused(artifact: Path, expected: np.ndarray) -> None:
    enough = needed(artifact, 2)
    with flexnn.Session(artifact, memory=enough, threads=2, groups=2) as session:
        assert session.plan.groups == 2
        assert session.session_bytes <= enough
        assert np.abs(session.run(None, feed())[0] - expected).max() <= 1e-4 * np.abs(expected).max()
    with pytest.raises(flexnn.BudgetError, match="in groups, which need all weights pinned") as caught:
        flexnn.Session(artifact, memory=enough - 1, threads=2, groups=2)
    assert caught.value.minimum == enough
    little = smallest(artifact) + GROUPING_BYTES
    with flexnn.Session(artifact, memory=little, threads=2, groups="auto") as session:
        assert session.plan.groups is None
        assert session.session_bytes <= little < enough


def test_a_new_budget_is_planned_in_groups_again(artifact: Path, expected: np.ndarray) -> None:
    enough = needed(artifact, 1)
    with flexnn.Session(artifact, threads=2, groups=1) as session:
        session.memory = enough
        assert session.plan.groups == 1
        assert session.session_bytes <= enough
        limited = session.run(None, feed())[0]
        assert np.abs(limited - expected).max() <= 1e-4 * np.abs(expected).max()
        with pytest.raises(flexnn.BudgetError):
            session.memory = enough - 1
        assert (session.memory, session.plan.groups) == (enough, 1)
        assert np.array_equal(session.run(None, feed())[0], limited)
        session.memory = None
        assert session.plan.groups == 1
        assert np.array_equal(session.run(None, feed())[0], expected)
    with flexnn.Session(artifact, threads=2, groups="auto") as session:
        chosen = session.plan.groups
        session.memory = session.plan.minimum_memory
        assert session.plan.groups is None
        assert session.plan.is_streaming
        assert np.abs(session.run(None, feed())[0] - expected).max() <= 1e-4 * np.abs(expected).max()
        session.memory = None
        assert session.plan.groups == chosen
        assert np.array_equal(session.run(None, feed())[0], expected)


def test_open_shapes_run_without(tmp_path: Path, expected: np.ndarray) -> None:
    model = write_branched_model(tmp_path / "open.onnx", BRANCHES, batch="n")
    with pytest.raises(ValueError, match="groups need a model with fixed shapes"):
        flexnn.Session(model, threads=2, groups=2)
    with flexnn.Session(model, threads=2, groups="auto") as session:
        y = session.run(None, feed())[0]
        assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()
        assert session.plan.groups is None


# ---- commands ----


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert cli.main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plan_says_groups_barriers_and_times(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = "plan", artifact, "--threads", 2
    off, two = told(capsys, *common), told(capsys, *common, "--groups", 2, "--check")
    assert (off["groups"], off["barriers"], off["forecasts_ms"]) == (None, BRANCHES + OTHERS, {})
    assert (two["groups"], two["barriers"], two["steps"]) == (2, 2 + OTHERS, BRANCHES + OTHERS)
    assert two["bound_ms"] <= two["predicted_ms"] < off["predicted_ms"] * 1.5
    auto = told(capsys, *common, "--groups", "auto")
    assert set(auto["forecasts_ms"]) == {"off", "1", "2", "4"}
    assert auto["predicted_ms"] == auto["forecasts_ms"][str(auto["groups"] or "off")]
    assert cli.main([*map(str, common), "--groups", "2"]) == 0
    assert "groups   each layer in 2 at most: 6 barriers\n" in capsys.readouterr().out
    assert cli.main([*map(str, common), "--groups", "auto"]) == 0
    assert "; predicted ms: off " in capsys.readouterr().out
    assert cli.main([*map(str, common), "--groups", "2", "--memory", str(two["minimum_memory"] - 1), "--json"]) == 2
    refused = json.loads(capsys.readouterr().out)
    assert refused == {"feasible": False, "minimum_memory": two["minimum_memory"]}


def test_run_in_groups(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = {}
    for groups, barriers in (("off", BRANCHES + OTHERS), ("1", 1 + OTHERS), ("2", 2 + OTHERS)):
        trace = tmp_path / f"{groups}.json"
        options = "--threads", 2, "--groups", groups, "--repeat", 1, "--output", tmp_path / f"{groups}.npz"
        report = told(capsys, "run", artifact, *options, "--trace", trace)
        assert report["barriers"] == barriers
        assert report["groups"] == (None if groups == "off" else int(groups))
        assert json.loads(trace.read_text())["traceEvents"]
        with np.load(tmp_path / f"{groups}.npz") as saved:
            outputs[groups] = saved["y"]
    assert np.array_equal(outputs["1"], outputs["off"])
    assert np.array_equal(outputs["2"], outputs["off"])


def test_bench_in_groups(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "bench", "curve", artifact, "--threads", 2, "--groups", 2, "--repeat", 1)
    assert report["timings"][-1]["name"] == "no limit"
    assert not any(row["bytes_read"] for row in report["timings"])
    assert report["groups"] == 2
    assert cli.main(["bench", "ablations", str(artifact), "--groups", "2"]) == 2
    assert "leave out --groups" in capsys.readouterr().err


@pytest.mark.parametrize("groups", ["0", "-1", "x", "1.5", ""])
def test_misuse(artifact: Path, groups: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", str(artifact), f"--groups={groups}"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "not a number of groups" in error


def test_sequential_models_stay_as_they_are(tmp_path: Path) -> None:
    """Layers of one node: nothing to group, so nothing is chosen."""
    with flexnn.Session(write_model(tmp_path / "small.onnx"), threads=2, groups="auto") as session:
        assert session.plan.groups is None
        assert list(session.plan.forecasts_ms) == [None]
