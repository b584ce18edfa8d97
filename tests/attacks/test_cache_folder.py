"""Attack: the user's cache folder holds links, FIFOs, millions of entries, huge or hostile files, or is another user's.

Answer: no link is followed, nothing is removed that was not made here, and what is not usable is passed over in bounded
time and memory. A folder of another user's is not used; one that others may enter is closed to them.
"""

from __future__ import annotations

import json
import os
import stat
import time
import tracemalloc
from pathlib import Path

import pytest

import flexnn
from flexnn import files
from flexnn.errors import FlexNNError
from flexnn.kept_artifacts import ENTRY_BYTES_MAX, read_entry
from flexnn.measure import cache
from flexnn.planning import MachineProfile
from tests.support.sessions import feed, write_model

KEY = "1 0123456789abcdef0123 rest of the key"
KEPT = cache.Kept(MachineProfile(1e11, 1e10, 2e9, 1e-5, 1e-6, 0.9, 0.8, {"conv.a": (1e-6, 1e-3)}, {"dwconv": 0.5}), 77)
LEFT = f"session-{'0f' * 16}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache" / "flexnn").mkdir(parents=True)
    return tmp_path / "cache" / "flexnn"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "small.onnx")


def run(model: Path) -> None:
    with flexnn.Session(model) as session:
        session.run(None, feed())


@pytest.mark.parametrize("name", [LEFT, "session-999999999-0"])
def test_links_are_not_followed(folder: Path, tmp_path: Path, model: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "model.flexnn").write_bytes(b"years of work")
    (precious / "thesis").write_bytes(b"years of work")
    (folder / name).symlink_to(precious)
    run(model)
    assert (precious / "model.flexnn").exists()
    assert (precious / "thesis").exists()


def test_only_what_was_made_here_is_removed(folder: Path, tmp_path: Path, model: Path) -> None:
    (folder / LEFT).mkdir()
    (folder / LEFT / "model.flexnn").write_bytes(b"x")
    other = folder / f"session-{'1e' * 16}"
    other.mkdir()
    (other / "thesis").write_bytes(b"years of work")
    (other / "model.flexnn").symlink_to(other / "thesis")
    (folder / "session-notes").mkdir()
    run(model)
    assert set(os.listdir(folder)) == {other.name, "session-notes", "artifacts"}
    assert set(os.listdir(other)) == {"thesis", "model.flexnn"}


def test_a_folder_in_use_stays(folder: Path) -> None:
    opened = files.own_folder(str(folder))
    with files.scratch(opened.fd, "session-", ("model.flexnn",)) as one:
        (folder / one / "model.flexnn").write_bytes(b"x")
        with files.scratch(opened.fd, "session-", ("model.flexnn",)) as other:
            assert set(os.listdir(folder)) == {one, other}
            assert stat.S_IMODE((folder / other).stat().st_mode) == 0o700
        assert (folder / one / "model.flexnn").exists()
    assert not os.listdir(folder)


def test_many_entries_take_little(folder: Path) -> None:
    begun = time.thread_time()
    for number in range(30_000):
        os.mknod(folder / f"session-{number:032x}")
    start = time.thread_time()
    tracemalloc.start()
    opened = files.own_folder(str(folder))
    with files.scratch(opened.fd, "session-", ("model.flexnn",)):
        pass
    assert time.thread_time() - start < 2 * (start - begun), "it takes longer than making them"
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "linked", "sparse"])
def test_profiles_that_are_no_plain_files(folder: Path, tmp_path: Path, kind: str) -> None:
    cache.store(KEY, KEPT)
    (path,) = folder.iterdir()
    raw = path.read_bytes()
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)  # hung
    elif kind == "folder":
        path.mkdir()
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        (tmp_path / "other").write_bytes(raw)
        (path.symlink_to if kind == "link" else path.hardlink_to)(tmp_path / "other")
    assert cache.load(KEY) is None
    if kind != "folder":
        cache.store(KEY, KEPT)
        assert cache.load(KEY) == KEPT
    if kind in ("link", "linked"):
        assert (tmp_path / "other").read_bytes() == raw


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * 300_000 + "[]]",
        '{"a":' * 100_000,
        '"' + "a" * 900_000 + '\U0001f600"',
        '["\\u0041' + "a" * 900_000 + '"]',
    ],
)
def test_hostile_profiles_take_little(folder: Path, text: str) -> None:
    cache.store(KEY, KEPT)
    (path,) = folder.iterdir()
    path.write_text(text)
    tracemalloc.start()
    assert cache.load(KEY) is None
    assert tracemalloc.get_traced_memory()[1] < 3 << 20  # 108 MB
    tracemalloc.stop()


