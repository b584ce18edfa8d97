"""Artifacts that the first start of a model with open shapes leaves incomplete, and a process completes later."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexnn
from flexnn import compiler, keeping, kept_artifacts, maker, model_files
from tests.support.hangs import wait_until
from tests.support.sessions import feed, write_branched_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "flexnn" / "artifacts"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_branched_model(tmp_path / "m.onnx", 3, batch="n")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models of which artifacts were made by other processes."""
    started: list[str] = []
    run = kept_artifacts.spawned

    def noted(command: list[str], **options: object) -> tuple[int, bytes]:
        started.append(json.loads(command[-1])["model"])
        return run(command, **options)

    monkeypatch.setattr(kept_artifacts, "spawned", noted)
    return started


def outputs(model: Path) -> np.ndarray:
    with flexnn.Session(model, threads=1) as session:
        return session.run(None, feed())[0]


def entries(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in folder.iterdir() if path.suffix in (".json", ".status")]


def wait_until_complete(folder: Path) -> None:
    wait_until(lambda: not any("left" in entry for entry in entries(folder)))


def leave(model: Path) -> keeping.Waited:
    """Keep the artifact of a model as for somebody who waits, and do nothing later."""
    told: list[str] = []
    waited = keeping.Waited(told.append)
    keeping.keep(str(model), {}, waited=waited)
    left = any("left" in json.loads(path.read_text()) for path in Path(kept_artifacts.folder()).glob("*.json"))
    assert told == ["open" if left else "bound"]
    return waited


def test_the_artifact_becomes_the_one_that_compiling_makes(
    folder: Path, model: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEXNN_LATER", "1")
    wanted = outputs(model)
    wait_until_complete(folder)
    (artifact,) = folder.glob("*.flexnn")
    assert artifact.read_bytes() == Path(flexnn.compile(model)).read_bytes()
    assert np.array_equal(outputs(model), wanted)
    assert made == [str(model)]  # the notes lead to the complete one


def test_an_open_session_keeps_the_artifact_that_it_opened(folder: Path, model: Path) -> None:
    waited = leave(model)
    with flexnn.Session(model, threads=1) as session:
        wanted = session.run(None, feed())[0]
        before = next(folder.glob("*.flexnn")).stat().st_ino
        assert waited.rest is not None
        waited.rest()
        assert next(folder.glob("*.flexnn")).stat().st_ino != before
        assert np.array_equal(session.run(None, feed())[0], wanted)
    wait_until_complete(folder)


def test_what_nobody_completes_is_made_anew_and_whole(
    folder: Path, model: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEXNN_LATER", "1")
    leave(model)
    wanted = outputs(model)
    assert made == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + kept_artifacts.LEFT_SECONDS + 1)
    for path in folder.iterdir():
        if path.suffix in (".json", ".status"):
            entry = json.loads(path.read_text())
            entry["left"] -= kept_artifacts.LEFT_SECONDS + 1  # for the process that looks as well
            path.write_text(json.dumps(entry))
    assert np.array_equal(outputs(model), wanted)
    assert made == [str(model)]
    assert not any("left" in entry for entry in entries(folder))
    (artifact,) = folder.glob("*.flexnn")
    assert artifact.read_bytes() == Path(flexnn.compile(model)).read_bytes()


@pytest.mark.parametrize("change", ["removed", "replaced", "cleared"])
def test_what_changed_meanwhile_stays(folder: Path, model: Path, change: str) -> None:
    waited = leave(model)
    (artifact,) = folder.glob("*.flexnn")
    if change == "replaced":
        (folder / "other").write_bytes(artifact.read_bytes())
        os.replace(folder / "other", artifact)
    elif change == "removed":
        artifact.unlink()
    else:
        keeping.clear(kept_artifacts.open_folder())
    before = {path.name: path.stat().st_ino for path in folder.iterdir() if path.suffix == ".flexnn"}
    assert waited.rest is not None
    try:
        waited.rest()
    except OSError:
        assert change != "replaced"
    assert {path.name: path.stat().st_ino for path in folder.iterdir() if path.suffix == ".flexnn"} == before


def test_a_bound_model_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    waited = leave(write_branched_model(tmp_path / "bound.onnx", 3))
    assert not any("left" in entry for entry in entries(folder))
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert waited.rest is not None
    waited.rest()  # has the disk keep it
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before


def test_nothing_is_left_where_memory_is_short_or_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXNN_LATER", "1")
    monkeypatch.setattr(maker.Limits, "free", lambda _: maker.LATER_BYTES)
    assert maker._may_leave()
    monkeypatch.setattr(maker.Limits, "free", lambda _: maker.LATER_BYTES - 1)
    assert not maker._may_leave()
    monkeypatch.setattr(maker.Limits, "free", lambda _: maker.LATER_BYTES)
    monkeypatch.setenv("FLEXNN_LATER", "0")
    assert not maker._may_leave()


def test_compiling_leaves_nothing(model: Path, tmp_path: Path) -> None:
    first = compiler.compile_first(
        str(model), str(tmp_path / "a.flexnn"), {}, None, model_files.sha256(str(model)), lambda _: None
    )
    whole = Path(flexnn.compile(model))
    assert (tmp_path / "a.flexnn").stat().st_size < whole.stat().st_size
    assert first.rest is not None
    first.rest(str(tmp_path / "b.flexnn"))
    assert (tmp_path / "b.flexnn").read_bytes() == whole.read_bytes()


def test_who_opens_a_model_never_waits_for_a_process_that_gets_no_cpu(folder: Path, model: Path) -> None:
    """The process that completes an artifact took the lowest priority for good, and then the lock that the next session
    waits for: on a busy machine that took half a minute.
    """
    waited = leave(model)
    assert waited.rest is not None
    thread = threading.get_native_id
    found: list[tuple[str, int]] = []
    own_place, own_contents = keeping._place, compiler._write

    def place(*arguments: Any) -> None:
        found.append(("placed", os.getpriority(os.PRIO_PROCESS, thread())))
        own_place(*arguments)

    def write(*arguments: Any, **options: Any) -> None:
        found.append(("written", os.getpriority(os.PRIO_PROCESS, thread())))
        own_contents(*arguments, **options)

    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "_place", place)
        patch.setattr(compiler, "_write", write)
        waited.rest()
    assert found == [("written", keeping.LOWEST), ("placed", usual)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual
    wait_until_complete(folder)


def test_what_fails_aside_fails_here() -> None:
    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        keeping.aside(fail)
