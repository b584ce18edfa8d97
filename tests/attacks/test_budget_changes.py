"""Attack: storage fails while the budget of a session changes.

Answer: the session keeps the old budget; a run says what cannot be read, never "closed", and is right again once the
storage is.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn import _core
from flexnn.session import open_for_tests
from tests.support.sessions import feed, smallest, write_branched_model, write_model


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_model(tmp_path_factory.mktemp("closed") / "small.onnx")))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_branched_model(tmp_path_factory.mktemp("open") / "open.onnx", 24, batch="n")))


def damage(path: Path) -> bytes:
    """Overwrite the weights; return what the file held."""
    raw = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(raw) // 4)
        file.write(bytes(len(raw) - len(raw) // 4))
    return raw


def repair(path: Path, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.write(raw)


CHANGES = list(itertools.permutations(("low", "middle", "none"), 2))


@pytest.mark.parametrize(("old", "new"), CHANGES)
@pytest.mark.parametrize("kind", ["closed", "opened"])
def test_damaged_while_the_budget_changes(request: pytest.FixtureRequest, kind: str, old: str, new: str) -> None:
    """Every later run said that the session was closed."""
    artifact: Path = request.getfixturevalue(kind)
    with flexnn.Session(artifact, threads=2) as session:
        expected = session.run(None, feed())[0]
        least = smallest(artifact) if kind == "closed" else session.plan.minimum_memory + (64 << 10)
    budgets = {"low": least, "middle": least + (1 << 20), "none": None}
    with open_for_tests(artifact, memory=budgets[old], threads=2, poison=True) as session:
        session.run(None, feed())
        raw = damage(artifact)
        try:
            failed = False
            try:
                session.memory = budgets[new]
            except flexnn.SessionError as error:
                failed = True
                assert "weight" in str(error)
            assert session.memory == budgets[old if failed else new]
            for _ in range(2):
                try:
                    y = session.run(None, feed())[0]
                except flexnn.SessionError as error:
                    assert "weight" in str(error)
                else:
                    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
        finally:
            repair(artifact, raw)
        y = session.run(None, feed())[0]
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
        assert session.memory == session.plan.memory == budgets[old if failed else new]


def test_neither_the_new_nor_the_old_can_be_bound(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was closed for ever."""
    with flexnn.Session(closed, memory=smallest(closed), threads=2) as session:
        expected = session.run(None, feed())[0]
        arena = session.statistics()["engine_bytes"]

        def fails(*_: object, **__: object) -> None:
            raise _core.EngineError("cannot read", "io")

        with monkeypatch.context() as patch:
            patch.setattr(_core, "BoundProgram", fails)
            for _ in range(2):
                with pytest.raises(flexnn.SessionError, match="cannot read"):
                    session.memory = None
                with pytest.raises(flexnn.SessionError, match="cannot read"):
                    session.run(None, feed())
                assert session.statistics()["engine_bytes"] < arena
                assert session.memory == smallest(closed)
        np.testing.assert_array_equal(session.run(None, feed())[0], expected)
        session.memory = None
        assert session.plan.memory is None
