"""Sessions under random sequences of calls: whatever comes before, outputs are right, budgets kept, errors clear.

One model has fixed shapes, one open ones, and one spills activations. Calls come from threads, too, storage fails, and
sessions are pickled.
"""

from __future__ import annotations

import os
import pickle
import resource
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import flexnn
from bench.models.segmentation import build
from tests.support.sessions import smallest, write_branched_model, write_model

FACTORS = st.sampled_from([1.0, 1.05, 1.5, 3.0, 20.0])
"""Budgets as multiples of the smallest one."""
BATCHES = (1, 2, 3)
Batches = st.sampled_from(BATCHES)


class Subject:
    """An artifact that all runs of a machine use, its smallest budget, inputs and the outputs for them, by batch."""

    def __init__(self, kind: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        self.options: dict[str, Any] = {"spill": str(root)} if kind == "spill" else {}
        self.artifact = str(flexnn.compile(self._write(kind, root), root / "model.flexnn"))
        self.batches = BATCHES if kind == "open" else BATCHES[:1]
        self.spare = (512 << 10) if kind == "spill" else (2 << 20)
        """Room for more threads and for direct I/O."""
        self.written = 0
        """Bytes that runs have spilled."""
        rng = np.random.default_rng(0)
        self.expected: dict[int, np.ndarray[Any, Any]] = {}
        self.minimum = 0
        with flexnn.Session(self.artifact, threads=1) as session:
            (port,), (made,) = session.get_inputs(), session.get_outputs()
            self.input, self.output = port.name, made.name
            shape = port.shape[1:]
            self.feeds = {n: {self.input: rng.standard_normal((n, *shape), np.float32)} for n in self.batches}
            for n, x in self.feeds.items():
                (self.expected[n],) = session.run(None, x)
                self.minimum = max(self.minimum, session.plan.minimum_memory)
        if kind == "closed":
            self.minimum = smallest(Path(self.artifact), threads=1)
        if kind == "spill":
            self.minimum = flexnn.plan(self.artifact, threads=1, **self.options).minimum_memory

    @staticmethod
    def _write(kind: str, root: Path) -> Path:
        if kind == "spill":
            return Path(build("unet", root, size=256, base=8))
        path = root / "model.onnx"
        return write_model(path) if kind == "closed" else write_branched_model(path, 24, batch="n")

    def opened(self, memory: int | None, threads: int = 1, **options: Any) -> flexnn.Session:
        """Open a session."""
        return flexnn.Session(self.artifact, memory=memory, threads=threads, **options, **self.options)

    def check(self, batch: int, y: np.ndarray[Any, Any]) -> None:
        expected = self.expected[batch]
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * float(abs(expected).max()))

    def budget(self, factor: float | None) -> int | None:
        """Return a multiple of the smallest budget of one thread, plus what is spare."""
        return None if factor is None else int(self.minimum * factor) + self.spare


