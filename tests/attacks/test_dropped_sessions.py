"""Attack: Ctrl-C comes while a session goes that was closed, or that nobody closed.

Answer: no line of Python's runs there, in which what a signal handler raises would be lost; memory, threads and
descriptors are given back all the same, by a later call of the pool where the session is one of a pool's.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn.pool import Pool
from tests.support.decoders import write_grouped
from tests.support.hangs import wait_until
from tests.support.sessions import feed, write_branched_model, write_model

KINDS = "closed", "open", "state"


@pytest.fixture(scope="module", params=KINDS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("dropped") / f"{request.param}.onnx"
    if request.param == "state":
        return flexnn.compile(write_grouped(path))
    return flexnn.compile(write_model(path) if request.param == "closed" else write_branched_model(path, batch="n"))


def opened(artifact: str, memory: str | None = None) -> flexnn.Session:
    """Open a session; that of a decoder keeps state."""
    return flexnn.Session(artifact, memory, 2, kv_capacity=16 if "state" in artifact else None)


def run(session: flexnn.Session) -> None:
    """Run a session of any of these models once."""
    if "x" in [port.name for port in session.get_inputs()]:
        session.run(None, feed())
    else:
        session.run(None, {"input_ids": np.ones((1, 1), np.int64)})


def taken() -> tuple[int, int]:
    """Return the numbers of descriptors and of threads."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def calls_of(drop: Callable[[], Any]) -> list[str]:
    """Return what a function of C's calls of Python's, while no garbage is collected unless it does."""
    called: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    gc.collect()
    gc.disable()
    others, gc.callbacks[:] = list(gc.callbacks), []  # of Hypothesis, for one
    try:
        sys.setprofile(profile)
        drop()
    finally:
        sys.setprofile(None)
        gc.callbacks[:] = others
        gc.enable()
    return called


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "forgotten"])
@pytest.mark.parametrize("memory", [None, "auto"])
def test_nothing_of_python_runs_when_a_session_goes(artifact: str, memory: str | None, is_closed: bool) -> None:
    opened(artifact).close()  # what a first one leaves is there
    gc.collect()  # what other tests left
    before = taken()
    held = [opened(artifact, memory)]
    run(held[0])
    if is_closed:
        held[0].close()
    assert not calls_of(held.clear)
    if memory is None:
        assert taken() == before
    wait_until(lambda: taken() == before)  # the thread that looks at the system's memory ends by itself


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "forgotten"])
def test_nothing_of_python_runs_when_a_session_of_a_pool_goes(artifact: str, is_closed: bool) -> None:
    if "state" in artifact:
        pytest.skip("a pool keeps no state")
    Pool(threads=2).close()
    gc.collect()  # what other tests left
    before = taken()
    held: list[Any] = [Pool(threads=2)]
    held += [held[0].open(artifact), held[0].open(artifact)]
    for session in held[1:]:
        run(session)
    last = [held.pop()]
    del session
    if is_closed:
        last[0].close()
    assert not calls_of(last.clear)
    run(held[1])
    assert held[0].statistics()["sessions"] == 1
    assert not calls_of(held.clear)
    assert taken()[1] == before[1]
    gc.collect()
    assert taken() == before


def test_a_session_in_a_circle(artifact: str) -> None:
    """Garbage that is collected gives back what it has, too, and calls nothing."""
    gc.collect()  # what other tests left
    before = taken()
    held = [opened(artifact)]
    run(held[0])
    held[0].circle = held[0]  # type: ignore[attr-defined]
    assert not calls_of(held.clear)
    assert taken()[0] == before[0] + 1
    assert not calls_of(gc.collect)
    assert taken() == before


def test_a_session_whose_closing_was_interrupted(artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what other tests left
    before = taken()
    held = [opened(artifact)]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(held[0]._run), "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            held[0].close()
    assert held[0].closed
    held.clear()
    assert taken() == before
