"""Sessions whose budget follows the system: here, in a process of its own where memory is limited, and by hand."""

from __future__ import annotations

import errno
import gc
import itertools
import logging
import os
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import flexnn
import flexnn.run.options
from flexnn.planning import Plan, Planner
from flexnn.system import idle
from flexnn.system.limits import Limits
from tests.support.hangs import HANG_SECONDS, wait_until
from tests.support.sessions import BRANCHED_FEED as FEED
from tests.support.sessions import branched_artifact
from tests.system.trees import MIB


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    return branched_artifact(tmp_path_factory.mktemp("m"))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    return branched_artifact(tmp_path_factory.mktemp("m"), batch="n")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that the system leaves: {"free": bytes}, which tests change."""
    left = {"free": 1 << 30}
    monkeypatch.setattr(Limits, "free", lambda _: left["free"])
    monkeypatch.setattr(Limits, "at_once", lambda _: left["free"])
    monkeypatch.setattr(Limits, "pressed", lambda *_: False)
    monkeypatch.setattr(Limits, "whole", 1 << 30)
    return left


def wait_ms() -> None:
    time.sleep(0.005)


@pytest.mark.parametrize("kind", ["artifact", "opened"])
def test_it_shrinks_before_the_next_run(
    kind: str, request: pytest.FixtureRequest, free: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flexnn")
    path: str = request.getfixturevalue(kind)
    with flexnn.Session(path, "auto", 1) as session:
        assert session.memory == (1 << 30) - (1 << 30) // 10
        wanted = session.run(None, FEED)[0]
        held = session.session_bytes
        session.run(None, FEED)
        free["free"] = (1 << 30) // 10 - held // 8
        wait_ms()
        outputs = session.run(None, FEED)[0]
        assert session.memory is not None
        assert session.memory < held
        assert session.session_bytes <= session.memory
        np.testing.assert_allclose(outputs, wanted, 1e-5, 1e-5)
        assert caplog.messages[0].startswith(f"{Path(path).name}: budget 921.61MiB -> ")
        if kind == "artifact":
            assert len(caplog.messages) == 1
        else:  # a run of open shapes may ask for more, which may be given back after it
            assert all(text.endswith("left ") or "a run needs" in text for text in caplog.messages[1:])


def test_what_the_program_gives_back_meanwhile_is_no_shortage(
    opened: str, free: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look took a quarter away where the rest of the process had given memory back as a session opened."""
    sizes = itertools.count(1 << 40, -MIB)
    monkeypatch.setattr(Limits, "resident", lambda _: next(sizes))
    with flexnn.Session(opened, "auto", 1) as session:
        session._run.idle()  # type: ignore[attr-defined]
        assert session.memory == (1 << 30) - (1 << 30) // 10


def test_it_shrinks_between_runs(artifact: str, free: dict[str, int]) -> None:
    with flexnn.Session(artifact, "auto", 1) as session:
        session.run(None, FEED)
        held = session.session_bytes
        free["free"] = 0
        wait_until(lambda: session.session_bytes != held)


def test_a_size_ends_it_and_auto_begins_it(artifact: str, free: dict[str, int]) -> None:
    with flexnn.Session(artifact, threads=1) as session:
        wanted = session.run(None, FEED)[0]
        held = session.session_bytes
        session.memory = "50%"
        assert session.memory == ((1 << 30) + held) // 2
        session.memory = "auto:64MiB"
        assert session.memory == (1 << 30) + held - (64 << 20)
        session.run(None, FEED)
        free["free"] = 60 << 20
        wait_ms()
        session.run(None, FEED)
        assert session.session_bytes < held
        session.memory = held
        free["free"] = 0
        wait_ms()
        np.testing.assert_allclose(session.run(None, FEED)[0], wanted, 1e-5, 1e-5)
        assert session.memory == session.session_bytes == held
        session.memory = None
        with pytest.raises(ValueError, match="not a budget"):
            session.memory = "auto-matic"