class SessionMachine(RuleBasedStateMachine):
    """Open, run, change the budget, ask for what cannot be had, fail, close; the model beside it is the budget."""

    kind = "closed"
    subjects: ClassVar[dict[str, Subject]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.session: flexnn.Session | None = None
        self.memory: int | None = None
        self.ran = False

    @initialize()
    def prepare(self) -> None:
        if self.kind not in self.subjects:
            self.subjects[self.kind] = Subject(self.kind)
        self.subject = self.subjects[self.kind]

    @precondition(lambda self: self.session is None)
    @rule(factor=st.none() | FACTORS, threads=st.integers(1, 3), io=st.sampled_from(["buffered", "direct"]))
    def open(self, factor: float | None, threads: int, io: str) -> None:
        self.memory = self.subject.budget(factor)
        self.session = self.subject.opened(self.memory, threads, io=io)
        self.ran = False

    @precondition(lambda self: self.session is None)
    @rule(part=st.floats(0.01, 0.9))
    def open_with_too_little(self, part: float) -> None:
        """The smallest budget of open shapes is known when they come, and some at hand need less than others."""
        memory = int(self.subject.minimum * part)
        try:
            with self.subject.opened(memory) as session:
                session.run(None, self.subject.feeds[self.subject.batches[-1]])
                assert self.kind == "open"
                assert session.session_bytes <= memory
        except flexnn.BudgetError as error:
            assert error.minimum > memory

    @precondition(lambda self: self.session is not None)
    @rule(count=st.sampled_from([None, 1, 2, 0]), batch=Batches)
    def run(self, count: int | None, batch: int) -> None:
        batch = min(batch, self.subject.batches[-1])
        names = None if count is None else [self.subject.output] * count
        outputs = self.session.run(names, self.subject.feeds[batch])
        assert len(outputs) == (1 if count is None else count)
        self.subject.written += self.session.last_run.get("bytes_written", 0)
        for y in outputs:
            self.subject.check(batch, y)
        self.ran = True

    @precondition(lambda self: self.session is not None)
    @rule(batches=st.lists(Batches, min_size=2, max_size=4), factor=st.none() | FACTORS)
    def run_in_threads(self, batches: list[int], factor: float | None) -> None:
        """Runs take turns, and a new budget takes its turn among them."""
        found: list[tuple[int, Any]] = []

        def run(batch: int) -> None:
            try:
                found.append((batch, self.session.run(None, self.subject.feeds[batch])[0]))
            except Exception as error:
                found.append((batch, error))

        batches = [min(batch, self.subject.batches[-1]) for batch in batches]
        threads = [threading.Thread(target=run, args=(batch,)) for batch in batches]
        for thread in threads:
            thread.start()
        self.rebudget(factor)
        for thread in threads:
            thread.join()
        assert len(found) == len(batches)
        for batch, y in found:
            assert isinstance(y, np.ndarray), y
            self.subject.check(batch, y)
        self.ran = True

    @precondition(lambda self: self.session is not None)
    @rule(factor=st.none() | FACTORS)
    def rebudget(self, factor: float | None) -> None:
        self.session.memory = self.memory = self.subject.budget(factor)

    @precondition(lambda self: self.session is not None and (self.kind != "open" or self.ran))
    @rule(memory=st.sampled_from([1, "1KiB", 4096]))
    def rebudget_with_too_little(self, memory: int | str) -> None:
        if self.kind != "open":
            with pytest.raises(flexnn.BudgetError):
                self.session.memory = memory
            return
        before = self.memory  # a model of open shapes needs nothing until it runs
        try:
            self.session.memory = memory
        except flexnn.BudgetError:
            assert self.session.memory == before
            return
        with pytest.raises(flexnn.BudgetError):
            self.session.run(None, self.subject.feeds[1])
        self.session.memory = before

    @precondition(lambda self: self.session is not None)
    @rule(batch=Batches, factor=st.none() | FACTORS, changes=st.booleans())
    def storage_fails(self, batch: int, factor: float | None, changes: bool) -> None:
        """Every weight is damaged for a while: what needs one says so, and the old budget stays; then all is well."""
        batch = min(batch, self.subject.batches[-1])
        path = Path(self.subject.artifact)
        whole = path.read_bytes()
        with open(path, "r+b", buffering=0) as file:
            half = len(whole) // 2
            file.seek(half)
            file.write(bytes(len(whole) - half))
            try:
                if changes:
                    self.session.memory = self.subject.budget(factor)
                    self.memory = self.subject.budget(factor)
                (y,) = self.session.run(None, self.subject.feeds[batch])
                self.subject.check(batch, y)
            except (flexnn.SessionError, flexnn.ArtifactError, flexnn.GraphError) as error:
                assert str(error)
            finally:
                file.seek(half)
                file.write(whole[half:])
        assert os.path.getsize(path) == len(whole)
        self.run(None, batch)

    @precondition(lambda self: self.session is not None)
    @rule()
    def pickle(self) -> None:
        assert self.session is not None
        (expected,) = self.session.run(None, self.subject.feeds[1])
        with pickle.loads(pickle.dumps(self.session)) as other:
            assert (other.memory, other.threads) == (self.session.memory, self.session.threads)
            (y,) = other.run(None, self.subject.feeds[1], out=[np.empty_like(expected)])
            self.subject.check(1, y)
        ports = pickle.loads(pickle.dumps(self.session.get_inputs() + self.session.get_outputs()))
        assert ports == self.session.get_inputs() + self.session.get_outputs()

    @precondition(lambda self: self.session is not None)
    @rule(wrong=st.sampled_from([{}, {"nothing": 0}, np.zeros((1, 2), np.float32), "text"]))
    def run_with_wrong_inputs(self, wrong: Any) -> None:
        with pytest.raises((ValueError, TypeError)):
            self.session.run(None, wrong if isinstance(wrong, dict) else {self.subject.input: wrong})

    @precondition(lambda self: self.session is not None)
    @rule()
    def run_for_an_unknown_output(self) -> None:
        with pytest.raises(ValueError, match="no output"):
            self.session.run(["nothing"], self.subject.feeds[1])

    @precondition(lambda self: self.session is not None)
    @rule()
    def close(self) -> None:
        self.session.close()
        self.session.close()
        with pytest.raises(flexnn.SessionError):
            self.session.run(None, self.subject.feeds[1])
        self.session = None

    @invariant()
    def budget_is_kept(self) -> None:
        if self.session is not None:
            assert self.session.memory == self.memory
            if self.kind != "open" or self.ran:
                assert self.session.plan.memory == self.memory or self.kind == "open"
            if self.memory is not None:
                assert self.session.session_bytes <= self.memory
            if self.ran:
                assert self.session.last_run["run_ns"] > 0

    def teardown(self) -> None:
        if self.session is not None:
            self.session.close()


class SpillMachine(SessionMachine):
    """The same of a model whose activations are spilled in small budgets, on a device that may be full."""

    kind = "spill"

    @precondition(lambda self: self.session is not None)
    @rule(nbytes=st.sampled_from([0, 1, 5000, 70_000]))
    def device_is_full(self, nbytes: int) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
        try:
            (y,) = self.session.run(None, self.subject.feeds[1])
            self.subject.check(1, y)
        except flexnn.SessionError as error:
            assert "the spill file" in str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.run(None, 1)


class OpenMachine(SessionMachine):
    """The same of a model of open shapes, whose batch changes."""

    kind = "open"


CHOSEN = settings(max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
SessionMachine.TestCase.settings = CHOSEN
OpenMachine.TestCase.settings = settings(CHOSEN, max_examples=15)
SpillMachine.TestCase.settings = settings(CHOSEN, max_examples=10)
TestSessionMachine = SessionMachine.TestCase
TestOpenMachine = OpenMachine.TestCase
TestSpillMachine = SpillMachine.TestCase


def test_runs_have_spilled() -> None:
    """After the machine, where it ran."""
    subject = SpillMachine.subjects.get("spill")
    assert subject is None or subject.written
