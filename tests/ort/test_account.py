"""The sessions of a process share one budget: they never hold more together, and an error names what would do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flexnn
import flexnn.ort as ort
from flexnn.ort.account import Account, account
from tests.support.sessions import write_branched_model

FEED = {"x": np.ones((1, 128, 8, 8), np.float32)}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_branched_model(tmp_path_factory.mktemp("m") / "closed.onnx", 6))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    return flexnn.compile(write_branched_model(tmp_path_factory.mktemp("m") / "open.onnx", 6, batch="n"))


def least(path: str) -> int:
    return flexnn.plan(path, threads=1).minimum_memory


def held(budget: Account) -> int:
    return sum(share.nbytes for share in budget._live())


def test_three_models_share(artifact: str) -> None:
    single, most = least(artifact), flexnn.plan(artifact, threads=1).session_bytes
    assert most > single
    budget = Account(most + 2 * single)
    wanted = flexnn.Session(artifact, threads=1).run(None, FEED)[0]
    sessions = [budget.open(lambda memory: flexnn.Session(artifact, memory, 1)) for _ in range(3)]
    assert held(budget) <= budget.total
    assert sum(session.session_bytes for session in sessions) <= budget.total
    assert budget.most_bytes <= budget.total
    for session in sessions:
        np.testing.assert_allclose(session.run(None, FEED)[0], wanted, 1e-5, 1e-5)
    with pytest.raises(ort.OutOfBudget, match=r"a budget of .* would do") as error:
        for _ in range(9):
            sessions.append(budget.open(lambda memory: flexnn.Session(artifact, memory, 1)))
    again = Account(error.value.minimum)
    kept = [again.open(lambda memory: flexnn.Session(artifact, memory, 1)) for _ in range(len(sessions) + 1)]
    assert held(again) <= error.value.minimum
    np.testing.assert_allclose(kept[-1].run(None, FEED)[0], wanted, 1e-5, 1e-5)


def test_what_is_closed_gives_back(artifact: str) -> None:
    budget = Account(flexnn.plan(artifact, threads=1).session_bytes)
    for _ in range(3):
        session = budget.open(lambda memory: flexnn.Session(artifact, memory, 1))
        assert session.session_bytes == budget.total
        session.close()
    for _ in range(3):
        assert budget.open(lambda memory: flexnn.Session(artifact, memory, 1)).session_bytes == budget.total


def test_a_run_that_grows_takes_from_others(opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = {"x": np.ones((9, 128, 8, 8), np.float32)}
    with flexnn.Session(opened, threads=1) as session:
        wanted = session.run(None, feed)[0]
        single = session.plan.minimum_memory
    monkeypatch.setenv("FLEXNN_MEMORY", str(single * 5 // 4))
    monkeypatch.setattr("flexnn.ort.account.os.getpid", lambda: -7)  # a new account
    budget = account()
    assert budget.total == single * 5 // 4
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [ort.InferenceSession(opened, options) for _ in range(2)]
    for _ in range(2):
        for session in sessions:
            np.testing.assert_allclose(session.run(None, feed)[0], wanted, 1e-5, 1e-5)
            assert held(budget) <= budget.total


def test_one_model_that_does_not_fit(artifact: str) -> None:
    single = least(artifact)
    with pytest.raises(ort.OutOfBudget) as error:
        Account(single - 1).open(lambda memory: flexnn.Session(artifact, memory, 1))
    assert error.value.minimum == single
    assert isinstance(error.value, flexnn.BudgetError)
    assert isinstance(error.value, ort.Fail)
    Account(single).open(lambda memory: flexnn.Session(artifact, memory, 1)).close()


def test_no_limit(artifact: str) -> None:
    assert Account(None).open(lambda memory: flexnn.Session(artifact, memory, 1)).memory is None


def test_a_wrong_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEXNN_MEMORY", "lots")
    monkeypatch.setattr("flexnn.ort.account.os.getpid", lambda: -8)
    with pytest.raises(ValueError, match="lots"):
        account()
