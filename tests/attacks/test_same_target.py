"""Attack: several threads and processes write one file while others read it, and some are killed.

Answer: a reader finds one whole file or another, never a part; nothing is left behind; nobody removes what another
still writes. Process numbers decide nothing: pid 1 of two containers may share a folder.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flexnn import files
from flexnn.artifact import open_artifact
from flexnn.artifact.writer import write_artifact
from flexnn.measure import cache
from flexnn.planning import MachineProfile
from tests.artifact.test_artifact import SHA, small_graph

LOOKS = 3000
WRITES = """
import os, sys
sys.path.append(sys.argv[1])
from tests.attacks.test_same_target import WRITERS
os.getpid = lambda: 1  # as in two containers
print(flush=True)
while True:
    WRITERS[sys.argv[2]](sys.argv[3])
"""
ROOT = str(Path(__file__).resolve().parents[2])
KEY = "1 0123456789abcdef0123 rest of the key"


def write(path: str) -> None:
    write_artifact(small_graph(), path, SHA)


def keep(path: str) -> None:
    os.environ["XDG_CACHE_HOME"] = os.path.dirname(path)
    cache.store(KEY, cache.Kept(MachineProfile(1e11, 1e10, 2e9, 1e-5, 1e-6, 0.9, 0.8), 77))


WRITERS: dict[str, Callable[[str], None]] = {"artifact": write, "profile": keep}


def read_artifact(path: str) -> None:
    with open_artifact(path) as artifact:
        assert artifact.header.source_sha256 == SHA


def read_profile(path: str) -> None:
    kept = cache.load(KEY)
    assert kept is not None
    assert kept.arena_bytes == 77


@pytest.fixture(params=["nameless", "named"])
def _names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that have no name while they are written, and a system that has none."""
    if request.param == "named":
        monkeypatch.setattr(files._New, "_nameless", lambda *_: None)


@pytest.mark.usefixtures("_names")
@pytest.mark.parametrize(("what", "read"), [("artifact", read_artifact), ("profile", read_profile)])
def test_readers_find_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, read: Callable[[str], None]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    path = str(tmp_path / "target")
    WRITERS[what](path)
    stop, failed = threading.Event(), list[BaseException]()

    def again() -> None:
        try:
            while not stop.is_set():
                WRITERS[what](path)
        except BaseException as error:
            failed.append(error)

    command = [sys.executable, "-P", "-c", WRITES, ROOT, what, path]
    threads = [threading.Thread(target=again) for _ in range(2)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for thread in threads:
            thread.start()
        for _ in range(LOOKS):
            read(path)
        assert all(process.poll() is None for process in processes)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert not failed
    WRITERS[what](path)  # sweeps what the killed ones left
    folder = tmp_path if what == "artifact" else tmp_path / "flexnn"
    assert not [name for name in os.listdir(folder) if files.TEMPORARY in name]
    read(path)


def test_new_files_that_others_sweep_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a file's making and its lock it looks like a leftover; many writers sweep all the time."""
    swept, own = list[str](), files._is_locked

    def sweep_first(file: files.OpenFile) -> bool | None:
        names = [name for name in os.listdir(tmp_path) if files.TEMPORARY in name]
        if len(swept) < 30 and names:
            os.unlink(tmp_path / names[0])
            swept.append(names[0])
        return own(file)

    monkeypatch.setattr(files._New, "_nameless", lambda *_: None)
    monkeypatch.setattr(files, "_is_locked", sweep_first)
    path = str(tmp_path / "target")
    write(path)
    read_artifact(path)
    assert len(swept) == 30
    assert os.listdir(tmp_path) == ["target"]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    path = str(tmp_path / "target")
    write(path)
    for number in range(6):
        process = subprocess.Popen([sys.executable, "-P", "-c", WRITES, ROOT, "artifact", path], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.006 * number)
        process.kill()
        process.communicate()
        read_artifact(path)
    write(path)
    assert os.listdir(tmp_path) == ["target"]


@pytest.mark.usefixtures("_names")
@pytest.mark.parametrize("fails", ["write", "fsync", "link", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "target"
    path.write_bytes(b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if fails != "write":
            patch.setattr(os, fails, full)
        if fails == "link" and files._New._nameless(files._New(os.open(tmp_path, os.O_RDONLY), "x"), 0o600) is None:
            pytest.skip("files have names here")
        with pytest.raises(OSError, match="No space left") as error, files.replacing(str(path)) as file:
            file.write(b"new")
            if fails == "write":
                full()
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["target"]


def test_the_disk_has_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced before it gets its name, the folder after."""
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (events.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file"), sync(fd))
    )
    monkeypatch.setattr(os, "replace", lambda *a, **k: (events.append("replace"), replace(*a, **k)))
    write(str(tmp_path / "target"))
    assert events == ["file", "replace", "folder"]


def test_long_names_and_bystanders(tmp_path: Path) -> None:
    """A name as long as names may be; files that only look like leftovers stay."""
    name = "n" * 255
    alike = [
        f".target{files.TEMPORARY}1234",
        f".target{files.TEMPORARY}{'g' * 32}",
        f".other{files.TEMPORARY}{'0' * 32}",
    ]
    linked = f".target{files.TEMPORARY}{'a' * 32}"
    fifo, link = f".target{files.TEMPORARY}{'b' * 32}", f".target{files.TEMPORARY}{'c' * 32}"
    for other in (*alike, "precious"):
        (tmp_path / other).write_bytes(b"x")
    os.link(tmp_path / "precious", tmp_path / linked)
    os.mkfifo(tmp_path / fifo)
    os.symlink("precious", tmp_path / link)
    write(str(tmp_path / "target"))
    write(str(tmp_path / name))
    assert set(os.listdir(tmp_path)) == {*alike, "precious", linked, fifo, link, "target", name}
