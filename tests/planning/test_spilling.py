"""Activations in the spill file: plans, results, what a run writes, and faults in writing."""

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import flexnn
from bench.models.segmentation import build
from flexnn import files
from flexnn.artifact import open_artifact
from flexnn.planning import MachineProfile, Planner, Setting, late, spill_forms
from flexnn.planning.apart import sums_apart
from flexnn.planning.costs import graph_costs
from flexnn.planning.errors import PlanError
from flexnn.planning.spilling import waiting, with_spills
from flexnn.planning.twice import Twice
from flexnn.run.fixed import FixedRun
from flexnn.session import open_for_tests
from tests.support.sessions import write_choosing_model

MACHINE = MachineProfile(2e11, 2e10)
LEAST = {"unet": 0.85, "u2net": 0.6}
"""Smallest budget with spilling as a fraction of that without, of networks; 0.78 where sums kept u2net's maps."""


@pytest.fixture(scope="module", params=["unet", "u2net"])
def artifact(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param, numbered=False)
    size = 512 if request.param == "u2net" else 256  # of 256, its maps are hardly larger than its nodes
    model = build(request.param, folder, size=size, base=16)
    flexnn.compile(model, folder / "model.flexnn")
    return folder / "model.flexnn"


@pytest.fixture(scope="module")
def unet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    flexnn.compile(build("unet", folder, size=256, base=16), folder / "model.flexnn")
    return folder / "model.flexnn"


def planner_of(artifact: Path, *, spills: bool, **options: bool) -> Planner:
    with open_artifact(str(artifact)) as opened:
        return Planner(opened.graph, Setting(MACHINE, threads=2, spills=spills, **options))


def feed(session: flexnn.Session) -> dict[str, np.ndarray]:
    (port,) = session.get_inputs()
    return {port.name: np.random.default_rng(3).standard_normal(port.shape, np.float32)}


def result(artifact: Path, memory: int | None = None, **options: object) -> np.ndarray:
    with flexnn.Session(artifact, memory, 2, profile="analytic", **options) as session:
        given = feed(session)
        first, second = session.run(None, given)[0], session.run(None, given)[0]
        assert np.array_equal(first, second)
        return second


def test_spilling_lowers_the_smallest_budget(artifact, monkeypatch):
    monkeypatch.setattr(late, "late", lambda graph, waiting: Twice(graph, 0))  # which lowers it, too
    without, spilling = planner_of(artifact, spills=False), planner_of(artifact, spills=True)
    assert spilling.minimum < LEAST[artifact.parent.name] * without.minimum
    plan = spilling.plan(spilling.minimum)
    assert plan.session_bytes <= spilling.minimum
    assert plan.bytes_written_per_run > 0
    assert plan.bytes_fetched_per_run >= plan.bytes_written_per_run
    assert plan.program.spill_bytes >= plan.bytes_written_per_run
    assert plan.bytes_written_per_day(10) == 10 * plan.bytes_written_per_run
    plan.check()


@pytest.mark.parametrize("is_apart", [False, True])
def test_maps_that_wait_for_a_sum_leave_memory(tmp_path, is_apart):
    """A U-block adds its first map to its last one, in place of the first one: stored behind that, it would stay."""
    flexnn.compile(build("u2net", tmp_path, size=256, base=16), tmp_path / "model.flexnn")
    setting = Setting(MACHINE, threads=2)
    with open_artifact(str(tmp_path / "model.flexnn")) as opened:
        graph = opened.graph
    if is_apart:
        graph = sums_apart(graph, graph_costs(graph, setting), waiting=True)
    spilled = with_spills(graph, waiting(graph, graph_costs(graph, setting)))
    names = [node.name for node in spilled.nodes]
    assert (names.index("Conv_58.store") < names.index("Add_8")) is is_apart  # of the last block


