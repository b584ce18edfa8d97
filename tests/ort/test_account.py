"""The sessions of a process share one budget: they never hold more together, and an error names what would do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flexnn
import flexnn.ort as ort
from flexnn.ort.account import Account, account
from tests.support.sessions import BRANCHED_FEED as FEED
from tests.support.sessions import branched_artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    return branched_artifact(tmp_path_factory.mktemp("m"))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    return branched_artifact(tmp_path_factory.mktemp("m"), batch="n")


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Account:
    """The account of a process with FLEXNN_MEMORY."""
    monkeypatch.setenv("FLEXNN_MEMORY", str(request.param))
    monkeypatch.setattr("flexnn.ort.account.os.getpid", lambda: -7 - request.param)
    return account()


def least(path: str) -> int:
    return flexnn.plan(path, threads=1).minimum_memory


def one_thread() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def test_three_models_share(artifact: str) -> None:
    single, most = least(artifact), flexnn.plan(artifact, threads=1).session_bytes
    assert most > single
    budget = Account(most + single // 2)
    wanted = flexnn.Session(artifact, threads=1).run(None, FEED)[0]
    sessions = [budget.open(artifact, 1) for _ in range(3)]
    assert budget.most_bytes <= budget.total
    for session in sessions:
        np.testing.assert_allclose(session.run(None, FEED)[0], wanted, 1e-5, 1e-5)
    with pytest.raises(flexnn.BudgetError, match="beside the") as error:
        for _ in range(99):
            sessions.append(budget.open(artifact, 1))
    again = Account(error.value.minimum)
    kept = [again.open(artifact, 1) for _ in range(len(sessions) + 1)]
    again.look()
    assert 0 < again.most_bytes <= error.value.minimum
    np.testing.assert_allclose(kept[-1].run(None, FEED)[0], wanted, 1e-5, 1e-5)


def test_what_is_closed_gives_back(artifact: str) -> None:
    budget = Account(flexnn.plan(artifact, threads=1).session_bytes)
    for _ in range(3):
        session = budget.open(artifact, 1)
        assert session.session_bytes == budget.total
        session.close()
    for _ in range(3):
        assert budget.open(artifact, 1).session_bytes == budget.total


@pytest.mark.parametrize("budget", [9 << 20], indirect=True)
def test_a_run_that_grows_takes_from_others(opened: str, budget: Account) -> None:
    feed = {"x": np.ones((9, 128, 8, 8), np.float32)}
    with flexnn.Session(opened, threads=1) as session:
        wanted = session.run(None, feed)[0]
        assert session.plan.minimum_memory < budget.total < 2 * session.plan.minimum_memory
    sessions = [ort.InferenceSession(opened, one_thread()) for _ in range(2)]
    for _ in range(2):
        for session in sessions:
            np.testing.assert_allclose(session.run(None, feed)[0], wanted, 1e-5, 1e-5)
            budget.look()
            assert 0 < budget.most_bytes <= budget.total
    with pytest.raises(ort.OutOfBudget) as error:
        sessions[0].run(None, {"x": np.ones((999, 128, 8, 8), np.float32)})
    assert error.value.minimum > budget.total
    np.testing.assert_allclose(sessions[0].run(None, feed)[0], wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("budget", [1 << 20], indirect=True)
def test_one_model_that_does_not_fit(artifact: str, budget: Account) -> None:
    with pytest.raises(ort.OutOfBudget) as error:
        ort.InferenceSession(artifact, one_thread())
    assert budget.total < error.value.minimum <= least(artifact)
    assert isinstance(error.value, flexnn.BudgetError)
    assert isinstance(error.value, ort.Fail)
    Account(error.value.minimum).open(artifact, 1).close()


def test_no_limit(artifact: str) -> None:
    budget = Account(None)
    session = budget.open(artifact, 1)
    assert session.memory is None
    assert budget.most_bytes <= session.session_bytes


def test_what_is_not_touched_is_not_taken(monkeypatch: pytest.MonkeyPatch, artifact: str) -> None:
    """A plan counts the whole arena; the process grew by less."""
    found = iter([(100 << 20, 130 << 20), (0, (100 << 20) + 4096)])
    monkeypatch.setattr("flexnn.ort.account.resident", lambda: next(found))
    budget = Account(None)
    with budget.open(artifact, 1) as session:
        assert budget.most_bytes == 4096 < session.session_bytes


def test_a_wrong_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEXNN_MEMORY", "lots")
    monkeypatch.setattr("flexnn.ort.account.os.getpid", lambda: -8)
    with pytest.raises(ValueError, match="lots"):
        account()
