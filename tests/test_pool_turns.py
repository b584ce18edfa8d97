"""Models of a pool that take turns in a tight budget keep what they have open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.pool import Pool
from flexnn.run.open_shapes import OpenShapesRun
from flexnn.run.pooled_open import PooledOpenRun
from tests.support.sessions import write_branched_model

THREADS = 2


@pytest.fixture(autouse=True)
def analytic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXNN_PROFILE", "analytic")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {"open": flexnn.compile(write_branched_model(folder / "open.onnx", 5, batch="n"))}


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((1, 128, 8, 8), np.float32)}


def test_models_that_take_turns_keep_their_programs(
    artifacts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In budgets between the smallest and none, runs at shapes seen before recorded their models anew each time: what
    the pool had chosen for one was short by a little, so the others gave up all that they had.
    """
    closed: list[PooledOpenRun] = []
    own = PooledOpenRun._shut
    monkeypatch.setattr(PooledOpenRun, "_shut", lambda run, **how: (closed.append(run), own(run, **how))[1])
    other = flexnn.compile(write_branched_model(tmp_path / "other.onnx", 7, batch="n"))
    with Pool() as pool:
        sessions = [pool.open(artifacts["open"]), pool.open(other)]
        for session in sessions:
            session.run(None, feed())
        most, least = pool.session_bytes, pool.minimum_memory
    for part in range(1, 10):
        with Pool(memory=least + (most - least) * part // 10, threads=THREADS) as pool:
            sessions = [pool.open(artifacts["open"]), pool.open(other)]
            for _ in range(3):
                for session in sessions:
                    session.run(None, feed())
            closed.clear()
            for _ in range(3):
                for session in sessions:
                    session.run(None, feed())
            assert not closed, part


def test_a_choice_that_is_short_takes_nothing_from_others(
    artifacts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of a model whose limit the pool had chosen a little too small had all others forget what they knew."""
    other = flexnn.compile(write_branched_model(tmp_path / "other.onnx", 7, batch="n"))
    with Pool(memory="64MiB", threads=THREADS) as pool:
        first, second = pool.open(artifacts["open"]), pool.open(other)
        for session in (first, second):
            session.run(None, feed())
        closed: list[PooledOpenRun] = []
        own = PooledOpenRun._shut
        monkeypatch.setattr(PooledOpenRun, "_shut", lambda run, **how: (closed.append(run), own(run, **how))[1])
        short = first._run
        assert isinstance(short, PooledOpenRun)
        least = short.needed_bytes(0)
        short._limit = least - (256 << 10)
        first.run(None, feed())
        assert set(closed) <= {short}
        assert short._limit is not None  # it does not take all that the other leaves
        assert least <= short._limit < least + (1 << 20)
        closed.clear()
        for session in (second, first) * 3:
            session.run(None, feed())
        assert not closed


@pytest.mark.parametrize("refusals", [3, 4, 100])
def test_a_refusal_names_more_than_the_budget(
    refusals: int, artifacts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool named a smallest budget below its own: the others took less after the last try."""
    tries: list[int] = []
    own = OpenShapesRun.run

    def run(self: OpenShapesRun, *given: Any) -> Any:
        tries.append(1)
        if len(tries) <= refusals:
            raise flexnn.BudgetError(8 << 20, 4 << 20)
        return own(self, *given)

    with Pool(memory="64MiB", threads=THREADS) as pool:
        session = pool.open(artifacts["open"])
        monkeypatch.setattr(OpenShapesRun, "run", run)
        if refusals < 100:
            session.run(None, feed())
            return
        with pytest.raises(flexnn.BudgetError) as caught:
            session.run(None, feed())
        assert caught.value.minimum > (64 << 20)
