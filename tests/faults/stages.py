"""Stages of the life of a session, one that spills, one with state, and of a pool of two, in which test_faults.py lets
calls fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import flexnn
from flexnn import Pool, files
from flexnn.measure import cache
from flexnn.planning import MachineProfile
from tests.support.decoders import USUAL
from tests.support.sessions import feed

THREADS = 2
AUTO, COMPILING = "auto:1MiB", "1GiB"
"""Budgets: one that follows the system, and one of compiling."""
KEY = "1 0123456789abcdef0123 rest of the key"
KEPT = [cache.Kept(MachineProfile(1e11, 1e10), arena_bytes) for arena_bytes in (1, 2)]


class Stage(NamedTuple):
    """Something that may fail, and works again afterwards."""

    act: Callable[[], Any]
    is_change: bool = False
    """Whether it changes the subject's budget; if it raises, the old one stays."""
    judge: Callable[[bool], None] | None = None
    """Checks what is left, when it is known whether it raised."""


class _Budgeted:
    """A session or a pool, and a budget in which its weights stream."""

    model: Path
    artifact: Path
    stages: dict[str, Stage]
    _x: Any
    _budgeted: flexnn.Session | Pool
    least: int
    sessions: list[flexnn.Session]
    """Those that stay open."""

    @property
    def memory(self) -> int | None:
        """The budget."""
        return self._budgeted.memory

    def outputs(self) -> list[Any]:
        """Return the output of each session."""
        return [session.run(None, self._x)[0] for session in self.sessions]

    def close(self) -> None:
        self._budgeted.close()

    def _set(self, memory: int | str | None) -> None:
        self._budgeted.memory = memory

    def _change(self) -> None:
        self._set(None if self.memory else self.least)

    def _judge_auto(self, _: bool) -> None:
        self.outputs()
        self._set(self.least)


class SessionSubject(_Budgeted):
    """A session in a budget in which its weights stream."""

    def __init__(self, model: Path, least: int) -> None:
        self.model, self.artifact, self.least, self._x = model, model.with_suffix(".flexnn"), least, feed()
        self._budgeted = session = self._opened(least)
        self.sessions = [session]
        self.stages = {
            "compile": Stage(lambda: flexnn.compile(model, self.artifact)),
            "compile --memory": Stage(lambda: flexnn.compile(model, self.artifact, memory=COMPILING)),
            "open": Stage(lambda: self._runs_with(least)),
            "open, auto": Stage(lambda: self._runs_with(AUTO)),
            "run": Stage(lambda: self.outputs()),
            "memory, less or more": Stage(self._change, is_change=True),
            "memory, more or less": Stage(self._change, is_change=True),
            "memory, auto": Stage(lambda: self._set(AUTO), is_change=True, judge=self._judge_auto),
            "close": Stage(lambda: self._opened(least).close()),
            "cache": Stage(self._keep, judge=self._judge_kept),
        }

    def _opened(self, memory: int | str | None) -> flexnn.Session:
        return flexnn.Session(self.artifact, memory=memory, threads=THREADS)

    def _runs_with(self, memory: int | str) -> None:
        with self._opened(memory) as session:
            assert session.threads in (1, THREADS)
            session.run(None, self._x)

    @staticmethod
    def _keep() -> None:
        """A profile goes into the cache, or what was there stays."""
        cache.store(KEY, KEPT[0])
        KEPT.reverse()

    def _judge_kept(self, has_raised: bool) -> None:
        assert not has_raised
        assert cache.load(KEY) in KEPT
        self._keep()
        assert cache.load(KEY) == KEPT[1]
        assert len(os.listdir(files.cache_folder())) == 1, "left behind"


class SpillSubject(_Budgeted):
    """A session that spills activations, in its smallest budget."""

    def __init__(self, model: Path, least: int) -> None:
        self.model, self.artifact, self.least = model, model.with_suffix(".flexnn"), least
        with self._opened(None) as session:
            (port,) = session.get_inputs()
            self._x = {port.name: np.random.default_rng(3).standard_normal(port.shape, np.float32)}
        self._budgeted = session = self._opened(least)
        self.sessions = [session]
        self.stages = {
            "open": Stage(self._runs),
            "run": Stage(lambda: self.outputs()),
            "memory, less or more": Stage(self._change, is_change=True),
            "memory, more or less": Stage(self._change, is_change=True),
            "close": Stage(lambda: self._opened(least).close()),
        }

    def _opened(self, memory: int | None) -> flexnn.Session:
        return flexnn.Session(self.artifact, memory=memory, threads=THREADS, spill=self.model.parent)

    def _runs(self) -> None:
        with self._opened(self.least) as session:
            session.run(None, self._x)
            assert session.last_run["bytes_written"]


