"""Sessions as their users misuse them: inputs of all kinds, budgets that change, threads, forks, Ctrl-C, damage."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn import _core
from flexnn.session import open_for_tests
from tests.support.descriptors import descriptors
from tests.support.hangs import HANG_SECONDS
from tests.support.late import interrupt_after
from tests.support.sessions import feed, smallest, write_model


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    return Path(flexnn.compile(write_model(folder / "small.onnx")))


@pytest.fixture(scope="module")
def minimum(artifact: Path) -> int:
    return smallest(artifact)


@pytest.fixture(scope="module")
def expected(artifact: Path) -> np.ndarray:
    with flexnn.Session(artifact, threads=2) as session:
        return session.run(None, feed())[0]


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_close(y: np.ndarray, expected: np.ndarray) -> bool:
    """Not equal: another budget may mean other kernels, which round otherwise."""
    return bool(np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max())


def same(session: flexnn.Session, expected: np.ndarray, x: Any = None) -> None:
    y = session.run(None, feed() if x is None else {"x": x})[0]
    assert is_close(y, expected)


# ---- inputs and outputs ----


def unaligned(x: np.ndarray) -> np.ndarray:
    """Was refused: contiguous, but at an odd address."""
    y = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(np.float32).reshape(x.shape)
    y[...] = x
    return y


def strided(x: np.ndarray) -> np.ndarray:
    y = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), np.float32)
    y[..., ::2] = x
    return y[..., ::2]


def read_only(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("form", [unaligned, strided, read_only, np.asfortranarray])
def test_inputs_in_any_form(artifact: Path, expected: np.ndarray, form: Any) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        same(session, expected, form(feed()["x"]))


X = feed()["x"]


@pytest.mark.parametrize(
    ("names", "inputs", "error", "words"),
    [
        (None, {"x": X.astype(np.float64)}, ValueError, "float64"),
        (None, {"x": X.astype(">f4")}, ValueError, ">f4"),
        (None, {"x": X[0]}, ValueError, "takes float32"),
        (None, {"x": 1.5}, ValueError, "float64"),
        (None, {"x": None}, ValueError, "object"),
        (None, {"x": [[1.0], [1.0, 2.0]]}, ValueError, "input 'x'"),
        (None, {}, ValueError, "input 'x' is missing"),
        (None, {"z": X}, ValueError, "no input 'z'; the inputs are x"),
        (None, {3: X, "z": X}, ValueError, "no input 3"),
        (None, [X], TypeError, "mapping"),
        (None, None, TypeError, "mapping"),
        ("y", {"x": X}, TypeError, "list of names"),
        (["z"], {"x": X}, ValueError, "no output 'z'; the outputs are y"),
    ],
)
def test_wrong_arguments_of_run(
    artifact: Path, expected: np.ndarray, names: Any, inputs: Any, error: type[Exception], words: str
) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        with pytest.raises(error, match=words):
            session.run(names, inputs)
        same(session, expected)


def test_outputs_chosen(artifact: Path, expected: np.ndarray) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        assert session.run([], feed()) == []
        twice = session.run(["y", "y"], feed())
        assert len(twice) == 2
        assert is_close(twice[1], expected)


# ---- opening ----


@pytest.mark.parametrize("threads", [0, -1, 65, "2", 2.0])
def test_wrong_threads(artifact: Path, threads: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        flexnn.Session(artifact, threads=threads)


@pytest.mark.parametrize(
    "memory", [0, -1, True, "x", "1e9", "9" * 400, 48.0, np.float64(5e7), float("inf"), float("nan"), b"5", []]
)
def test_wrong_sizes(artifact: Path, expected: np.ndarray, memory: Any) -> None:
    with pytest.raises(ValueError, match=r"not a|out of range"):
        flexnn.Session(artifact, memory=memory)
    with flexnn.Session(artifact, threads=2) as session:
        with pytest.raises(ValueError, match=r"not a|out of range"):
            session.memory = memory
        same(session, expected)


def test_integers_of_numpy_are_sizes(artifact: Path) -> None:
    with flexnn.Session(artifact, memory=np.int64(64 << 20)) as session:  # type: ignore[arg-type]
        assert session.memory == 64 << 20


def test_paths_of_bytes(artifact: Path, expected: np.ndarray) -> None:
    with flexnn.Session(os.fsencode(artifact), threads=2) as session:  # type: ignore[arg-type]
        same(session, expected)


def test_forgotten_sessions_give_descriptors_back(artifact: Path) -> None:
    before = descriptors()
    for _ in range(3):
        flexnn.Session(artifact, threads=2, io="direct")
    assert descriptors() == before


def test_use_after_close(artifact: Path) -> None:
    session = flexnn.Session(artifact, threads=2)
    session.close()
    session.close()
    with pytest.raises(flexnn.SessionError, match="closed"):
        session.run(None, feed())
    with pytest.raises(flexnn.SessionError, match="closed"):
        session.memory = None


# ---- budgets that change ----


def test_budgets_up_and_down(artifact: Path, minimum: int, expected: np.ndarray) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        same(session, expected)
        high, lows = rss(), []
        for budget in [minimum, None, 2 * minimum, minimum, None, minimum] * 3:
            session.memory = budget
            same(session, expected)
            if budget == minimum:
                lows.append(rss())
        assert high - lows[0] >= 3 << 20, "what was pinned is not given back"
        assert lows[-1] - lows[0] <= 1 << 20, "memory leaks"
        with pytest.raises(flexnn.BudgetError) as refusal:
            session.memory = minimum - 1
        assert refusal.value.minimum == minimum
        assert session.memory == minimum
        same(session, expected)


@pytest.mark.parametrize("error", [_core.EngineError("no memory", "memory"), KeyboardInterrupt()])
def test_a_new_budget_that_cannot_be_opened_leaves_the_old(
    artifact: Path, minimum: int, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Was left closed."""
    with flexnn.Session(artifact, memory=minimum, threads=2) as session:
        bound = _core.BoundProgram

        def fails(*_: Any, **__: Any) -> None:
            monkeypatch.setattr(_core, "BoundProgram", bound)
            raise error

        monkeypatch.setattr(_core, "BoundProgram", fails)
        with pytest.raises((flexnn.SessionError, KeyboardInterrupt)):
            session.memory = None
        assert session.memory == session.plan.memory == minimum
        same(session, expected)


