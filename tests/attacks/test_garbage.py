"""Attack: sessions that are opened and closed for a year.

Answer: what a session had is freed when it closes. Nothing is left for Python's collector of cycles, which would run at
other moments each time and let the heap grow until it did.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import flexnn
from tests.support.sessions import feed, write_branched_model, write_model


@pytest.fixture(params=["closed", "open"])
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "closed":
        return Path(flexnn.compile(write_model(tmp_path / "small.onnx")))
    return Path(flexnn.compile(write_branched_model(tmp_path / "open.onnx", 24, batch="n")))


@pytest.mark.parametrize("memory", [None, "24MiB"])
def test_closed_sessions_leave_no_cycles(artifact: Path, memory: str | None) -> None:
    def use() -> None:
        with flexnn.Session(artifact, memory, threads=2, profile="analytic") as session:
            session.run(None, feed())
            session.memory = "32MiB"
            session.run(None, feed())

    use()
    gc.collect()
    gc.disable()
    try:
        use()
        assert gc.collect() == 0
    finally:
        gc.enable()