def test_a_run_that_needs_more_gets_it(opened: str, free: dict[str, int]) -> None:
    """There is as much; the budget was made small by what others had."""
    with flexnn.Session(opened, "auto:64MiB", 1) as session:
        session.run(None, FEED)
        session._run.inner.rebudget(session.session_bytes)  # type: ignore[attr-defined]
        outputs = session.run(None, {"x": np.ones((16, 128, 8, 8), np.float32)})
        assert outputs[0].shape[0] == 16
        free["free"] = 0
        with pytest.raises(flexnn.BudgetError):
            session.run(None, {"x": np.ones((64, 128, 8, 8), np.float32)})


def test_sessions_are_forgotten(artifact: str, free: dict[str, int]) -> None:
    session = flexnn.Session(artifact, "auto", 1)
    session.run(None, FEED)
    gone = weakref.ref(session)
    del session

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    wait_until(is_gone)  # the thread may be looking at it


def test_it_is_refused_with_what_it_needs(artifact: str, free: dict[str, int]) -> None:
    least = flexnn.plan(artifact, threads=1).minimum_memory
    free["free"] = 16 * MIB
    with pytest.raises(flexnn.BudgetError) as error:
        flexnn.Session(artifact, "auto", 1)
    assert error.value.minimum == least
    assert flexnn.plan(artifact, memory="100%", threads=1).memory == 16 * MIB