def test_walks_are_cut_where_that_spares_memory_and_work(tmp_path, monkeypatch):
    """Activations inside a walk are spilled, too: two short walks repeat less than a long one."""
    flexnn.compile(build("unet", tmp_path, size=512, base=16), tmp_path / "model.flexnn")
    forms = planner_of(tmp_path / "model.flexnn", spills=True)._spill_forms
    monkeypatch.setattr(spill_forms, "LOOKS", 0)
    others = planner_of(tmp_path / "model.flexnn", spills=True)._spill_forms
    assert forms[0].nbytes < 0.9 * others[0].nbytes
    work = min(form.work for form in forms if form.nbytes <= others[0].nbytes)
    assert work < 0.9 * others[0].work


def test_nothing_is_spilled_without_a_limit_or_a_folder(unet):
    spilling = planner_of(unet, spills=True)
    assert not spilling.plan(None).graph.spills
    without = planner_of(unet, spills=False)
    assert not without.plan(without.minimum).graph.spills


def test_more_memory_is_never_slower(unet):
    planner = planner_of(unet, spills=True)
    budgets = np.linspace(planner.minimum, 3 * planner.minimum, 12).astype(int).tolist()
    times = [planner.plan(budget).predicted_ms for budget in budgets]
    assert all(later <= sooner * (1 + 1e-6) for sooner, later in pairwise(times))


def test_kernels_by_rule_spill_whole_activations(unet):
    planner = planner_of(unet, spills=True, deterministic=True)
    plan = planner.plan(planner.minimum)
    plan.check()
    assert planner.minimum <= planner_of(unet, spills=False, deterministic=True).minimum


def test_the_check_refuses_a_load_before_its_rows_are_stored(unet):
    planner = planner_of(unet, spills=True)
    plan = planner.plan(planner.minimum)
    spilled = np.flatnonzero(plan.loads["check_bytes"] * (plan.loads["file_offset"] >= 1 << 46))
    plan.loads["wait_steps"][spilled[0]] = 1 - len(plan.steps)
    with pytest.raises(PlanError):
        plan.check()


@pytest.mark.parametrize("io", ["buffered", "direct"])
def test_results_are_those_of_the_whole_form(artifact, tmp_path, io):
    smallest = flexnn.plan(artifact, threads=2, spill=tmp_path, profile="analytic", io=io).minimum_memory
    spilled = result(artifact, smallest, spill=tmp_path, io=io)
    np.testing.assert_allclose(spilled, result(artifact), rtol=1e-5, atol=2e-6)
    assert not os.listdir(tmp_path)


def test_a_session_says_what_it_writes_and_the_file_is_private(unet, tmp_path):
    smallest = flexnn.plan(unet, threads=2, spill=tmp_path, profile="analytic").minimum_memory
    with flexnn.Session(unet, smallest, 2, profile="analytic", spill=tmp_path) as session:
        session.run(None, feed(session))
        assert session.last_run["bytes_written"] == session.plan.bytes_written_per_run > 0
        assert isinstance(session._run, FixedRun)
        found = os.fstat(session._run._spill.fd)
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert found.st_nlink == 0
        assert found.st_size == session.plan.program.spill_bytes
        assert found.st_blocks * 512 >= found.st_size  # taken when the session opened
        session.memory = None
        session.run(None, feed(session))
        assert session.last_run["bytes_written"] == 0
        assert os.fstat(session._run._spill.fd).st_size == 0
        session.memory = smallest
        assert session.run(None, feed(session))


def test_poisoned_memory_and_random_pauses_change_nothing(unet, tmp_path):
    smallest = flexnn.plan(unet, threads=2, spill=tmp_path, profile="analytic").minimum_memory
    expected = result(unet, smallest, spill=tmp_path)
    with open_for_tests(
        str(unet), memory=smallest, threads=2, profile="analytic", spill=str(tmp_path), poison=True, jitter_seed=7
    ) as session:
        assert np.array_equal(session.run(None, feed(session))[0], expected)


