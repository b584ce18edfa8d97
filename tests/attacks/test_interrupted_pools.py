"""Attack: at random moments of all that a pool does, a signal handler raises, closes a session, runs one, opens one or
changes the budget; meanwhile another thread runs.

Answer: calls end or raise SessionError, no run has a wrong number, budgets are kept, and nothing is left at the end.
FLEXNN_MOMENTS: calls that may be interrupted (150).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.pool import open_pool_for_tests
from flexnn.run.pooled_open import PooledOpenRun
from flexnn.run.sharing import SharedArena
from tests.support.descriptors import descriptors
from tests.support.hangs import wait_until
from tests.support.sessions import write_branched_model

MOMENTS = int(os.environ.get("FLEXNN_MOMENTS", "150"))
FIRST_S = 0.03
"""Time within which a kind of call is interrupted before it is known how long one takes."""
BATCHES = {"closed": (1,), "open": (1, 2, 3)}
MAY = (flexnn.SessionError, flexnn.BudgetError)


class Stop(Exception):  # noqa: N818 (no error)
    """Raised by a signal handler, as KeyboardInterrupt is by Ctrl-C."""


def feed(batch: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(batch).standard_normal((batch, 128, 8, 8), np.float32)}


class Attack:
    """A pool, its sessions, and what interrupts them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng, self.seed = random.Random(seed), seed
        self.paths = {
            "closed": flexnn.compile(write_branched_model(folder / "closed.onnx", 4)),
            "open": flexnn.compile(write_branched_model(folder / "open.onnx", 3, batch="n")),
        }
        self.expected: dict[tuple[str, int], np.ndarray] = {}
        for name, path in self.paths.items():
            with flexnn.Session(path, threads=1, profile="analytic") as session:
                for batch in BATCHES[name]:
                    self.expected[name, batch] = session.run(None, feed(batch))[0]
        self.pool = open_pool_for_tests(None, 2, poison=True)
        self.sessions: list[tuple[str, flexnn.Session]] = []
        self.wrong: list[str] = []
        self.open()
        self.open()
        least = self.pool.minimum_memory + (1 << 20)
        self.budgets = [None, 2 * least, 3 * least]
        self.interrupts, self.is_acting = 0, False
        self.took: dict[str, float] = {}
        """Seconds that the last call of each kind took which nothing interrupted."""

    def open(self) -> None:
        name = self.rng.choice(list(self.paths))
        self.sessions.append((name, self.pool.open(self.paths[name])))

    def run(self, one: tuple[str, flexnn.Session] | None = None) -> None:
        chosen = one or self.chosen()
        if chosen is None:
            return
        name, session = chosen
        batch = self.rng.choice(BATCHES[name])
        (y,) = session.run(None, feed(batch))
        expected = self.expected[name, batch]
        if not np.abs(y - expected).max() <= 1e-3 * np.abs(expected).max():
            self.wrong.append(f"{name}, batch {batch}")

    def chosen(self) -> tuple[str, flexnn.Session] | None:
        """Return one of the sessions; None where all are closed. A handler may close some meanwhile."""
        some = list(self.sessions)
        return self.rng.choice(some) if some else None

    def close(self) -> None:
        one = self.chosen() if len(self.sessions) > 1 else None
        if one is not None:
            with contextlib.suppress(ValueError):  # the handler closed it
                self.sessions.remove(one)
            one[1].close()

    def change(self) -> None:
        self.pool.memory = self.rng.choice(self.budgets)

    def look(self) -> None:
        memory = self.pool.memory
        taken = self.pool.session_bytes
        if memory is not None and self.pool.memory == memory:  # a handler may have changed it meanwhile
            assert taken <= memory

    def stop(self) -> None:
        raise Stop

    def handler(self, *_: object) -> None:
        if not self.is_acting:  # it comes when the call has ended
            return
        self.interrupts += 1
        with contextlib.suppress(*MAY):
            self.rng.choice([self.stop, self.stop, self.close, self.run, self.open, self.change, self.look])()

    def step(self) -> None:
        """Do something, which a signal handler may interrupt."""
        act: Callable[[], None] = self.rng.choice([self.run, self.run, self.open, self.close, self.change, self.look])
        if len(self.sessions) > 4:
            act = self.close
        within_s = 1.2 * self.took.get(act.__name__, FIRST_S)
        before, begun = self.interrupts, time.monotonic()
        try:
            self.is_acting = True
            signal.setitimer(signal.ITIMER_REAL, max(self.rng.random() * within_s, 1e-6))
            with contextlib.suppress(*MAY):
                act()
            self.is_acting = False
        except Stop:
            self.is_acting = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.interrupts == before:
            self.took[act.__name__] = time.monotonic() - begun

    def judge(self) -> None:
        """Check what holds after each step, where nothing interrupts."""
        memory, told = self.pool.memory, self.pool.statistics()
        assert memory in self.budgets
        if memory is not None:
            assert self.pool.session_bytes <= memory
            assert told["engine_bytes"] <= memory
        assert told["sessions"] >= len(self.sessions)
        assert not self.wrong, self.wrong


