"""Attack: threads ask a session about itself while others run it with ever new shapes, change its budget and close it.

Answer: each finds a state between two calls, or hears that the session is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from tests.support.sessions import CHANNELS, SIDE, write_branched_model, write_model


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(flexnn.compile(write_branched_model(tmp_path_factory.mktemp("open") / "open.onnx", 6, batch="n")))


def test_questions_while_shapes_change(opened: Path) -> None:
    """``session_bytes`` and ``plan`` raised "dictionary changed size"."""
    session = flexnn.Session(opened, threads=2)
    session.run(None, {"x": np.zeros((1, CHANNELS, SIDE, SIDE), np.float32)})
    end, wrong = time.monotonic() + 4, list[BaseException]()
    asked = [0]

    def run() -> None:
        for batch in range(1, 1000):
            if time.monotonic() > end:
                return
            session.run(None, {"x": np.zeros((1 + batch % 40, CHANNELS, SIDE, SIDE), np.float32)})

    def ask() -> None:
        while time.monotonic() < end or asked[0] <= 10:
            assert session.session_bytes > 0
            assert session.plan.arena_bytes > 0
            assert session.last_run["run_ns"] > 0
            assert session.statistics()["segments"] > 0
            asked[0] += 1

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (run, ask, ask, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert asked[0] > 10
    session.close()


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_what_a_closed_session_answers(tmp_path: Path, opened: Path, kind: str) -> None:
    artifact = opened if kind == "open" else flexnn.compile(write_model(tmp_path / "small.onnx"))
    session = flexnn.Session(artifact, threads=2)
    session.run(None, {"x": np.zeros((1, CHANNELS, SIDE, SIDE), np.float32)})
    session.close()
    assert session.session_bytes > 0
    assert session.plan.arena_bytes > 0
    assert session.threads == 2
    assert session.memory is None
    assert session.last_run["run_ns"] > 0
    assert [port.name for port in (*session.get_inputs(), *session.get_outputs())] == ["x", "y"]
    for use in (session.statistics, session.trace_events, lambda: session.run(None, {})):
        with pytest.raises((flexnn.SessionError, ValueError), match=r"closed|input"):
            use()
