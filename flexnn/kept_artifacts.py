"""Artifacts of ONNX files that were opened before, in the user's cache folder: opening one again compiles nothing.

An artifact is found by what the system says of the ONNX file (device, inode, size, times of change), the shapes that
are bound, and the installed FlexNN; only where one of these is new, a process of its own looks at the file's contents
(flexnn/keeping.py), and compiles it if no artifact of them is kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from _blake2 import blake2b
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flexnn._core import OpenFile
from flexnn._core import _core as extension
from flexnn.apart import LOOK_SECONDS
from flexnn.artifact.format import VERSION, ArtifactError, is_onnx
from flexnn.errors import DEFECT, ERROR, NO_MEMORY, CompileError, FlexNNError
from flexnn.files import cache_folder, held, own_folder, read_own

if TYPE_CHECKING:
    from flexnn.staying import Ends

ENTRY_BYTES_MAX = 1 << 20
ARTIFACT, ENTRY, STATUS = ".flexnn", ".json", ".status"
"""Ends of names: of an artifact, of what is known of it, and of a file's status that leads to it."""

LEFT, LEFT_SECONDS = "left", 300
"""In an entry: the time, in seconds since 1970, at which an artifact was kept that a process goes on to complete; and
how long that may take: after that, the process is taken for dead and the artifact is made anew.
"""

TRIES = 3
"""Most times that an artifact is made because it changed, or was removed, before it could be opened."""
MAKER = "flexnn.maker"
"""Module of that process, which imports this one."""
START = f"""import sys
flexnn = sys.modules["flexnn"] = type(sys)("flexnn")
flexnn.__path__ = sys.argv[1:-1]
from {MAKER} import start
start()"""
"""The program of that process. It does without what the package's own module imports, which is for sessions."""
TERMINAL = 9
"""Descriptor on which the process that compiles shows its progress."""
ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""Environment of that process: numpy starts threads that it never uses, which takes as long as importing half of it."""
Shapes = Mapping[str, tuple[int, ...]]
Heard = Callable[[str], None]
Status = list[int]
"""Device, inode, bytes, and times of the last change of the contents and of the inode in ns."""


def open_folder() -> OpenFile:
    """Open the folder of artifacts, and make it where it is missing. Raises OSError."""
    own_folder(cache_folder(), make=True).close()
    return own_folder(folder(), make=True)


def folder() -> str:
    """Return the path of the folder of artifacts."""
    return os.path.join(cache_folder(), "artifacts")


def status_of(path: str) -> Status:
    """Return the status of a plain file that this process may read. Raises OSError, CompileError."""
    file = OpenFile(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not make us wait
    found = os.fstat(file.fd)
    if not stat.S_ISREG(found.st_mode):
        raise CompileError(f"{path}: not a regular file")
    return _fields(found)


def entry_status(folder: int, name: str) -> Status:
    """Return the status of an entry of an open folder. Raises OSError."""
    return _fields(os.stat(name, dir_fd=folder, follow_symlinks=False))


def _fields(found: os.stat_result) -> Status:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def key_of(subject: object, shapes: Shapes) -> str:
    """Return the name, without its end, for what is known of ``subject`` under these shapes by this build."""
    build = os.stat(extension.__file__)  # a version may be built twice while it is worked on
    bound = sorted((name, tuple(dims)) for name, dims in shapes.items())
    text = repr((VERSION, build.st_ino, build.st_mtime_ns, bound, subject))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def read_entry(folder: int, name: str) -> dict[str, Any]:
    """Return an entry of an open folder. Raises OSError, or ValueError where it is damaged."""
    from flexnn.graph.parsed import parsed

    found = parsed(read_own(folder, name, ENTRY_BYTES_MAX), 2 * ENTRY_BYTES_MAX)
    if not isinstance(found, dict):
        raise ValueError("not an entry")
    return found


def find(model: str, shapes: Shapes, opened: OpenFile) -> str | None:
    """Return the name of the artifact of ``model`` in the open folder; None: it is to be made. Raises OSError and
    CompileError about the model.
    """
    return _noted(key_of(status_of(model), shapes), os.path.dirname(model), opened)


def _noted(key: str, beside: str, opened: OpenFile) -> str | None:
    """Return the name of the artifact that is noted under ``key``, while it is what it was; ``beside``: the folder of
    files that hold weights.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        entry = read_entry(opened.fd, key + STATUS)
        name = str(entry["artifact"])
        if (
            name.endswith(ARTIFACT)
            and "/" not in name
            and not is_left(entry)
            and entry["status"] == entry_status(opened.fd, name)
            and all(status == status_of(os.path.join(beside, other)) for other, status in entry["externals"].items())
        ):
            os.utime(name.removesuffix(ARTIFACT) + ENTRY, dir_fd=opened.fd, follow_symlinks=False)  # it was used
            return name
    return None


def is_left(entry: Mapping[str, Any]) -> bool:
    """Return whether nobody completes any more what an entry says is left. Raises TypeError for a damaged one."""
    return LEFT in entry and abs(time.time() - entry[LEFT]) > LEFT_SECONDS


