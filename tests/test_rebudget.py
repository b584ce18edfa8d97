"""New budgets in place: results, what is read again, memory given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.session import open_for_tests
from tests.support.sessions import feed, smallest, write_model

STEPS = (0.0, 0.3, 0.7, 2.0, 0.5, 0.1, 1.2, 0.0)
"""Budgets beyond the smallest one, in shares of the weights."""
WEIGHTS = 8 * 128 * 128 * 9 * 4


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebudget")
    return Path(flexnn.compile(write_model(folder / "m.onnx"), folder / "m.flexnn"))


def pinned(session: flexnn.Session) -> dict[int, int]:
    """Bytes of each pinned slice, by the offset in the file where its checksums begin."""
    loads = session.plan.program.pinned
    return dict(zip((loads["file_offset"] + loads["check_lead"]).tolist(), loads["check_bytes"].tolist(), strict=True))


def covered(old: dict[int, int], new: dict[int, int]) -> int:
    """Bytes of the new slices that the old ones hold."""
    have = np.zeros(max([at + size for at, size in (old | new).items()] + [0]) // 64 + 1, bool)
    for at, size in old.items():
        have[at // 64 : (at + size) // 64] = True
    return 64 * sum(int(have[at // 64 : (at + size) // 64].sum()) for at, size in new.items())


@pytest.mark.parametrize("io", ["buffered", "direct"])
def test_down_and_up_again(artifact: Path, io: str) -> None:
    least, x = smallest(artifact), feed()
    if io == "direct":  # rounds to pages
        least += 1 << 20
    with open_for_tests(artifact, memory=least, threads=2, io=io, profile="analytic", poison=True) as session:
        for share in STEPS:
            before = pinned(session)
            session.memory = budget = least + int(share * WEIGHTS)
            now = pinned(session)
            pinning = session.statistics()["pinning"]
            there = covered(before, now)
            assert pinning["kept"] + pinning["moved"] == there
            assert pinning["read"] == sum(now.values()) - there
            with flexnn.Session(artifact, memory=budget, threads=2, io=io, profile="analytic") as fresh:
                expected = fresh.run(None, x)[0]
            for _ in range(2):
                np.testing.assert_array_equal(session.run(None, x)[0], expected)


def test_memory_goes_back(artifact: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    least, x = smallest(artifact), feed()
    with flexnn.Session(artifact, memory=None, threads=1, profile="analytic") as session:
        session.run(None, x)
        full = resident()
        session.memory = least
        session.run(None, x)
        assert full - resident() > WEIGHTS * 3 // 4
        assert session.statistics()["engine_bytes"] < least
