"""Files and folders that other threads, processes and users may touch at the same time.

A file is replaced whole: it is written under a name that nobody else uses, or under none, and then renamed. What a
killed process left behind is told from what is still written by a lock on it (flock), not by a process number: two
containers have the same numbers. Nothing is removed that was not made here, and no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

from flexnn._core import OpenFile

TEMPORARY = ".flexnn-tmp-"
"""Part of the name of a file that is being written, between the name that it will get and a random number."""
UNNAMED = ".flexnn-spill-"
"""Beginning of the name of a file that is to have none, before a random number."""
ENTRIES_MAX = 4096
"""Most entries of a folder that are looked at when leftovers are swept."""
_DIGITS = 32
"""Hexadecimal digits of a random number in a name."""
_KEPT_CHARACTERS = 48
"""Characters of the later name in the name of a new file: names are at most 255 bytes long."""
_TRIES = 64
"""Most new files that are made for one: others who write beside may sweep each between its making and its lock."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_ITSELF = os.O_NOFOLLOW | os.O_NONBLOCK  # no link, and no wait for a FIFO's other end
_NAMELESS = os.O_TMPFILE
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
"""Errors of systems that have no files without a name."""


@contextlib.contextmanager
def replacing(path: str, *, lasting: bool = True, buffering: int = -1) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``path``, whole, when the block ends without an error; if it is to be
    ``lasting``, the disk has it then. Otherwise ``path`` stays as it was. ``buffering``: as for ``open``. Raises
    OSError, which names ``path`` where it is about the new file.
    """
    parent, name = os.path.split(path)
    with _naming(path):
        folder = _parent(parent or ".")
    with replacing_in(folder.fd, name, 0o666, path, lasting=lasting, buffering=buffering) as file:
        yield file


@contextlib.contextmanager
def replacing_in(
    folder: int, name: str, mode: int, path: str | None = None, *, lasting: bool = True, buffering: int = -1
) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``name`` in an open folder, as ``replacing`` does."""
    path = path or name
    with _naming(path):
        _sweep_files(folder, name)
    made = _New(folder, name)
    try:
        with _naming(path):
            file = open(made.open(mode), "wb", buffering, closefd=False)  # noqa: SIM115 (its errors are named apart)
        try:
            with file:
                yield file
        except OSError as error:
            if error.filename is None and error.errno in _DISK_FULL:  # writing names no file at all
                error.filename = path
            raise
        with _naming(path):
            made.publish(lasting=lasting)
    finally:
        made.close()


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Have OSErrors of the block name what the user asked for."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


