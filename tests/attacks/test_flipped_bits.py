"""Attack: bits of what is bound flip in memory.

Answer: the first run after a fault checks what is bound by its seals, and is refused, as are all others, until the
session binds it anew. tests/engine/seal.c flips bits in every part. Weights are found, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from tests.support.sessions import feed, write_branched_model, write_model


def mappings() -> Iterator[tuple[int, int]]:
    """Iterate over the process's own memory that it may write."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, inode, *_ = line.split()
        if access.startswith("rw") and inode == "0":
            start, end = (int(part, 16) for part in span.split("-"))
            yield start, end


def places(wanted: bytes) -> list[int]:
    """Return the addresses of copies of some bytes."""
    found = []
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for start, end in mappings():
            memory.seek(start)
            try:
                held = memory.read(end - start)
            except OSError:
                continue
            at = held.find(wanted)
            while at >= 0:
                found.append(start + at)
                at = held.find(wanted, at + 1)
            del held
    return found


def flip(address: int) -> None:
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        byte = memory.read(1)[0]
        memory.seek(address)
        memory.write(bytes([byte ^ 4]))


def bound_copies(array: np.ndarray[Any, Any], nbytes: int) -> list[int]:
    """Return where the engine has its copies of the first bytes of an array."""
    own = array.ctypes.data
    wanted = array.tobytes()[:nbytes]
    return [at for at in places(wanted) if at != own and at % 64 == 0]


@pytest.fixture(params=["closed", "open"])
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "closed":
        return Path(flexnn.compile(write_model(tmp_path / "small.onnx")))
    return Path(flexnn.compile(write_branched_model(tmp_path / "open.onnx", 24, batch="n")))


class Stop(Exception):  # noqa: N818 (no error)
    """Raised instead of a plan."""


def fail(session: flexnn.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a change of budget fail."""

    def stop(*_: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(type(session._run), "rebudget", stop)
        with pytest.raises(Stop):
            session.memory = None


def test_a_program_that_changed_does_not_run(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        (expected,) = session.run(None, feed())
        nodes = session.plan.program.nodes
        copies = bound_copies(nodes, min(nodes.nbytes, 4096))
        assert copies
        for at in copies:
            flip(at + nodes.dtype.fields["params"][1])
        fail(session, monkeypatch)
        for _ in range(2):
            with pytest.raises(flexnn.SessionError, match="changed in memory: open the session again"):
                session.run(None, feed())
        session.memory = 1 << 30
        np.testing.assert_array_equal(session.run(None, feed())[0], expected)


def test_a_pinned_weight_that_changed_is_read_again(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        (expected,) = session.run(None, feed())
        pinned = session.plan.program.pinned[0]
        offset, nbytes = int(pinned["file_offset"] + pinned["check_lead"]), int(pinned["check_bytes"])
        weight = artifact.read_bytes()[offset : offset + min(nbytes, 4096)]
        for at in places(weight):
            flip(at + 100)
        fail(session, monkeypatch)
        with pytest.raises(flexnn.SessionError, match="changed in memory"):
            session.run(None, feed())
        session.memory = 1 << 30
        assert 0 < session.statistics()["pinning"]["read"] <= nbytes  # the damaged chunks
        np.testing.assert_array_equal(session.run(None, feed())[0], expected)


def test_what_is_whole_runs_after_a_fault(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with flexnn.Session(artifact, threads=2) as session:
        (expected,) = session.run(None, feed())
        for _ in range(3):
            fail(session, monkeypatch)
            np.testing.assert_array_equal(session.run(None, feed())[0], expected)
