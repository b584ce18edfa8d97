"""The spill file of a session: it has no name, nobody else may read it, and its size is taken when a plan needs it."""

from __future__ import annotations

import errno
import os

from flexnn import _core
from flexnn.units import format_bytes

from .engine import SessionError

_UNNAMED_REFUSED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""Errors of file systems and old kernels that have no files without a name."""
_TRIES = 16


class SpillFile:
    """A file in ``folder`` for activations. With ``io`` "direct", reads go past the page cache where the file system
    supports it. Raises OSError where no file can be made there, ValueError where files are memory.
    """

    def __init__(self, folder: str, io: str) -> None:
        self.folder = folder
        self._size = 0
        self._file = _opened(folder)
        self._direct: _core.OpenFile | None = None
        try:
            if _core.is_memory_file(self._file.fd):
                raise ValueError(f"spill is {folder!r}, whose files are kept in memory: name a folder on a device")
            if io == "direct":
                self._direct = self._opened_direct()
        except BaseException:
            self.close()
            raise

    @property
    def fd(self) -> int:
        """Descriptor, for writing and reading."""
        return self._file.fd

    @property
    def direct_fd(self) -> int:
        """Descriptor with O_DIRECT, for reading, or -1."""
        return self._direct.fd if self._direct is not None else -1

    @property
    def files(self) -> tuple[_core.OpenFile, ...]:
        """The open files."""
        return (self._file,) if self._direct is None else (self._file, self._direct)

    def reserve(self, nbytes: int) -> None:
        """Take ``nbytes`` on the device, and give back what is beyond. Raises SessionError if there is no room."""
        try:
            if nbytes > self._size:
                os.posix_fallocate(self.fd, 0, nbytes)
            elif nbytes < self._size:
                os.ftruncate(self.fd, nbytes)
        except OSError as error:
            os.ftruncate(self.fd, self._size)
            need = format_bytes(nbytes)
            raise SessionError(f"{self.folder}: no room for a spill file of {need}: {error.strerror}") from None
        self._size = nbytes

    def close(self) -> None:
        """Close the file, which is then gone; twice is fine."""
        if self._direct is not None:
            self._direct.close()
        self._file.close()

    def _opened_direct(self) -> _core.OpenFile | None:
        try:
            return _core.OpenFile(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_DIRECT)
        except OSError:
            return None


def _opened(folder: str) -> _core.OpenFile:
    try:
        return _core.OpenFile(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno not in _UNNAMED_REFUSED or not os.path.isdir(folder):
            raise
    for _ in range(_TRIES):
        path = os.path.join(folder, f".flexnn-spill-{os.getpid()}-{os.urandom(8).hex()}")
        try:
            file = _core.OpenFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        os.unlink(path)
        return file
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