@pytest.mark.parametrize("number", [10**400, -1, 1 << 60, float("nan"), float("inf"), True, "1", None, [1]])
def test_numbers_out_of_range(folder: Path, number: object) -> None:
    """The first one was an OverflowError of each opening of the model."""
    cache.store(KEY, KEPT)
    (path,) = folder.iterdir()
    good = json.loads(path.read_text())
    for name in ("arena_bytes", "flops_per_second", "step_s"):
        path.write_text(json.dumps(good | {name: number}))
        assert cache.load(KEY) is None
    for name, value in (("times", [1e-6, number]), ("scales", number)):
        path.write_text(json.dumps(good | {name: {"conv.a": value}}))
        assert cache.load(KEY) is None


def test_many_profiles_take_little(folder: Path) -> None:
    """All names were listed with their status: 40 MB of the session's memory."""
    for number in range(60_000):
        os.mknod(folder / f"{number:016x}-{number:08x}.json")
    tracemalloc.start()
    cache.store(KEY, KEPT)
    assert tracemalloc.get_traced_memory()[1] < 5 << 20
    tracemalloc.stop()
    assert cache.load(KEY) == KEPT


@pytest.mark.parametrize("unit", ["[],", "{},"])
def test_hostile_entries_take_little(folder: Path, unit: str) -> None:
    """Entries of kept artifacts took 27 MB of the session's memory."""
    text = '{"artifact":[' + unit * ((ENTRY_BYTES_MAX - 100) // len(unit)) + "1]}"
    (folder / "x.status").write_text(text)
    opened = files.own_folder(str(folder))
    tracemalloc.start()
    with pytest.raises(ValueError, match="JSON that would take"):
        read_entry(opened.fd, "x.status")
    assert tracemalloc.get_traced_memory()[1] < 3 << 20
    tracemalloc.stop()


def test_as_many_times_as_are_kept_come_back(folder: Path) -> None:
    times = {f"conv.some_long_kernel_name.{number}.aaaaaaaa": (1.23456789e-6, 1.23456789e-3) for number in range(9000)}
    machine = MachineProfile(1e11, 1e10, 2e9, 1e-5, 1e-6, 0.9, 0.8, times, dict.fromkeys(times, 0.123456789))
    cache.store(KEY, cache.Kept(machine, 77))
    kept = cache.load(KEY)
    assert kept is not None
    assert list(kept.machine.times.items()) == list(times.items())[-cache.VARIANTS_MAX :]
    assert len(kept.machine.scales) == cache.VARIANTS_MAX


def test_others_may_not_enter(folder: Path) -> None:
    folder.chmod(0o777)
    cache.store(KEY, KEPT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_or_another_users_folder_is_refused(
    folder: Path, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(KEY, KEPT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        assert cache.load(KEY) is None
        with pytest.raises(OSError, match="belongs to another user"):
            run(model)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cache.load(KEY) is None
    cache.store(KEY, cache.Kept(KEPT.machine, 99))
    assert len(os.listdir(tmp_path / "elsewhere")) == 1
    with pytest.raises((OSError, FlexNNError), match="a link"):
        run(model)


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new" / "cache"))
    cache.store(KEY, KEPT)
    assert cache.load(KEY) == KEPT
    assert stat.S_IMODE(Path(files.cache_folder()).stat().st_mode) == 0o700