@contextlib.contextmanager
def compiled(
    model: str,
    shapes: Shapes,
    damage: tuple[type[FlexNNError], ...] = (),
    *,
    shown: bool = False,
    heard: Heard | None = None,
) -> Iterator[str]:
    """Return the path of an artifact of ``model`` for as long as the context lasts: ``model`` itself, unless it is an
    ONNX file. An ArtifactError or another kind of ``damage`` removes it. Raises CompileError, OSError.

    A process of its own compiles an ONNX file, so that the memory of onnx never becomes part of this process. Its
    progress is ``shown`` where standard error is a terminal. While it goes on, ``heard`` is called with "open" or
    "bound", when it is known which the model is.
    """
    if not is_onnx(model):
        yield model
        return
    with contextlib.closing(open_folder()) as opened:
        made = partial(_made, model, shapes, shown=shown, heard=heard)
        with _watched(opened, lambda: find(model, shapes, opened) or made(), damage) as path:
            yield path


@contextlib.contextmanager
def _watched(opened: OpenFile, named: Callable[[], str], damage: tuple[type[FlexNNError], ...]) -> Iterator[str]:
    """Give the path of a kept artifact, by the name that ``named`` finds. It stays for as long as the context lasts,
    whatever other processes make, unless it turns out to be damaged: then it is removed.
    """
    for _ in range(TRIES):
        name = named()
        file = held(opened.fd, name)
        if file is not None:
            break
    else:
        raise CompileError(f"{folder()}: others remove artifacts before they are opened; is FLEXNN_CACHE small?")
    path = os.path.join(folder(), name)
    try:
        yield path
    except FlexNNError as error:
        if isinstance(error, (ArtifactError, *damage)):
            discard(path)
        raise
    finally:
        file.close()
        _reap()


def discard(path: str, inode: int | None = None) -> None:
    """Remove a kept artifact whose bits changed without a trace, if ``path`` is one and has this inode: it is made anew
    when its model is opened again.
    """
    with contextlib.suppress(OSError):
        if os.path.dirname(path) == folder() and inode in (None, os.lstat(path).st_ino):
            os.unlink(path)


@contextlib.contextmanager
def compiled_bytes(
    model: bytes, damage: tuple[type[FlexNNError], ...] = (), *, heard: Heard | None = None
) -> Iterator[str]:
    """Return the path of an artifact of an ONNX model in memory for as long as the context lasts. What ``compiled``
    removes, this does, too; ``heard`` is what it is there. Raises CompileError, OSError.
    """
    from flexnn.files import scratch

    with contextlib.closing(open_folder()) as opened:
        key = key_of(blake2b(model).hexdigest(), {})

        def made() -> str:
            with (
                contextlib.closing(own_folder(cache_folder())) as base,
                scratch(base.fd, "bytes-", ("model.onnx",)) as name,
            ):
                path = os.path.join(cache_folder(), name, "model.onnx")
                with open(path, "xb") as file:
                    file.write(model)
                return _made(path, {}, key, heard=heard)

        with _watched(opened, lambda: _noted(key, "", opened) or made(), damage) as path:
            yield path


def _made(
    model: str, shapes: Shapes, note: str | None = None, *, shown: bool = False, heard: Heard | None = None
) -> str:
    """Have the artifact of ``model`` made and kept, and noted under a further key; return its name. Raises
    CompileError.
    """
    shown = shown and sys.stderr is not None and sys.stderr.isatty()
    bound = {name: list(dims) for name, dims in shapes.items()}
    asked = {"model": model, "shapes": bound, "note": note or "", "terminal": TERMINAL if shown else None}
    last = _believed(0, "" if shown else _asked_again(asked, heard)) or copied(asked, shown=shown, heard=heard)
    if not last:
        status, last = _made_anew(asked, shown=shown, heard=heard)
        if status and not last.startswith(ERROR):
            last = f"{ERROR}{last or f'compiling ended with status {status}'}"
    if last.startswith(ERROR):
        raise CompileError(last.removeprefix(ERROR))
    name = os.path.basename(last)
    if not name.endswith(ARTIFACT):
        raise OSError(errno.EIO, "compiling printed no artifact", model)
    return name


def _made_anew(asked: dict[str, Any], *, shown: bool, heard: Heard | None) -> tuple[int, str]:
    """Have a new process make the artifact that is ``asked`` for; return its status and the last line that it prints.
    It stays for more. Raises CompileError, OSError.
    """
    import json

    from flexnn import staying  # few sessions run a process

    ends = None
    with contextlib.suppress(OSError):
        ends = staying.offered()
    try:
        stays = {"stays": ends is not None}
        status, said = spawned([*maker(), json.dumps(asked | stays)], shown=shown, heard=heard, ends=ends)
    finally:
        if ends is not None:
            ends.close()
    return status, _last_line(said)


def _is_made(said: bytes) -> bool:
    """Return whether a process has said the name of an artifact, which is the last that it says, and no reason that
    ends in another one's.
    """
    name = _last_line(said)
    return said.endswith(b"\n") and name.endswith(ARTIFACT) and name.removesuffix(ARTIFACT).isalnum()


