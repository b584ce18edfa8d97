"""Attack: the state of a session meets files that are missing, change or are no files, and budgets that do not come.

Answer: an error that says so. The state that there was stays, unless the file fails when its rows are taken already;
then it is empty. The old budget stays with its plans, and the next run works.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.run import state_file, stateful
from flexnn.run.engine import BoundProgram
from tests.support.decoders import USUAL, write_grouped
from tests.support.elsewhere import Elsewhere, stopping
from tests.support.pairs import SMALL, write_pair

IDS = np.random.default_rng(1).integers(0, USUAL.vocabulary, (1, 60))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("decoder")
    return flexnn.compile(write_grouped(folder / "decoder.onnx"), folder / "decoder.flexnn")


def run(session: flexnn.Session, begin: int, end: int) -> np.ndarray[Any, Any]:
    return session.run(None, {"input_ids": IDS[:, begin:end]})[0]


@pytest.fixture
def session(decoder: str) -> Iterator[flexnn.Session]:
    with flexnn.Session(decoder, kv_capacity=64, kv="f32", threads=2, profile="analytic") as opened:
        run(opened, 0, 20)
        yield opened


def next_token(session: flexnn.Session) -> np.ndarray[Any, Any]:
    """Logits of one more token, which the state then forgets."""
    assert session.state_length == 20
    made = run(session, 20, 21)
    session.reset(20)
    return made


@pytest.mark.parametrize("what", ["missing", "folder", "fifo", "/dev/zero", "empty"])
def test_a_file_that_is_none_leaves_the_state(session: flexnn.Session, tmp_path: Path, what: str) -> None:
    """Was: the state was empty then, and a FIFO a hang."""
    expected, path = next_token(session), tmp_path / what.strip("/").replace("/", "-")
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "empty":
        path.touch()
    elif what == "/dev/zero":
        path = Path(what)
    with pytest.raises((OSError, flexnn.StateError)):
        session.load_state(path)
    np.testing.assert_array_equal(next_token(session), expected)


def test_rows_that_change_while_they_are_read_leave_no_state(
    session: flexnn.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was: they were taken."""
    path, read = tmp_path / "state", state_file.Checked.read
    session.save_state(path)
    good = path.read_bytes()

    def changed(self: state_file.Checked) -> int:
        path.write_bytes(good[:-8] + bytes([good[-8] ^ 1]) + good[-7:])
        return read(self)

    monkeypatch.setattr(state_file.Checked, "read", changed)
    with pytest.raises(flexnn.StateError, match="changed while it was read"):
        session.load_state(path)
    assert session.state_length == 0
    monkeypatch.undo()
    path.write_bytes(good)
    session.load_state(path)
    assert session.state_length == 20


def test_a_device_that_does_not_answer(
    session: flexnn.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C came when the device answered. The state that there was stays."""
    expected, path, work = next_token(session), tmp_path / "state", Elsewhere()
    session.save_state(path)
    with stopping(), monkeypatch.context() as patch:
        patch.setattr(os, "preadv", work.preadv)
        work.interrupts(lambda: session.load_state(path))
    np.testing.assert_array_equal(next_token(session), expected)
    session.load_state(path)
    np.testing.assert_array_equal(next_token(session), expected)


class Fails:
    """Programs that bind some times, and then fail."""

    def __init__(self, goods: int, error: BaseException, *, always: bool) -> None:
        self.left, self.error, self.always = goods, error, always

    def __call__(self, *given: Any, **options: Any) -> BoundProgram:
        self.left -= 1
        if self.left == -1 or (self.always and self.left < 0):
            raise self.error
        return BoundProgram(*given, **options)


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("error", [flexnn.SessionError("storage"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("goods", [0, 1, 2])
def test_a_budget_that_does_not_come_leaves_the_old_one(
    session: flexnn.Session, monkeypatch: pytest.MonkeyPatch, goods: int, error: BaseException, always: bool
) -> None:
    """Was: the session had no program any more, and some of the new plans under the old number."""
    before, plan, nbytes = session.memory, session.plan, session.session_bytes
    expected = next_token(session)
    monkeypatch.setattr(stateful, "BoundProgram", Fails(goods, error, always=always))
    with pytest.raises(type(error)):
        session.memory = 20 << 20
    assert (session.memory, session.session_bytes) == (before, nbytes)
    assert session.plan is plan
    monkeypatch.undo()
    np.testing.assert_allclose(next_token(session), expected, 1e-4, 1e-5)
    session.memory = 20 << 20
    np.testing.assert_allclose(next_token(session), expected, 1e-4, 1e-5)


def test_a_run_that_is_refused_takes_no_output_of_an_encoder(tmp_path: Path) -> None:
    """Was: the next run read the rows of the refused one."""
    model = write_pair(tmp_path / "m.onnx", "t5", "alone")
    random = np.random.default_rng(2)
    with flexnn.Session(flexnn.compile(model), kv_capacity=16, kv="f32", cross_capacity=32) as session:
        names = [port.name for port in session.get_inputs()]
        rows = [random.standard_normal((1, 9, SMALL.hidden), np.float32) for _ in range(2)]
        mask = {name: np.ones((1, 9), np.int64) for name in names[2:]}
        one, many = np.array([[3]], np.int64), np.full((1, 17), 3, np.int64)
        expected = session.run(None, {names[0]: one, names[1]: rows[0], **mask})[0]
        session.reset()
        with pytest.raises(flexnn.StateError, match="capacity"):
            session.run(None, {names[0]: many, names[1]: rows[1], **mask})
        np.testing.assert_array_equal(session.run(None, {names[0]: one})[0], expected)


def test_loading_takes_little_beside_the_state(tmp_path: Path) -> None:
    """Was: 1.7 MiB that no budget counts."""
    states, path = [np.zeros((2, 4, 2048, 64), np.float16) for _ in range(4)], str(tmp_path / "state")
    state_file.save(path, bytes(32), [(states, 2048)])
    tracemalloc.start()
    try:
        with state_file.checked(path, bytes(32), [states]) as found:
            assert found.read() == [2048]
        assert tracemalloc.get_traced_memory()[1] < 512 << 10
    finally:
        tracemalloc.stop()