class StateSubject(_Budgeted):
    """A session with state in a budget in which its weights stream. It holds tokens that no fault may lose."""

    def __init__(self, model: Path, least: int) -> None:
        self.model, self.artifact, self.least = model, model.with_suffix(".flexnn"), least
        ids = np.random.default_rng(1).integers(0, USUAL.vocabulary, (1, 60))
        self._first, self._x = {"input_ids": ids[:, :50]}, {"input_ids": ids[:, 50:]}
        self._budgeted = self._session = self._opened(least)
        self._session.run(None, self._first)
        self.sessions = [self._session]
        self._file = str(model.parent / "state")
        self._save()
        self.stages = {
            "open": Stage(self._runs),
            "run": Stage(lambda: self.outputs()),
            "memory, less or more": Stage(self._change, is_change=True),
            "memory, more or less": Stage(self._change, is_change=True),
            "memory, auto": Stage(lambda: self._set(AUTO), is_change=True, judge=self._judge_auto),
            "save": Stage(self._save, judge=lambda _: self._load()),
            "load": Stage(self._load, judge=self._judge_loaded),
            "close": Stage(lambda: self._opened(least).close()),
        }

    def _opened(self, memory: int | None) -> flexnn.Session:
        return flexnn.Session(self.artifact, memory=memory, threads=THREADS, kv_capacity=64, kv="f32")

    def outputs(self) -> list[Any]:
        """Return the logits of the last tokens, one by one and together, and forget these."""
        before, ids = self._session.state_length, self._x["input_ids"]
        assert before == self._first["input_ids"].shape[1], "tokens are lost"
        try:
            whole = self._session.run(None, self._x)
            self._session.reset(before)
            one = [self._session.run(None, {"input_ids": ids[:, i : i + 1]}) for i in range(ids.shape[1])][-1]
        finally:
            self._session.reset(before)
        assert np.allclose(whole[0], one[0], 1e-4, 1e-4)
        return whole

    def _runs(self) -> None:
        with self._opened(self.least) as session:
            session.run(None, self._first)

    def _save(self) -> None:
        self._session.save_state(self._file)

    def _load(self) -> None:
        self._session.load_state(self._file)

    def _judge_loaded(self, has_raised: bool) -> None:
        """A fault leaves the state, or none where it came when rows were taken."""
        length = self._session.state_length
        assert length == 50 or (has_raised and not length)
        self._load()


class PoolSubject(_Budgeted):
    """A pool of two sessions, in a budget in which weights of both stream."""

    def __init__(self, model: Path, _: int) -> None:
        self.model, self.artifact, self._x = model, model.with_suffix(".flexnn"), feed()
        self._budgeted = self._pool = Pool(None, THREADS)
        self.sessions = [self._pool.open(self.artifact) for _ in range(2)]
        self.outputs()
        self.least = self._pool.minimum_memory + (64 << 10)
        self._pool.memory = self.least
        self.stages = {
            "open": Stage(self._open),
            "run": Stage(lambda: self.outputs()),
            "memory, less or more": Stage(self._change, is_change=True),
            "memory, more or less": Stage(self._change, is_change=True),
            "memory, auto": Stage(lambda: self._set(AUTO), is_change=True, judge=self._judge_auto),
            "a pool": Stage(self._opens_a_pool),
        }

    def _open(self) -> None:
        """A third session comes, which needs more, and goes."""
        before, budget = self._pool.statistics()["sessions"], self._pool.memory
        try:
            with self._pool.open(self.artifact) as session:
                session.run(None, self._x)
        except flexnn.BudgetError:
            pass
        assert (self._pool.statistics()["sessions"], self._pool.memory) == (before, budget)

    def _opens_a_pool(self) -> None:
        for memory in (None, AUTO):
            with Pool(memory, THREADS) as pool:
                pool.open(self.artifact).run(None, self._x)


SUBJECTS = {"session": SessionSubject, "pool": PoolSubject, "spill": SpillSubject, "state": StateSubject}