def _last_line(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape").rstrip().rpartition("\n")[2]


def maker() -> list[str]:
    """Return the command of the process that makes artifacts, without what it is asked for. Raises CompileError."""
    if not sys.executable:  # where another program has Python inside
        raise CompileError("sys.executable does not say which Python is to compile: set it, or compile the model first")
    return [sys.executable, "-P", "-c", START, *sys.modules["flexnn"].__path__]


_ending: list[int] = []
"""Processes that have made an artifact and are about to end."""


def _reap() -> None:
    """Wait for the ends of processes that have said all; other threads may do so, too."""
    while _ending:
        with contextlib.suppress(IndexError):
            process = _ending.pop()
            try:
                _status_of(process)
            except BaseException:
                _ending.append(process)
                raise


def _status_of(process: int) -> int:
    """Wait for the end of a process; return its status, 0 where the system does not keep it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except ChildProcessError:  # SIGCHLD is ignored
        return 0


def _read_when_ready(reads: int) -> bytes:
    """Return what a pipe has next, and look for signals meanwhile: reading would not end for one that came just before,
    or that another thread got.
    """
    import select  # few sessions run a process

    while not select.select([reads], [], [], LOOK_SECONDS)[0]:
        pass
    return os.read(reads, 1 << 16)


def spawned(
    command: list[str], *, shown: bool = False, heard: Heard | None = None, ends: Ends | None = None
) -> tuple[int, bytes]:
    """Run a process without input; return its status and all that it prints. The module subprocess would take memory
    of the session's budget. If progress is ``shown``, descriptor TERMINAL is this process's standard error. ``heard``
    is called with the first line while the process runs. ``ends``: descriptors by which it is asked for more.
    """
    import signal  # few sessions run a process

    from flexnn.staying import HERE

    def begin(writes: int) -> int:
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions.append((os.POSIX_SPAWN_DUP2, writes, 1))  # first: the pipe may have the number TERMINAL
        if shown:
            actions.append((os.POSIX_SPAWN_DUP2, 2, TERMINAL))
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
        for fd, here in zip((ends.asked, ends.answers) if ends is not None else (), HERE, strict=False):
            actions.append((os.POSIX_SPAWN_DUP2, fd, here))
        environment = {**os.environ, **ALONE}
        usual = [signal.SIGCHLD]  # where it is ignored, as daemons do, the system keeps no status of processes that end
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setsigdef=usual)

    return _said(begin, heard)


def copied(asked: dict[str, Any], *, shown: bool = False, heard: Heard | None = None) -> str:
    """Have a copy of this process make the artifact that is ``asked`` for; return the last line that it prints. "": a
    new process has to make it, as no copy can, or as it failed for another reason than the model. ``shown`` and
    ``heard`` are as for ``spawned``.
    """
    from flexnn import forking, staying  # few sessions run a process

    if not forking.may_copy():
        return ""
    ends = None

    def work() -> int:
        import importlib

        return int(importlib.import_module(MAKER).main(asked, ends))

    try:
        ends = staying.offered()
        kept = (ends.asked, ends.answers) if ends is not None else ()
        status, said = _said(lambda writes: forking.copied(work, writes, TERMINAL if shown else None, kept), heard)
    except (OSError, RuntimeError):  # no memory or number is left for a process, or this is an inner interpreter
        return ""
    finally:
        if ends is not None:
            ends.close()
    return _believed(status, _last_line(said))


def _asked_again(asked: dict[str, Any], heard: Heard | None) -> str:
    """Return what a process says that stayed for more models, "" where none did."""
    staying = sys.modules.get("flexnn.staying")  # no process stays before it is imported
    return str(staying.ask(asked, heard)) if staying is not None else ""


def _believed(status: int, last: str) -> str:
    """Return the last line of a copy if it says what a new process would say, too, else nothing."""
    is_models = last.startswith(ERROR) and not last.startswith((DEFECT, NO_MEMORY))  # the copy holds the program, too
    return last if is_models or (not status and last.endswith(ARTIFACT)) else ""


def _said(begin: Callable[[int], int], heard: Heard | None) -> tuple[int, bytes]:
    """Wait for a process that ``begin`` starts, which prints to the descriptor that it is given; return its status, and
    all that it printed. ``heard`` is called with the first line while the process runs. When it has said the name of an
    artifact it is believed: it ends while that is opened.
    """
    _reap()  # a call that was interrupted may have left one
    reads, writes = os.pipe()
    try:
        process = begin(writes)
        os.close(writes)
        writes = -1
        said = b""
        try:
            while block := _read_when_ready(reads):
                if heard is not None and b"\n" not in said and b"\n" in block:
                    heard((said + block).partition(b"\n")[0].decode("utf-8", "replace"))
                said += block
                if _is_made(said):
                    _ending.append(process)
                    return 0, said
        except BaseException:
            os.kill(process, 9)
            _status_of(process)
            raise
        return _status_of(process), said
    finally:
        for fd in (reads, writes):
            if fd >= 0:
                os.close(fd)