def test_threads_run_and_change_budgets(artifact: Path, minimum: int, expected: np.ndarray) -> None:
    end = time.monotonic() + 1.5
    wrong: list[str] = []
    runs = [0]

    def run(session: flexnn.Session) -> None:
        while time.monotonic() < end or (runs[0] <= 2 and time.monotonic() < end + HANG_SECONDS):
            if not is_close(session.run(None, feed())[0], expected):
                wrong.append("another result")
            runs[0] += 1

    def change(session: flexnn.Session) -> None:
        rng = np.random.default_rng(0)
        while time.monotonic() < end:
            try:
                session.memory = int(minimum * rng.uniform(0.8, 4))
            except flexnn.BudgetError:
                continue

    def guarded(work: Any, session: flexnn.Session) -> None:
        try:
            work(session)
        except Exception as error:
            wrong.append(repr(error))

    with flexnn.Session(artifact, memory=minimum, threads=2) as session:
        threads = [threading.Thread(target=guarded, args=(work, session)) for work in (run, run, change, change)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert runs[0] > 2


def test_closing_during_a_run(artifact: Path, minimum: int) -> None:
    session = flexnn.Session(artifact, memory=minimum, threads=2)
    timer = threading.Timer(0.05, session.close)
    timer.start()
    with pytest.raises(flexnn.SessionError, match="closed"):
        while True:
            session.run(None, feed())
    timer.join()


# ---- processes and signals ----


def test_fork_while_another_thread_runs(artifact: Path, minimum: int, expected: np.ndarray) -> None:
    """Was a hang: the child waited for the lock of a thread it does not have."""
    over = threading.Event()
    with open_for_tests(artifact, memory=minimum, threads=2, read_bytes_per_second=20_000_000) as session:

        def run() -> None:
            while not over.is_set():
                session.run(None, feed())

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.1)
        child = os.fork()
        if not child:
            signal.alarm(HANG_SECONDS)
            status = 1
            try:
                refused = 0
                for use in (lambda: session.run(None, feed()), lambda: setattr(session, "memory", None)):
                    try:
                        use()
                    except flexnn.SessionError as error:
                        refused += "fork()" in str(error)
                session.close()
                with flexnn.Session(artifact, memory=minimum, threads=2) as own:
                    status = 0 if refused == 2 and is_close(own.run(None, feed())[0], expected) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        over.set()
        thread.join()
        same(session, expected)


@pytest.mark.alone
def test_ctrl_c(artifact: Path, minimum: int, expected: np.ndarray) -> None:
    with open_for_tests(artifact, memory=minimum, threads=2, read_bytes_per_second=5_000_000) as session:
        for delay in (0.02, 0.1):
            with pytest.raises(KeyboardInterrupt):
                sent = interrupt_after(delay)
                session.run(None, feed())
            assert sent[0].since() < 0.1
        same(session, expected)


# ---- storage ----


@pytest.mark.parametrize("io", ["buffered", "direct"])
def test_slow_storage_changes_nothing(artifact: Path, minimum: int, expected: np.ndarray, io: str) -> None:
    with open_for_tests(artifact, threads=2, io=io, read_bytes_per_second=50_000_000) as session:
        for budget in (smallest(artifact), int(1.4 * minimum), 2 * minimum):
            try:
                session.memory = budget
            except flexnn.BudgetError as error:  # direct I/O needs a little more
                session.memory = error.minimum
            for _ in range(2):
                same(session, expected)


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "replaced"])
def test_a_file_that_changes_while_open(
    artifact: Path, minimum: int, expected: np.ndarray, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "copy.flexnn"
    content = artifact.read_bytes()
    path.write_bytes(content)
    with flexnn.Session(path, memory=minimum, threads=2) as session:
        same(session, expected)
        if damage == "truncated":
            os.truncate(path, 100_000)
        elif damage == "overwritten":
            with open(path, "r+b") as file:
                file.seek(100_000)
                file.write(bytes(len(content) - 100_000))
        else:
            (tmp_path / "other").write_bytes(b"other")
            os.replace(tmp_path / "other", path)
            same(session, expected)
            return
        with pytest.raises(flexnn.SessionError, match=r"weight '.*' at offset"):
            for _ in range(3):  # the loader may be a run ahead
                session.run(None, feed())
        path.write_bytes(content)  # the same file again: rewritten in place
        same(session, expected)


def test_compiling_without_onnx_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"\x08\x08")
    for name in [m for m in sys.modules if m == "onnx" or m.startswith(("onnx.", "flexnn.graph.importer"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(flexnn.CompileError, match=r"pip install 'flexnn\[compile\]'"):
        flexnn.compile(model, tmp_path / "model.flexnn")
