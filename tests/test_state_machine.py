"""Sessions with state under random sequences of calls: tokens are never lost or mixed, logits are those of all tokens
so far, budgets are kept, errors are clear.

Tokens come from one fixed text, so a state is a number of its first tokens. Storage fails, files of states are damaged,
and budgets change while another thread runs.
"""

from __future__ import annotations

import os
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
from tests.support.decoders import USUAL, write_grouped

CAPACITY = 48
FACTORS = st.none() | st.sampled_from([1.0, 1.1, 2.0, 10.0])
"""Budgets as multiples of the smallest one."""
OPENED = precondition(lambda self: self.session is not None)
HELD = precondition(lambda self: self.session is not None and self.length)


class Subject:
    """A decoder, its text, and the logits after each token of it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        self.artifact = str(flexnn.compile(write_grouped(root / "decoder.onnx"), root / "decoder.flexnn"))
        self.file = str(root / "state")
        self.ids = np.random.default_rng(4).integers(0, USUAL.vocabulary, (1, CAPACITY + 8))
        with flexnn.Session(self.artifact, threads=1, kv_capacity=CAPACITY, kv="f32", all_logits=True) as session:
            self.logits = session.run(None, self.feed(0, CAPACITY))[0][0]
        with pytest.raises(flexnn.BudgetError) as refused:
            self.opened(1, 1)
        self.minimum = refused.value.minimum

    def opened(self, memory: int | None, threads: int, io: str = "buffered") -> flexnn.Session:
        return flexnn.Session(self.artifact, memory, threads, io=io, kv_capacity=CAPACITY, kv="f32")

    def budget(self, factor: float | None) -> int | None:
        """Return a multiple of the smallest budget of one thread, plus room for more threads and for direct I/O."""
        return None if factor is None else int(self.minimum * factor) + (1 << 20)

    def feed(self, at: int, count: int) -> dict[str, Any]:
        return {"input_ids": self.ids[:, at : at + count]}

    def check(self, length: int, logits: np.ndarray[Any, Any]) -> None:
        np.testing.assert_allclose(logits[0, -1], self.logits[length - 1], rtol=1e-4, atol=1e-4)


class StateMachine(RuleBasedStateMachine):
    """Open, run, forget, save, load, change the budget, fail, close; the model beside it is a number of tokens."""

    subjects: ClassVar[list[Subject]] = []

    def __init__(self) -> None:
        super().__init__()
        self.session: flexnn.Session | None = None
        self.memory: int | None = None
        self.length = 0
        self.saved: int | None = None

    @initialize()
    def prepare(self) -> None:
        if not self.subjects:
            self.subjects.append(Subject())
        self.subject = self.subjects[0]

    @precondition(lambda self: self.session is None)
    @rule(factor=FACTORS, threads=st.integers(1, 3), io=st.sampled_from(["buffered", "direct"]))
    def open(self, factor: float | None, threads: int, io: str) -> None:
        self.memory = self.subject.budget(factor)
        self.session = self.subject.opened(self.memory, threads, io)
        self.length = 0

    @OPENED
    @rule(count=st.integers(1, 12))
    def run(self, count: int) -> None:
        feed = self.subject.feed(self.length, count)
        if self.length + count > CAPACITY:
            with pytest.raises(flexnn.FlexNNError, match="beyond the state's capacity"):
                self.session.run(None, feed)
            return
        (logits,) = self.session.run(None, feed)
        self.length += count
        self.subject.check(self.length, logits)

    @OPENED
    @rule(count=st.integers(1, 12), factor=FACTORS)
    def rebudget_beside_a_run(self, count: int, factor: float | None) -> None:
        count = min(count, CAPACITY - self.length)
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(self.session.run(None, self.subject.feed(self.length, count))[0])
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=run)
        if count:
            thread.start()
        self.rebudget(factor)
        if count:
            thread.join()
            assert isinstance(found[0], np.ndarray), found[0]
            self.length += count
            self.subject.check(self.length, found[0])

    @OPENED
    @rule(factor=FACTORS)
    def rebudget(self, factor: float | None) -> None:
        self.session.memory = self.memory = self.subject.budget(factor)

    @OPENED
    @rule(memory=st.sampled_from([1, "1KiB", 4096]))
    def rebudget_with_too_little(self, memory: int | str) -> None:
        with pytest.raises(flexnn.BudgetError):
            self.session.memory = memory

    @HELD
    @rule(part=st.floats(0, 1))
    def reset(self, part: float) -> None:
        with pytest.raises(flexnn.FlexNNError):
            self.session.reset(self.length + 1)
        self.length = int(self.length * part)
        self.session.reset(self.length)

    @OPENED
    @rule()
    def save(self) -> None:
        self.session.save_state(self.subject.file)
        self.saved = self.length

    @precondition(lambda self: self.session is not None and self.saved is not None)
    @rule()
    def load(self) -> None:
        self.session.load_state(self.subject.file)
        self.length = self.saved

    @precondition(lambda self: self.session is not None and self.saved)
    @rule(at=st.floats(0, 0.999), bit=st.integers(0, 7))
    def load_what_is_damaged(self, at: float, bit: int) -> None:
        raw = bytearray(Path(self.subject.file).read_bytes())
        raw[int(len(raw) * at)] ^= 1 << bit
        damaged = self.subject.file + ".damaged"
        Path(damaged).write_bytes(raw)
        with pytest.raises(flexnn.FlexNNError):
            self.session.load_state(damaged)

    @OPENED
    @rule(count=st.integers(1, 6), factor=FACTORS, changes=st.booleans())
    def storage_fails(self, count: int, factor: float | None, changes: bool) -> None:
        """Half of the file is damaged for a while: what needs it says so, and the old budget and all tokens stay."""
        count = min(count, CAPACITY - self.length)
        path = Path(self.subject.artifact)
        whole = path.read_bytes()
        half = len(whole) // 2
        with open(path, "r+b", buffering=0) as file:
            file.seek(half)
            file.write(bytes(len(whole) - half))
            try:
                if changes:
                    self.rebudget(factor)
                if count:
                    (logits,) = self.session.run(None, self.subject.feed(self.length, count))
                    self.length += count
                    self.subject.check(self.length, logits)
            except (flexnn.SessionError, flexnn.ArtifactError, flexnn.GraphError) as error:
                assert str(error)
                self.memory = self.session.memory
            finally:
                file.seek(half)
                file.write(whole[half:])
        assert os.path.getsize(path) == len(whole)
        self.run(1)

    @OPENED
    @rule(wrong=st.sampled_from([{}, {"input_ids": "text"}, {"input_ids": np.zeros((1, 2), np.float32)}]))
    def run_with_wrong_inputs(self, wrong: dict[str, Any]) -> None:
        with pytest.raises((ValueError, TypeError, flexnn.FlexNNError)):
            self.session.run(None, wrong)

    @OPENED
    @rule()
    def close(self) -> None:
        self.session.close()
        for call in (self.session.reset, lambda: self.session.save_state(self.subject.file)):
            with pytest.raises(flexnn.SessionError):
                call()
        self.session = None

    @invariant()
    def nothing_is_lost(self) -> None:
        if self.session is not None:
            assert self.session.state_length == self.length
            assert self.session.memory == self.memory
            if self.memory is not None:
                assert self.session.session_bytes <= self.memory

    def teardown(self) -> None:
        if self.session is not None:
            self.session.close()


StateMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStateMachine = StateMachine.TestCase
