"""A session under random sequences of calls: whatever comes before, outputs are right, budgets kept, errors clear."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import flexnn
from tests.support.sessions import feed, smallest, write_model

FACTORS = st.sampled_from([1.0, 1.05, 1.5, 3.0, 20.0])
"""Budgets as multiples of the smallest one."""


class _Shared:
    """The artifact that all runs of the machine use, its smallest budget, an input and the outputs for it."""

    folder = tempfile.TemporaryDirectory()
    artifact = ""
    minimum = 0
    x: dict[str, Any]
    expected: np.ndarray[Any, Any]

    @classmethod
    def make(cls) -> None:
        if cls.artifact:
            return
        root = Path(cls.folder.name)
        cls.artifact = str(flexnn.compile(write_model(root / "model.onnx"), root / "model.flexnn"))
        cls.minimum = smallest(Path(cls.artifact), threads=1)
        cls.x = feed()
        with flexnn.Session(cls.artifact, threads=1) as session:
            (cls.expected,) = session.run(None, cls.x)


def budget(factor: float | None) -> int | None:
    """Return a multiple of the smallest budget of one thread, plus 1 MiB for more threads and for direct I/O."""
    return None if factor is None else int(_Shared.minimum * factor) + (1 << 20)


class SessionMachine(RuleBasedStateMachine):
    """Open, run, change the budget, ask for what cannot be had, close; the model beside it is the budget alone."""

    def __init__(self) -> None:
        super().__init__()
        self.session: flexnn.Session | None = None
        self.memory: int | None = None
        self.ran = False

    @initialize()
    def prepare(self) -> None:
        _Shared.make()

    @precondition(lambda self: self.session is None)
    @rule(factor=st.none() | FACTORS, threads=st.integers(1, 3), io=st.sampled_from(["buffered", "direct"]))
    def open(self, factor: float | None, threads: int, io: str) -> None:
        self.memory = budget(factor)
        self.session = flexnn.Session(_Shared.artifact, memory=self.memory, threads=threads, io=io)
        self.ran = False

    @precondition(lambda self: self.session is None)
    @rule(part=st.floats(0.01, 0.9))
    def open_with_too_little(self, part: float) -> None:
        with pytest.raises(flexnn.BudgetError) as caught:
            flexnn.Session(_Shared.artifact, memory=int(_Shared.minimum * part), threads=1)
        assert caught.value.minimum > _Shared.minimum * part

    @precondition(lambda self: self.session is not None)
    @rule(names=st.sampled_from([None, ["y"], ["y", "y"], []]))
    def run(self, names: list[str] | None) -> None:
        outputs = self.session.run(names, _Shared.x)
        assert len(outputs) == (1 if names is None else len(names))
        for y in outputs:
            np.testing.assert_allclose(y, _Shared.expected, rtol=1e-4, atol=1e-4 * float(abs(_Shared.expected).max()))
        self.ran = True

    @precondition(lambda self: self.session is not None)
    @rule(factor=st.none() | FACTORS)
    def rebudget(self, factor: float | None) -> None:
        self.session.memory = self.memory = budget(factor)

    @precondition(lambda self: self.session is not None)
    @rule(memory=st.sampled_from([1, "1KiB", 4096]))
    def rebudget_with_too_little(self, memory: int | str) -> None:
        with pytest.raises(flexnn.BudgetError):
            self.session.memory = memory

    @precondition(lambda self: self.session is not None)
    @rule(wrong=st.sampled_from([{}, {"y": 0}, {"x": np.zeros((1, 2), np.float32)}, {"x": "text"}]))
    def run_with_wrong_inputs(self, wrong: dict[str, Any]) -> None:
        with pytest.raises((ValueError, TypeError)):
            self.session.run(None, wrong)

    @precondition(lambda self: self.session is not None)
    @rule()
    def run_for_an_unknown_output(self) -> None:
        with pytest.raises(ValueError, match="no output"):
            self.session.run(["nothing"], _Shared.x)

    @precondition(lambda self: self.session is not None)
    @rule()
    def close(self) -> None:
        self.session.close()
        self.session.close()
        with pytest.raises(flexnn.SessionError):
            self.session.run(None, _Shared.x)
        self.session = None

    @invariant()
    def budget_is_kept(self) -> None:
        if self.session is not None:
            assert self.session.memory == self.memory
            assert self.session.plan.memory == self.memory
            if self.memory is not None:
                assert self.session.session_bytes <= self.memory
            if self.ran:
                assert self.session.last_run["run_ns"] > 0

    def teardown(self) -> None:
        if self.session is not None:
            self.session.close()


SessionMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSessionMachine = SessionMachine.TestCase