class _New:
    """A new file in an open folder, locked while it is open. Only its maker removes it."""

    def __init__(self, folder: int, target: str) -> None:
        self._folder, self._target = folder, target
        self._name = ""
        self._file: OpenFile | None = None

    def open(self, mode: int) -> int:
        """Open the file, without a name where the system has such files; return the descriptor."""
        file = self._nameless(mode)
        for _ in range(_TRIES if file is None else 0):
            self._name = _temporary(self._target)
            file = OpenFile(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode, dir_fd=self._folder)
            if _is_locked(file) is not False and _is_at(self._folder, self._name, file):
                break
            file = None  # swept before it was locked
        if file is None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), self._target)
        self._file = file
        return file.fd

    def _nameless(self, mode: int) -> OpenFile | None:
        try:
            file = OpenFile(".", os.O_RDWR | _NAMELESS, mode, dir_fd=self._folder)
        except OSError as error:
            if error.errno not in _NO_NAMELESS:
                raise
            return None
        return file if os.path.exists(_path(file)) and _is_locked(file) is not False else None

    def publish(self, *, lasting: bool) -> None:
        """Give the file its name, and have the disk keep both if it is to be ``lasting``: what can be made anew, and
        whose readers check it, is worth no wait for the disk.
        """
        assert self._file is not None
        if lasting:
            _sync(self._file.fd)
        if not self._name:
            self._name = _temporary(self._target)
            os.link(_path(self._file), self._name, dst_dir_fd=self._folder)
        os.replace(self._name, self._target, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        if lasting:
            _sync_folder(self._folder)

    def close(self) -> None:
        """Remove the file if it has not got its name, and close it."""
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
        if self._file is not None:
            self._file.close()


def cache_folder() -> str:
    """Return the path of FlexNN's folder among the user's cache folders, or among the temporary files where that one
    cannot be made or written: then a RuntimeWarning says so.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return _usable(os.path.join(home, "flexnn"), os.environ.get("TMPDIR") or "/tmp")


@cache
def _usable(path: str, temporary: str) -> str:
    try:
        own_folder(path, make=True).close()
        if os.access(path, os.W_OK | os.X_OK):
            return path
        why = os.strerror(errno.EACCES)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EPERM):  # a link, or another user's
            return path  # who opens it says what is wrong
        why = str(error.strerror)
    other = os.path.join(temporary, f"flexnn-{os.geteuid()}")
    import warnings

    warnings.warn(f"{path}: {why}; using {other} instead (XDG_CACHE_HOME names another)", RuntimeWarning, stacklevel=2)
    return other


def own_folder(path: str, *, make: bool = False) -> OpenFile:
    """Open a folder that is this user's alone; with ``make``, make it where it is missing. Raises OSError, also where
    it is a link or another user's.
    """
    if make:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
    try:
        folder = OpenFile(path, _FOLDER | os.O_NOFOLLOW)
    except OSError:
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "a link, where a folder of this user's must be", path) from None
        raise
    found = os.fstat(folder.fd)
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the folder belongs to another user", path)
    if stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(folder.fd, 0o700)
    return folder


def read_own(folder: int, name: str, most_bytes: int) -> bytes:
    """Return the bytes of a plain file of this user's in an open folder. Raises OSError where it is none, or has more
    than ``most_bytes``.
    """
    file = OpenFile(name, os.O_RDONLY | _ITSELF, dir_fd=folder)
    found = os.fstat(file.fd)
    if not is_own(found, names=(0, 1)) or found.st_size > most_bytes:  # no name: just replaced
        raise OSError(errno.EINVAL, "not a plain file of this user, or too large", name)
    return os.pread(file.fd, most_bytes, 0)


def held(folder: int, name: str) -> OpenFile | None:
    """Return a file of an open folder, which ``remove`` leaves there for as long as it is open. None: it is not there,
    cannot be opened, or is being removed.
    """
    with contextlib.suppress(OSError):
        file = OpenFile(name, os.O_RDONLY | _ITSELF, dir_fd=folder)
        if _is_locked(file, shared=True) is not False and _is_at(folder, name, file):
            return file
    return None


def unnamed(folder: str) -> OpenFile:
    """Make a file in ``folder`` that this user alone may read, without a name. Where the system has no such files its
    name is gone at once, as are those of files whose makers were killed before that. Raises OSError.
    """
    with _naming(folder):
        parent = _parent(folder)
        try:
            return OpenFile(".", os.O_RDWR | _NAMELESS, 0o600, dir_fd=parent.fd)
        except OSError as error:
            if error.errno not in _NO_NAMELESS:
                raise
        for name in _names(parent.fd, UNNAMED):
            with contextlib.suppress(OSError):
                if is_own(os.stat(name, dir_fd=parent.fd, follow_symlinks=False)):
                    os.unlink(name, dir_fd=parent.fd)
        name = UNNAMED + os.urandom(_DIGITS // 2).hex()
        file = OpenFile(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=parent.fd)
        with contextlib.suppress(FileNotFoundError):  # somebody has just swept it: nobody needs its name
            os.unlink(name, dir_fd=parent.fd)
        return file


def remove(folder: int, name: str) -> bool:
    """Remove a file from an open folder, unless somebody holds it; return whether it is gone."""
    try:
        file = OpenFile(name, os.O_RDONLY | _ITSELF, dir_fd=folder)
        if _is_locked(file) is False:
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def scratch(folder: int, prefix: str, files: tuple[str, ...]) -> Iterator[str]:
    """Make a new folder for ``files`` in an open folder, and remove it and them at the end; yield its name. Remove
    those of the same prefix, too, that killed processes left behind.
    """
    for left in _names(folder, prefix):
        _sweep_scratch(folder, left, files)
    for _ in range(_TRIES):
        name = prefix + os.urandom(_DIGITS // 2).hex()
        os.mkdir(name, 0o700, dir_fd=folder)
        made = OpenFile(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        if _is_locked(made) is not False and _is_at(folder, name, made):
            break  # else it was swept before it was locked
    else:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), prefix)
    try:
        yield name
    finally:
        _empty(made.fd, files)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=folder)
        made.close()


def _sweep_scratch(folder: int, name: str, files: tuple[str, ...]) -> None:
    """Remove a folder that nobody holds, if it has nothing but ``files``."""
    with contextlib.suppress(OSError):
        left = OpenFile(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        if os.fstat(left.fd).st_uid == os.geteuid() and _is_locked(left):
            _empty(left.fd, files)
            os.rmdir(name, dir_fd=folder)


def _empty(folder: int, files: tuple[str, ...]) -> None:
    """Remove ``files`` from an open folder, and what was written to become one of them."""
    for name in files:
        _sweep_files(folder, name)
        with contextlib.suppress(OSError):
            if is_own(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                os.unlink(name, dir_fd=folder)


def _sweep_files(folder: int, target: str) -> None:
    """Remove files that killed processes left behind when they wrote ``target`` in an open folder."""
    for name in _names(folder, _before_number(target)):
        with contextlib.suppress(OSError):
            if is_own(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                left = OpenFile(name, os.O_RDWR | _ITSELF, dir_fd=folder)
                if is_own(os.fstat(left.fd)) and _is_locked(left) and _is_at(folder, name, left):
                    os.unlink(name, dir_fd=folder)


def _names(folder: int, prefix: str) -> list[str]:
    """Return the names in an open folder that are ``prefix`` and a random number, of its first entries."""
    found: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
            number = entry.name.removeprefix(prefix)
            if len(number) == _DIGITS < len(entry.name) and not number.strip("0123456789abcdef"):
                found.append(entry.name)
    return found


def _temporary(target: str) -> str:
    return _before_number(target) + os.urandom(_DIGITS // 2).hex()


def _before_number(target: str) -> str:
    return f".{target[:_KEPT_CHARACTERS]}{TEMPORARY}"


def _path(file: OpenFile) -> str:
    return f"/proc/self/fd/{file.fd}"


def _parent(path: str) -> OpenFile:
    try:
        return OpenFile(path, _FOLDER)
    except PermissionError:  # files may be made in it, but not listed
        return OpenFile(path, _FOLDER | os.O_PATH)


def _is_locked(file: OpenFile, *, shared: bool = False) -> bool | None:
    """Lock an open file; return whether it is locked now: None where the system has no locks."""
    import fcntl

    try:
        fcntl.flock(file.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(folder: int, name: str, file: OpenFile) -> bool:
    """Return whether an entry of an open folder is the open file."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(file.fd))
    except FileNotFoundError:
        return False


def is_own(found: os.stat_result, names: tuple[int, ...] = (1,)) -> bool:
    """Return whether it is a plain file of this user's that has no other name."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink in names


def _sync(fd: int) -> None:
    """Have the disk keep a file. A thread waits for it, which may be busy for seconds, so that Ctrl-C need not."""
    from .apart import apart  # few write files

    apart(lambda: os.fsync(fd))


def _sync_folder(fd: int) -> None:
    try:
        _sync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # file systems and folders that take none
            raise
