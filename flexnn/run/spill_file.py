"""The spill file of a session: it has no name, nobody else may read it, and its size is taken when a plan needs it."""

from __future__ import annotations

import os

from flexnn import _core, files
from flexnn.units import format_bytes

from .engine import SessionError


class SpillFile:
    """A file in ``folder`` for activations. With ``io`` "direct", reads go past the page cache where the file system
    supports it. Raises OSError where no file can be made there, ValueError where files are memory.
    """

    def __init__(self, folder: str, io: str) -> None:
        self.folder = folder
        self._size = 0
        self._file = files.unnamed(folder)
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
