"""Keeping artifacts in the user's cache folder: made once for the contents of an ONNX file, bounded, the least recently
used go first. A lock (fcntl) on a byte of one file lets one process at a time make what has one key.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flexnn._core import OpenFile
from flexnn.compiler import compile_first, compile_to
from flexnn.errors import CompileError
from flexnn.files import cache_folder, held, is_own, own_folder, remove, replacing_in, scratch
from flexnn.kept_artifacts import (
    ARTIFACT,
    ENTRY,
    LEFT,
    STATUS,
    TRIES,
    Shapes,
    Status,
    entry_status,
    find,
    folder,
    is_left,
    key_of,
    open_folder,
    read_entry,
    status_of,
)
from flexnn.model_files import Progress, sha256
from flexnn.quick_dataclass import quick_dataclass
from flexnn.units import parse_bytes

if TYPE_CHECKING:
    from flexnn.graph.beside import Beside

LOCK = "lock"
LATER = "later"
"""Files whose bytes are locks: on a key, while what it names is made; and on all that is left for later."""
MOST_BYTES = 4 << 30
MOST_PART = 10
"""Bytes of artifacts that are kept: this many, and one part in ten of the file system. FLEXNN_CACHE says another
number. The artifact that was made last stays in any case.
"""
STATUSES_MAX = 1024
SIZE = "bytes"
"""In an entry: the bytes of the model's file."""
_DISK_FULL = errno.ENOSPC, errno.EDQUOT
LOWEST = 19
"""The lowest priority of a thread, as nice has it."""
SETTLED_NS = 20_000_000
"""Age of a change at which times of files tell it from the next one."""


class Kept(NamedTuple):
    """An artifact that is kept."""

    name: str
    model: str
    """Path of the ONNX file that it was made of first."""
    nbytes: int
    used: float
    """Time of its last use, in seconds since 1970."""


@quick_dataclass(slots=True)
class Waited:
    """Somebody waits for the artifact, so what first runs can do without is left for later."""

    told: Callable[[str], None]
    """Called with "open" or "bound" when it is known which the model is."""
    beside: Beside | None = None
    """Process that reads the model meanwhile."""
    rest: Callable[[], None] | None = None
    """Function that completes the artifact, once it is kept, and has the disk keep it; None: it was kept before."""


def keep(
    model: str, shapes: Shapes, progress: Progress | None = None, note: str = "", waited: Waited | None = None
) -> str:
    """Return the path of the kept artifact of an ONNX file, which is compiled if no artifact of its contents is kept.
    It is noted under the file's status, and under the key ``note``. If it is ``waited`` for, it may lack what is left.

    Raises CompileError, GraphError, OSError.
    """
    with contextlib.closing(open_folder()) as opened:
        for _ in range(TRIES):
            before = _settled(model)
            with _locked(opened, key_of(before, shapes)):
                making = _Making(model, shapes, opened, progress, waited)
                known = find(model, shapes, opened)
                name = known or _keep_with_room(making, before)
                if name is not None and note:
                    _note(opened, note, name, {})
            if name is not None:
                if known is None:
                    _settle(name, waited)
                return os.path.join(folder(), name)
    raise CompileError(f"{model}: it changes while it is compiled")


def _settle(name: str, waited: Waited | None) -> None:
    """Have the disk keep an artifact and what is noted of it: now, or once nobody waits for it any more."""
    if waited is None:
        _sync(name)
        return
    rest = waited.rest

    def later() -> None:
        if rest is not None:
            rest()
        _sync(name)

    waited.rest = later


def _sync(name: str) -> None:
    with contextlib.closing(open_folder()) as opened:
        for one in (name, name.removesuffix(ARTIFACT) + ENTRY, *_notes(opened, name)):
            file = held(opened.fd, one)
            if file is not None:  # another process may have removed it
                os.fsync(file.fd)
                file.close()
        os.fsync(opened.fd)


