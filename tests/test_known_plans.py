"""Plans that earlier sessions searched for are followed; what is damaged, or of other options, is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from bench.models.artifacts import artifact
from bench.models.catalogue import CATALOGUE
from flexnn.planning.ladder import Ladder
from flexnn.run import known_plans

MODEL = CATALOGUE["squeezenet1_1"]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FLEXNN_LATER", "0")
    monkeypatch.setattr(known_plans, "WORTH_MS", 0.0)  # planning may take less
    return str(artifact(MODEL.make(), MODEL.shapes))


@pytest.fixture
def memory(path: str) -> int:
    """A small budget; the machine is measured."""
    with flexnn.Session(path, threads=2, profile="measure") as session:
        return int(2 * session.plan.minimum_memory)


def opened(path: str, memory: int, **options: Any) -> tuple[list[bytes], np.ndarray, int]:
    """Return the program's records, an output and the session's bytes."""
    with flexnn.Session(path, memory, 2, profile="measure", **options) as session:
        (y,) = session.run(None, MODEL.feed(0))
        program = session.plan.program
        parts = [part.tobytes() for part in (program.nodes, program.steps, program.loads, program.pinned)]
        return parts, y.copy(), session.session_bytes


def kept(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*.json") if file.is_file() and "working_bytes" in file.read_text()]


def test_a_later_session_searches_for_nothing(
    path: str, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened(path, memory)
    assert len(kept(tmp_path)) == 1
    monkeypatch.setattr(Ladder, "best_within", lambda *_, **__: pytest.fail("a plan was searched for"))
    after = opened(path, memory)
    assert after[0] == before[0]
    np.testing.assert_array_equal(after[1], before[1])
    assert after[2] == before[2] <= memory


@pytest.mark.parametrize("damage", ["cut", "other", "nonsense", "folder"])
def test_a_damaged_one_is_made_anew(path: str, memory: int, tmp_path: Path, damage: str) -> None:
    before = opened(path, memory)
    (file,) = kept(tmp_path)
    text = file.read_text()
    if damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        told = json.loads(text) | {"working_bytes": 1 << 50, "kernels": []}
        file.write_text({"cut": text[: len(text) // 2], "other": json.dumps(told), "nonsense": "[]"}[damage])
    after = opened(path, memory)
    assert after[0] == before[0]
    np.testing.assert_array_equal(after[1], before[1])


def test_other_options_have_plans_of_their_own(path: str, memory: int, tmp_path: Path) -> None:
    choices: list[dict[str, Any]] = [{}, {"reuse_outputs": True}, {"deterministic": True}]
    for count, options in enumerate(choices, 1):
        opened(path, memory, **options)
        assert len(kept(tmp_path)) == count
        assert opened(path, memory, **options)[2] <= memory


def test_a_new_budget_is_searched_for(path: str, memory: int) -> None:
    opened(path, memory)
    with flexnn.Session(path, memory, 2, profile="measure") as session:
        session.memory = memory + (1 << 20)
        assert session.session_bytes <= memory + (1 << 20)
        session.run(None, MODEL.feed(0))
