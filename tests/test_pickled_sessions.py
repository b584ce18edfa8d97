"""Pickles of sessions open them again: path, options and budget, and nothing that a pickle could not say before."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from tests.support.sessions import feed, write_branched_model, write_model


class Named(flexnn.Session):
    """A derived class with attributes, and arguments of its own."""

    def __init__(self, path: str, name: str, **options: Any) -> None:
        super().__init__(path, **options)
        self.name = name


@pytest.fixture(scope="module", params=["closed", "open"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("m") / "m.onnx"
    return flexnn.compile(write_model(path) if request.param == "closed" else write_branched_model(path, 6, batch="n"))


def test_options_and_the_budget_are_kept(artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(artifact).parent)
    with flexnn.Session(Path(artifact).name, "64MiB", 1, reuse_outputs=True, deterministic=True) as session:
        (expected,) = session.run(None, feed())
        session.memory = "32MiB"
        monkeypatch.chdir(tmp_path)  # a relative path is of the folder of then
        for duplicate in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
            with duplicate(session) as other:
                assert (other.memory, other.threads) == (32 << 20, 1)
                (y,) = other.run(None, feed())
                np.testing.assert_array_equal(y, expected)
                assert np.shares_memory(y, other.run(None, feed())[0])
        np.testing.assert_array_equal(session.run(None, feed())[0], expected)


def test_shapes_are_kept(tmp_path: Path) -> None:
    path = write_branched_model(tmp_path / "m.onnx", 2, batch="n")
    with flexnn.Session(path, shapes={"x": (2, 128, 8, 8)}) as session, pickle.loads(pickle.dumps(session)) as other:
        assert other.get_inputs() == session.get_inputs()


def test_derived_classes(artifact: str) -> None:
    with Named(artifact, "a name", threads=1) as session, pickle.loads(pickle.dumps(session)) as other:
        assert (type(other), other.name) == (Named, "a name")
        np.testing.assert_array_equal(other.run(None, feed())[0], session.run(None, feed())[0])


def outputs(session: flexnn.Session) -> Any:
    return session.run(None, feed())[0], os.getpid()


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_worker_processes(artifact: str, method: str) -> None:
    with flexnn.Session(artifact, threads=1) as session:
        expected, pid = outputs(session)
        with multiprocessing.get_context(method).Pool(1) as pool:
            y, other = pool.apply(outputs, (session,))
    assert other != pid
    np.testing.assert_array_equal(y, expected)


def test_a_pickle_names_what_opens_it_and_plain_values(artifact: str) -> None:
    """One function and a class are loaded; the rest are options, which are checked as a caller's."""
    with flexnn.Session(artifact, threads=1) as session:
        raw = pickle.dumps(session, protocol=2)
        kind, arguments, _ = session.__reduce__()
    names = {argument for op, argument, _ in pickletools.genops(raw) if op.name == "GLOBAL"}
    assert names == {"flexnn.session _opened_again", "flexnn.session Session"}
    for wrong in ({"io": "telepathy"}, {"threads": 0}, {"memory": "lots"}):
        with pytest.raises(ValueError, match=r"telepathy|threads|lots"):
            kind(*arguments[:2], arguments[2] | wrong)


def test_a_file_that_is_gone_and_a_closed_session(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_model(tmp_path / "m.onnx"))
    with flexnn.Session(artifact) as session:
        raw = pickle.dumps(session)
    with pytest.raises(flexnn.SessionError, match="closed"):
        pickle.dumps(session)
    os.unlink(artifact)
    with pytest.raises(FileNotFoundError):
        pickle.loads(raw)