def test_without_nameless_files_the_name_is_gone_at_once(unet, tmp_path, monkeypatch):
    """Names that killed processes left go, too, but nothing that was not made here."""
    monkeypatch.setattr(files, "_NAMELESS", 0)
    left, folder = tmp_path / f"{files.UNNAMED}{'0' * 32}", tmp_path / f"{files.UNNAMED}{'1' * 32}"
    left.touch()
    folder.mkdir()
    own = tmp_path / f"{files.UNNAMED}notes"
    own.touch()
    swept = os.unlink
    monkeypatch.setattr(os, "unlink", lambda name, **options: [swept(name, **options) for _ in range(2)])  # swept twice
    file = files.unnamed(str(tmp_path))
    assert os.write(file.fd, b"rows") == 4
    assert not os.fstat(file.fd).st_nlink
    assert stat.S_IMODE(os.fstat(file.fd).st_mode) == 0o600
    file.close()
    assert set(tmp_path.iterdir()) == {folder, own}


def test_files_in_memory_are_refused(unet):
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with pytest.raises(ValueError, match="kept in memory"):
        flexnn.Session(unet, spill="/dev/shm")


def test_a_missing_folder_is_refused(unet, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        flexnn.Session(unet, spill=tmp_path / "none")


def test_open_shapes_are_refused(tmp_path):
    flexnn.compile(write_choosing_model(tmp_path / "open.onnx"), tmp_path / "open.flexnn")
    with pytest.raises(ValueError, match="fixed shapes"):
        flexnn.Session(tmp_path / "open.flexnn", spill=tmp_path)
    with pytest.raises(ValueError, match="fixed shapes"):
        flexnn.plan(tmp_path / "open.flexnn", spill=tmp_path)


class Full:
    """A device without room: posix_fallocate says so."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, *_: object) -> None:
        raise OSError(self.code, os.strerror(self.code))


def test_a_full_device_is_an_error_before_the_first_run(unet, tmp_path, monkeypatch):
    smallest = flexnn.plan(unet, threads=2, spill=tmp_path, profile="analytic").minimum_memory
    monkeypatch.setattr(os, "posix_fallocate", Full(errno.ENOSPC))
    with pytest.raises(flexnn.FlexNNError, match="no room for a spill file of"):
        flexnn.Session(unet, smallest, 2, profile="analytic", spill=tmp_path)


def test_a_write_that_fails_ends_the_run_and_the_next_is_good(unet, tmp_path):
    """The limit on file sizes stands for EIO and ENOSPC: the system writes some, and then fails."""
    smallest = flexnn.plan(unet, threads=2, spill=tmp_path, profile="analytic").minimum_memory
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with flexnn.Session(unet, smallest, 2, profile="analytic", spill=tmp_path) as session:
        given = feed(session)
        expected = session.run(None, given)[0]
        try:
            for limit in (0, 5000, 1 << 20):
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
                with pytest.raises(flexnn.FlexNNError, match=r"spill file.*writing failed \(File too large\)"):
                    session.run(None, given)
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
                assert np.array_equal(session.run(None, given)[0], expected)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)


def test_rows_that_are_not_what_was_stored_are_found(unet, tmp_path):
    """A device that loses what is written: the run ends with an error, and the session can run again."""
    smallest = flexnn.plan(unet, threads=2, spill=tmp_path, profile="analytic").minimum_memory
    with flexnn.Session(unet, smallest, 2, profile="analytic", spill=tmp_path) as session:
        given = feed(session)
        expected = session.run(None, given)[0]
        inside = session._run._spill
        good = os.dup(inside.fd)
        zeros = os.open("/dev/zero", os.O_RDWR)
        try:
            os.dup2(zeros, inside.fd, inheritable=False)
            with pytest.raises(flexnn.FlexNNError, match=r"spill file.*checksum"):
                session.run(None, given)
            os.dup2(good, inside.fd, inheritable=False)
            assert np.array_equal(session.run(None, given)[0], expected)
        finally:
            os.close(good)
            os.close(zeros)


def test_the_promise_holds(unet, tmp_path):
    """Peak memory in a process of its own, at the smallest budget."""
    smallest = flexnn.plan(unet, threads=2, spill=tmp_path).minimum_memory
    command = [sys.executable, "-P", "-m", "flexnn", "run", str(unet), "--memory", str(smallest), "--threads", "2"]
    command += ["--spill", str(tmp_path), "--repeat", "3", "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert report["bytes_written_per_run"] > 0
    assert report["peak_rss"] - report["baseline_rss"] <= smallest + (1 << 20)