def _settled(model: str) -> Status:
    """Return the status of a file, once its next change would have another time."""
    status = status_of(model)
    young_ns = status[-1] + SETTLED_NS - time.time_ns()
    if 0 < young_ns <= SETTLED_NS:
        time.sleep(young_ns / 1e9)
    return status_of(model)


class _Making(NamedTuple):
    """An artifact that is to be made."""

    model: str
    shapes: Shapes
    opened: OpenFile
    """The folder of artifacts."""
    progress: Progress | None
    waited: Waited | None


def _keep_with_room(making: _Making, before: Status) -> str | None:
    """Do what ``_keep_contents`` does. Where the disk is full, remove half of what is kept, then all of it."""
    for part in (2, 1):
        try:
            return _keep_contents(making, before)
        except OSError as error:
            if error.errno not in _DISK_FULL or not _drop(making.opened, part):
                raise
    return _keep_contents(making, before)


def _drop(opened: OpenFile, part: int) -> bool:
    """Remove artifacts used longest ago, one part in ``part`` of their bytes; return whether some are gone."""
    artifacts = kept(opened)
    wanted, gone = sum(one.nbytes for one in artifacts) // part, 0
    for one in artifacts:
        if gone < wanted and _remove(opened, one):
            gone += one.nbytes
    return gone > 0


class _Contents:
    """The contents of a model's file, and what their artifact is called."""

    def __init__(self, making: _Making, beside: Beside | None = None) -> None:
        self._making, self._beside = making, beside
        self._digest = b""

    @property
    def is_hashed(self) -> bool:
        """Whether the contents are known."""
        return bool(self._digest)

    def digest(self) -> bytes:
        """Return the SHA-256 of the file, which a process beside may know."""
        if not self._digest:
            found = None if self._beside is None else self._beside.digest()
            self._digest = found or sha256(self._making.model, self._making.progress)
        return self._digest

    def key(self) -> str:
        """Return the artifact's key."""
        return key_of(self.digest().hex(), self._making.shapes)


def _keep_contents(making: _Making, before: Status) -> str | None:
    """Return the name of the artifact of these contents, made if it is not kept; None: the file changed meanwhile."""
    model, shapes, opened, _, waited = making
    file, externals = None, None
    if waited is not None and waited.beside is not None and not _may_be_kept(opened, before):
        contents = _Contents(making, waited.beside)
    else:
        contents = _Contents(making)
        file = held(opened.fd, contents.key() + ARTIFACT)  # while it is open, nobody else removes it
        externals = _known(model, contents.key(), opened) if file is not None else None
    if externals is None:
        externals, file = _compile(making, contents, before)
    if externals is None or status_of(model) != before:
        return None
    beside, name = os.path.dirname(model), contents.key() + ARTIFACT
    statuses = {external: _settled(os.path.join(beside, external)) for external in externals}
    _note(opened, key_of(before, shapes), name, statuses)
    _drop_old(opened, name)
    if file is not None:
        file.close()
    return name


def _may_be_kept(opened: OpenFile, status: Status) -> bool:
    """Return whether an artifact may be kept of the contents of a file with this status: of another file of its size.
    Else its contents need not be hashed before the artifact is made.
    """
    for one in _own_files(opened, ENTRY):
        with contextlib.suppress(OSError, ValueError):
            if read_entry(opened.fd, one.name).get(SIZE, status[2]) == status[2]:
                return True
    return False