def state() -> list[int]:
    """Return the numbers of descriptors and of threads."""
    return [len(descriptors()), len(os.listdir("/proc/self/task"))]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a thread"])
def test_random_moments(tmp_path: Path, beside: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    Attack(tmp_path, seed).pool.close()  # what sessions leave is there
    before = state()
    attack = Attack(tmp_path, seed)
    own, is_over = attack.sessions[0], threading.Event()

    def run() -> None:
        while not is_over.is_set():
            with contextlib.suppress(*MAY):
                attack.run(own)

    other = threading.Thread(target=run)
    if beside:
        attack.sessions.remove(own)
        other.start()
    handler = signal.signal(signal.SIGALRM, attack.handler)
    try:
        for _ in range(MOMENTS):
            attack.step()
            attack.judge()
    finally:
        signal.signal(signal.SIGALRM, handler)
        is_over.set()
        if beside:
            other.join()
    assert attack.interrupts > MOMENTS // 10
    attack.pool.memory = None
    for one in attack.sessions:
        attack.run(one)
    attack.judge()
    attack.pool.close()
    attack.sessions.clear()
    wait_until(lambda: state() == before)


@pytest.mark.parametrize("when", ["counting", "joining", "having joined"])
def test_an_opening_that_is_broken_off_is_in_nobodys_way(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session without a limit binds programs while it opens. The error holds it here, as garbage would."""
    path = flexnn.compile(write_branched_model(tmp_path / "open.onnx", 3, batch="n"))

    def broken(*_: object, **__: object) -> None:
        raise Stop

    with open_pool_for_tests(None, 2, poison=True) as pool:
        first, second = pool.open(path), pool.open(path)
        expected = [second.run(None, feed(batch))[0] for batch in BATCHES["open"]]
        place = {
            "counting": (PooledOpenRun, "_count"),
            "joining": (SharedArena, "join"),
            "having joined": (SharedArena, "_prepare"),
        }[when]
        with monkeypatch.context() as patched:
            patched.setattr(*place, broken)
            with pytest.raises(Stop) as error:
                pool.open(path)
        first.close()  # the others move to its place
        for session in (second, pool.open(path)):
            for batch in reversed(BATCHES["open"]):
                (y,) = session.run(None, feed(batch))
                np.testing.assert_array_equal(y, expected[batch - 1])
        assert pool.statistics()["sessions"] == 2
        del error


def test_a_recording_whose_closing_is_broken_off_is_made_again(tmp_path: Path) -> None:
    """A handler that raised when it was closed left it in place, and the next run ended in ValueError."""
    path = flexnn.compile(write_branched_model(tmp_path / "open.onnx", 3, batch="n"))

    class Raising:
        def __init__(self, recording: object) -> None:
            self._recording = recording

        def __getattr__(self, name: str) -> object:
            return getattr(self._recording, name)

        def close(self) -> None:
            self._recording.close()  # type: ignore[attr-defined]
            raise Stop

    with open_pool_for_tests(None, 2, poison=True) as pool:
        session = pool.open(path)
        expected = session.run(None, feed(2))[0]
        stretches = session._run._open  # type: ignore[attr-defined]
        (found,) = stretches.usual
        found.recording = Raising(found.recording)
        with pytest.raises(Stop):
            session._run.unbind()  # type: ignore[attr-defined]
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, feed(2))[0], expected)


def test_a_refused_run_leaves_a_pool_within_its_budget(tmp_path: Path) -> None:
    """Inputs, values and records of the refused run were counted until the session's next one."""
    path = flexnn.compile(write_branched_model(tmp_path / "open.onnx", 3, batch="n"))
    with open_pool_for_tests(None, 2, poison=True) as pool:
        sessions = [pool.open(path) for _ in range(3)]
        for session in sessions:
            session.run(None, feed(1))
        pool.memory = pool.minimum_memory + (1 << 18)
        for batch in (2, 16, 3, 64):
            with contextlib.suppress(flexnn.BudgetError):
                sessions[batch % 3].run(None, feed(batch))
            assert pool.session_bytes <= pool.memory, batch
        with pytest.raises(flexnn.BudgetError):
            sessions[0].run(None, feed(64))
        assert pool.session_bytes <= pool.memory
