"""An open file, read by offset: of a model or of an artifact."""

from __future__ import annotations

import os

from flexnn._core import OpenFile
from flexnn.apart import apart

from .stated import GraphError

CACHED_BYTES = 32 << 20
"""Most bytes that are copied from the page cache at once: no signal is seen meanwhile."""
PART_BYTES = 4 << 20
"""Most bytes that a thread reads at once where the page cache lacks them."""


class Descriptor:
    """An open file that closes with its last user; reading by offset, so the file may be replaced meanwhile.

    ``file`` is what is open; ``fd`` is -1 once it is closed.
    """

    __slots__ = ("file", "path", "size")

    def __init__(self, path: str, flags: int = 0, *, name: str = "", folder: OpenFile | None = None) -> None:
        """Open ``path`` for reading, by its ``name`` in ``folder`` if that is open. Raises OSError."""
        self.path = path
        flags |= os.O_RDONLY
        self.file = OpenFile(path, flags) if folder is None else OpenFile(name, flags, dir_fd=folder.fd)
        self.size = os.fstat(self.file.fd).st_size

    @property
    def fd(self) -> int:
        """The descriptor."""
        return self.file.fd

    def close(self) -> None:
        """Close the file; twice is fine."""
        self.file.close()

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``. Raises GraphError when the file ends before."""
        buffer = bytearray(size)
        self.read_into(memoryview(buffer), offset)
        return bytes(buffer)

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill ``view`` from ``offset``. Raises GraphError when the file ends before."""
        done = 0
        while done < len(view):
            count = self.read_some(view[done:], offset + done)
            if not count:
                raise GraphError(f"{self.path}: ends at byte {offset + done}, {len(view) - done} bytes too early")
            done += count

    def read_some(self, view: memoryview, offset: int) -> int:
        """Fill the first bytes of ``view`` from ``offset``; return how many, 0 at the end of the file. Signals
        interrupt it although the device may not answer: what the page cache lacks, a thread reads.
        """
        try:
            return os.preadv(self.fd, [view[:CACHED_BYTES]], offset, os.RWF_NOWAIT)
        except OSError:
            return _read_apart(self.fd, view[:PART_BYTES], offset)


def _read_apart(fd: int, view: memoryview, offset: int) -> int:
    """Fill ``view`` from ``offset`` in a thread with its own descriptor and buffer; return how many bytes came."""
    own, buffer = OpenFile(f"/proc/self/fd/{fd}", os.O_RDONLY), bytearray(len(view))
    count = apart(lambda: os.preadv(own.fd, [buffer], offset))
    view[:count] = memoryview(buffer)[:count]
    return count