def test_sizes_load_nothing_of_it(artifact: str) -> None:
    code = (
        "import sys, numpy, flexnn; flexnn.Session(sys.argv[1], '64MiB', 1).close();"
        "print([name for name in sys.modules if name.startswith('flexnn.system') or name == 'logging'])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, artifact], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


FOLLOWING = """
import sys, os, numpy, flexnn
session = flexnn.Session(sys.argv[1], "auto:4MiB", 1)
feed = {"x": numpy.ones((1, 128, 8, 8), numpy.float32)}
session.run(None, feed)
if os.fork() == 0:
    try:
        session.run(None, feed)
    except flexnn.SessionError:
        other = flexnn.Session(sys.argv[1], "auto:4MiB", 1)
        other.run(None, feed)
        os._exit(0 if other.memory > 1 else 1)
    os._exit(1)
print(os.waitpid(-1, 0)[1], session.memory > 1)
"""


def test_it_ends_and_forks(artifact: str) -> None:
    """The interpreter ends while the thread looks, and a forked process has a thread of its own."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-P", "-c", FOLLOWING, artifact],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_SECONDS,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "0 True"), done.stderr


def test_an_error_between_runs_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        calls = 0

        def call(self) -> bool:
            self.calls += 1
            if self.calls == 1:
                raise flexnn.SessionError("no weights")
            return False

    broken = Broken()
    idle.watch(broken.call)
    idle.watch(broken.call)
    wait_until(lambda: broken.calls >= 2)
    assert caplog.messages == ["between runs: no weights"]
    time.sleep(3 * idle.SECONDS)
    assert broken.calls == 2


def test_the_sessions_of_a_process(artifact: str, free: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """flexnn.ort with FLEXNN_MEMORY=auto: the pool of the process follows, and its sessions give back."""
    from flexnn.ort.account import _from_environment

    monkeypatch.setenv("FLEXNN_MEMORY", "auto:64MiB")
    budget = _from_environment()
    assert budget.total == (1 << 30) - (64 << 20)
    session = budget.open(artifact, 1)
    session.run(None, FEED)
    before = budget.total
    free["free"] = 32 << 20
    wait_ms()
    session.run(None, FEED)
    assert budget.total is not None
    assert budget.total < before // 2
    monkeypatch.setenv("FLEXNN_MEMORY", "50%")
    assert _from_environment().total == free["free"] // 2


def test_a_pool_gives_back_and_takes_again(artifact: str, free: dict[str, int]) -> None:
    with flexnn.Pool("auto:64MiB", 1) as pool:
        sessions = [pool.open(artifact) for _ in range(2)]
        wanted = [session.run(None, FEED) for session in sessions]
        most = pool.memory
        assert most is not None
        free["free"] = (64 << 20) - pool.session_bytes // 8
        wait_ms()
        given = [session.run(None, FEED) for session in sessions]
        assert pool.memory is not None
        assert pool.session_bytes <= pool.memory < most // 2
        for before, after in zip(wanted, given, strict=True):
            np.testing.assert_allclose(after[0], before[0], 1e-5, 1e-5)
        pool.memory = most
        free["free"] = 0
        wait_ms()
        sessions[0].run(None, FEED)
        assert pool.memory == most  # a size follows nothing


def test_a_pool_between_runs(artifact: str, free: dict[str, int]) -> None:
    with flexnn.Pool("auto:64MiB", 1) as pool:
        pool.open(artifact).run(None, FEED)
        before = pool.memory
        assert before is not None
        free["free"] = 32 << 20
        wait_until(lambda: pool.memory != before)
        assert pool.memory is not None
        assert pool.memory < before


@pytest.mark.parametrize(("text", "is_right"), [("auto", True), ("auto:8MiB", True), ("50%", True), ("aut", False)])
def test_exec_takes_it(tmp_path: Path, text: str, is_right: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os; print(os.environ['FLEXNN_MEMORY'])")
    command = [sys.executable, "-P", "-m", "flexnn", "exec", "--memory", text, "--", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == ((0, text) if is_right else (2, "")), done.stderr


def test_the_command_line_takes_it(artifact: str) -> None:
    command = [sys.executable, "-P", "-m", "flexnn", "run", artifact, "--threads", "1", "--repeat", "1", "--memory"]
    for text, is_right in (("auto", True), ("50%", True), ("auto:", False), ("0%", False)):
        done = subprocess.run([*command, text], capture_output=True, text=True, check=False)
        assert done.returncode == (0 if is_right else 2), done.stderr
        assert is_right or done.stderr.count("\n") == 1


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="no control group of version 1 to make")
def test_a_real_group(artifact: str) -> None:
    """The budget is what the group leaves."""
    from bench.budgets.limit import Group

    group = Group(f"flexnn-test-{os.getpid()}", 160 * MIB)
    code = "import sys, flexnn; print(flexnn.Session(sys.argv[1], 'auto', 1).memory)"
    command = [sys.executable, "-P", "-c", code, artifact]
    try:
        inside = ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs; exec "$@"', "sh", *command]
        done = subprocess.run(inside, capture_output=True, text=True, check=True)
    finally:
        group.close()
    assert 60 * MIB < int(done.stdout) < (160 - 16) * MIB


@pytest.mark.parametrize("is_pooled", [False, True])
def test_without_descriptors_the_old_budget_stays(
    artifact: str, monkeypatch: pytest.MonkeyPatch, is_pooled: bool
) -> None:
    with flexnn.Pool("1GiB", 1) as pool, flexnn.Session(artifact, "1GiB", 1) as session:
        pool.open(artifact)
        subject: flexnn.Pool | flexnn.Session = pool if is_pooled else session

        def fails(limits: Limits, root: str = "/") -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(Limits, "__init__", fails)
        with pytest.raises(OSError, match="Too many"):
            subject.memory = "auto"
        assert subject.memory == 1 << 30


def test_no_thread_looks_and_the_next_one_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Watched:
        looks = 0

        def look(self) -> bool:
            self.looks += 1
            return True

    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    one, thread = Watched(), idle._Thread()
    with monkeypatch.context() as without:
        without.setattr(idle, "start_new_thread", none)
        thread.add(one.look)
    assert "before runs only" in caplog.text
    thread.add(one.look)
    wait_until(lambda: one.looks)
    thread.end()


def test_a_pool_plans_before_others_need_memory(
    artifact: str, free: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with flexnn.Pool("auto:64MiB", 1) as pool:
        sessions = [pool.open(artifact) for _ in range(2)]
        for session in sessions:
            session.run(None, FEED)
        made: list[int | None] = []
        plan = Planner.plan

        def counted(self: Planner, memory: int | None) -> Plan:
            made.append(memory)
            return plan(self, memory)

        monkeypatch.setattr(Planner, "plan", counted)
        most = pool.memory
        free["free"] = (64 << 20) - pool.session_bytes // 8
        wait_ms()
        sessions[0].run(None, FEED)
        assert pool.memory is not None
        assert most is not None
        assert pool.memory < most // 2
        assert len(made) <= 2, "each session takes one plan that it knew of"
