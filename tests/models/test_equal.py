"""Every model equals onnxruntime at every budget, with memory that the plan says is dead poisoned with NaN."""

from __future__ import annotations

import numpy as np
import pytest

import flexnn
from bench.models.catalogue import FULL
from bench.peers.runtimes import OnnxRuntime
from flexnn.session import open_for_tests
from tests.support.models import ALL, QUICK, Compiled

TOLERANCE = 1e-4
SEEDS = (1, 2, 3)


def _close(got: list[np.ndarray], expected: list[np.ndarray], where: str) -> None:
    assert len(got) == len(expected)
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.shape == b.shape, f"{where}: output {i}"
        assert a.dtype == b.dtype, f"{where}: output {i}"
        assert np.isfinite(a).all(), f"{where}: output {i} has NaN or infinity: memory was read that nothing wrote"
        error, limit = np.abs(a - b).max(initial=0), TOLERANCE * np.abs(b).max(initial=0)
        assert error <= limit, f"{where}: output {i} is off by {error:.3g}, allowed are {limit:.3g}"


def _smallest(compiled: Compiled, threads: int) -> int:
    """The smallest budget of a session with so many threads: the form of the graph depends on them."""
    with pytest.raises(flexnn.BudgetError) as refusal:
        flexnn.Session(compiled.artifact, memory=1, threads=threads)
    return refusal.value.minimum


@pytest.mark.parametrize("compiled", ALL, indirect=True)
def test_equals_onnxruntime(compiled: Compiled) -> None:
    feeds = [compiled.model.feed(seed) for seed in SEEDS]
    peer = OnnxRuntime(compiled.onnx, compiled.model.shapes, threads=2)
    expected = [peer.run(feed) for feed in feeds]
    peer.close()
    assert any(not np.array_equal(a, b) for a, b in zip(*expected[:2], strict=True)), "the input does not matter"
    halfway = (compiled.minimum + compiled.unlimited) // 2
    for threads in (1, 2):
        for budget in (None, halfway, _smallest(compiled, threads)):
            with open_for_tests(compiled.artifact, memory=budget, threads=threads, poison=True) as session:
                for feed, answer in zip(feeds, expected, strict=True):
                    _close(session.run(None, feed), answer, f"budget {budget}, {threads} threads")


JITTERED = [
    *QUICK,
    *(pytest.param(m, id=m.name, marks=[] if m.name == "resnet152" else pytest.mark.long) for m in FULL),
]


@pytest.mark.parametrize("compiled", JITTERED, indirect=True)
def test_jitter_changes_nothing(compiled: Compiled) -> None:
    """Random delays in loader and compute threads: the protocol, not luck, keeps reads and writes apart. Bit for bit
    where the session, which measures its own rates, chose the same kernels.
    """
    feed = compiled.model.feed(1)
    with flexnn.Session(compiled.artifact, memory=compiled.minimum, threads=2) as session:
        expected, nodes = session.run(None, feed), session.plan.program.nodes
    for seed in range(1, 4):
        with open_for_tests(
            compiled.artifact, memory=compiled.minimum, threads=2, poison=True, jitter_seed=seed
        ) as session:
            own = session.plan.program.nodes
            same = len(own) == len(nodes) and all(np.array_equal(own[n], nodes[n]) for n in ("kernel", "params"))
            for _ in range(2):
                got = session.run(None, feed)
                _close(got, expected, f"seed {seed}")
                assert not same or all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True)), f"seed {seed}"


@pytest.mark.parametrize("compiled", ALL[:4], indirect=True)
def test_new_budget_in_place(compiled: Compiled) -> None:
    feed = compiled.model.feed(1)
    with flexnn.Session(compiled.artifact, threads=2) as session:
        expected = session.run(None, feed)
        for budget in (compiled.minimum, 2 * compiled.minimum, None):
            session.memory = budget
            assert budget is None or session.session_bytes <= budget
            _close(session.run(None, feed), expected, f"budget {budget}")
        with pytest.raises(flexnn.BudgetError) as refusal:
            session.memory = compiled.minimum - 1
        assert refusal.value.minimum == compiled.minimum
        _close(session.run(None, feed), expected, "after a refused budget")