def _known(model: str, key: str, opened: OpenFile) -> list[str] | None:
    """Return the names of the files beside ``model``, if an artifact of their contents is kept under ``key``."""
    beside = os.path.dirname(model)
    try:
        entry = read_entry(opened.fd, key + ENTRY)
        digests: dict[str, str] = entry["externals"]
        if entry["status"] != entry_status(opened.fd, key + ARTIFACT) or is_left(entry):
            return None
        same = all(sha256(os.path.join(beside, name)).hex() == digest for name, digest in digests.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return list(digests) if same else None


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """Give the path of an artifact to be made, for as long as the context lasts."""
    with (
        contextlib.closing(own_folder(cache_folder())) as base,
        scratch(base.fd, "session-", ("model.flexnn",)) as name,
    ):
        yield os.path.join(cache_folder(), name, "model.flexnn")


def _compile(making: _Making, contents: _Contents, before: Status) -> tuple[list[str] | None, OpenFile | None]:
    """Make the artifact of these ``contents``, and hold it; return the names of the files beside the model, None: one
    of them changed.
    """
    model, shapes, opened, progress, waited = making
    beside, started_ns = os.path.dirname(model), time.time_ns()
    rest = None
    with _scratch() as made:
        if waited is None or (contents.is_hashed and _was_left(opened, contents.key())):
            externals = compile_to(model, made, shapes, progress, digest=contents.digest(), lasting=False)
        else:
            process, waited.beside = waited.beside, None  # it reads once
            externals, rest = compile_first(model, made, shapes, progress, contents.digest, waited.told, process)
        paths = [os.path.join(beside, external) for external in externals]
        digests = dict(zip(externals, (sha256(path).hex() for path in paths), strict=True))
        if any(status_of(path)[-1] >= started_ns - SETTLED_NS for path in paths):
            return None, None
        os.chmod(made, 0o600)
        with contextlib.closing(own_folder(os.path.dirname(made))) as own:
            file = held(own.fd, os.path.basename(made))
        key = contents.key()
        _place(opened, made, key + ARTIFACT)
    entry: dict[str, Any] = {
        "model": os.path.abspath(model),
        SIZE: before[2],
        "externals": digests,
        "status": entry_status(opened.fd, key + ARTIFACT),
    }
    if waited is not None and rest is not None:
        entry[LEFT] = time.time()
        waited.rest = partial(_complete, key, rest)
    _write(opened, key + ENTRY, entry)
    return externals, file


def aside(work: Callable[[], None]) -> None:
    """Do ``work`` in a thread that takes only time which nobody else wants, and wait for it. Raises what it raises.

    A process that has taken the lowest priority does not get back another one, and may then hold a lock for minutes.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)  # of a thread, on Linux
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _place(opened: OpenFile, made: str, name: str) -> None:
    """Give an artifact that was made its name in the open folder. Raises OSError."""
    try:
        os.rename(made, name, dst_dir_fd=opened.fd)
    except IsADirectoryError as error:  # not made here, so not removed
        path = os.path.join(folder(), name)
        raise IsADirectoryError(error.errno, "a folder lies in a kept artifact's place; remove it", path) from None


def _was_left(opened: OpenFile, key: str) -> bool:
    """Return whether an artifact was not completed: another one would not be, either."""
    try:
        return LEFT in read_entry(opened.fd, key + ENTRY)
    except (OSError, ValueError):
        return False


def _complete(key: str, rest: Callable[[str], None]) -> None:
    """Replace the artifact under ``key`` by the complete one that ``rest`` writes, if it is still there.

    Only ``rest`` is done when nobody else wants the CPU: who opens the model may wait for the lock on its key.
    """
    with contextlib.closing(open_folder()) as opened, _locked(opened, key, LATER), _scratch() as made:
        before = read_entry(opened.fd, key + ENTRY)
        aside(lambda: rest(made))
        os.chmod(made, 0o600)
        with _locked(opened, key):
            entry = read_entry(opened.fd, key + ENTRY)
            if entry != before or entry["status"] != entry_status(opened.fd, key + ARTIFACT):
                return
            noted = _notes(opened, key + ARTIFACT)
            _place(opened, made, key + ARTIFACT)
            del entry[LEFT]
            entry["status"] = entry_status(opened.fd, key + ARTIFACT)
            _write(opened, key + ENTRY, entry)
            for name, note in noted.items():
                note.pop(LEFT, None)
                _write(opened, name, note | {"status": entry["status"]})


def _notes(opened: OpenFile, artifact: str) -> dict[str, dict[str, Any]]:
    """Return the entries that lead to an artifact as it is, by their names."""
    status, found = entry_status(opened.fd, artifact), {}
    for one in _own_files(opened, STATUS):
        with contextlib.suppress(OSError, ValueError):
            entry = read_entry(opened.fd, one.name)
            if entry.get("artifact") == artifact and entry.get("status") == status:
                found[one.name] = entry
    return found


def _note(opened: OpenFile, key: str, name: str, externals: dict[str, Status]) -> None:
    entry: dict[str, Any] = {"artifact": name, "status": entry_status(opened.fd, name), "externals": externals}
    with contextlib.suppress(OSError, ValueError, KeyError):
        entry[LEFT] = read_entry(opened.fd, name.removesuffix(ARTIFACT) + ENTRY)[LEFT]
    _write(opened, key + STATUS, entry)


def _write(opened: OpenFile, name: str, entry: dict[str, Any]) -> None:
    import json

    with replacing_in(opened.fd, name, 0o600, lasting=False) as file:
        file.write(json.dumps(entry).encode())


@contextlib.contextmanager
def _locked(opened: OpenFile, key: str, file: str = LOCK) -> Iterator[None]:
    """Wait until no other process makes what has this key; of what is left for later, one thing is made at a time."""
    lock = OpenFile(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=opened.fd)
    with contextlib.suppress(OSError):  # a system without locks makes twice what two ask for
        fcntl.lockf(lock.fd, fcntl.LOCK_EX, 1, int(key[:15], 16) if file == LOCK else 0)
    try:
        yield
    finally:
        lock.close()


def kept(opened: OpenFile) -> list[Kept]:
    """Return the artifacts in the open folder, those used longest ago first."""
    found = []
    for entry in _own_files(opened, ARTIFACT):
        known = entry.name.removesuffix(ARTIFACT) + ENTRY
        model, used = "", 0.0
        with contextlib.suppress(OSError, ValueError):
            used = os.stat(known, dir_fd=opened.fd, follow_symlinks=False).st_mtime
            model = str(read_entry(opened.fd, known).get("model", ""))
        found.append(Kept(entry.name, model, entry.stat(follow_symlinks=False).st_size, used))
    return sorted(found, key=lambda kept: kept.used)


def _own_files(opened: OpenFile, end: str) -> list[os.DirEntry[str]]:
    """Return this user's files in the open folder whose names end so; each remembers its status."""
    found = []
    with os.scandir(opened.fd) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                if entry.name.endswith(end) and is_own(entry.stat(follow_symlinks=False)):
                    found.append(entry)
    return found


def most_bytes(opened: OpenFile) -> int:
    """Return the bytes of artifacts that may be kept. Raises ValueError where FLEXNN_CACHE is no size."""
    given = os.environ.get("FLEXNN_CACHE")
    if given:
        return parse_bytes(given)
    system = os.fstatvfs(opened.fd)
    return min(MOST_BYTES, system.f_blocks * system.f_frsize // MOST_PART)


def _drop_old(opened: OpenFile, newest: str) -> None:
    """Remove artifacts used longest ago until the others are few enough, and statuses that are many."""
    artifacts = kept(opened)
    total, most = sum(one.nbytes for one in artifacts), most_bytes(opened)
    for one in artifacts:
        if total > most and one.name != newest and _remove(opened, one):
            total -= one.nbytes
    statuses = _own_files(opened, STATUS)
    for entry in sorted(statuses, key=lambda e: e.stat(follow_symlinks=False).st_mtime)[:-STATUSES_MAX]:
        _unlink(opened, entry.name)


def clear(opened: OpenFile) -> list[Kept]:
    """Remove all artifacts but those that sessions are just about to open; return them."""
    removed = [one for one in kept(opened) if _remove(opened, one)]
    for entry in (*_own_files(opened, STATUS), *_own_files(opened, ENTRY)):
        _unlink(opened, entry.name)
    return removed


def _remove(opened: OpenFile, one: Kept) -> bool:
    """Remove an artifact, unless a session is just about to open it; return whether it is gone."""
    is_gone = remove(opened.fd, one.name)
    if is_gone:
        _unlink(opened, one.name.removesuffix(ARTIFACT) + ENTRY)
    return is_gone


def _unlink(opened: OpenFile, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=opened.fd)
