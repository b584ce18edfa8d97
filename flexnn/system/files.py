"""Small files of /proc and /sys that are read again and again: kept open, and read whole."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flexnn._core import OpenFile

FILE_BYTES_MAX = 1 << 14
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
"""Errors after which a file may be there: it must not count as one that says nothing, as no limit would."""


class SystemFile:
    """A file that a kernel writes. One that is not there, or that may not be read, has no text. Raises OSError where it
    cannot be opened for another reason.
    """

    def __init__(self, path: str) -> None:
        from flexnn._core import OpenFile  # which imports numpy: a process that compiles does so later

        self._file: OpenFile | None = None
        self._last = b""
        try:
            self._file = OpenFile(path, os.O_RDONLY)
        except OSError as error:
            if error.errno in _SHORT:
                raise

    def text(self) -> bytes:
        """Return what the file says now; what it said last where reading fails for once."""
        if self._file is not None and self._file.fd >= 0:
            try:
                self._last = os.pread(self._file.fd, FILE_BYTES_MAX, 0)
            except OSError as error:
                self._last = self._last if error.errno in _SHORT else b""
        return self._last

    def number(self) -> int | None:
        """Return the number that is all of the file; None: it is none."""
        try:
            return int(self.text())
        except ValueError:
            return None

    def fields(self) -> dict[bytes, bytes]:
        """Return the second word of each line by the first."""
        lines = [line.split(None, 2) for line in self.text().splitlines()]
        return {line[0].rstrip(b":"): line[1] for line in lines if len(line) > 1}

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._file.close()


def counted(fields: dict[bytes, bytes], *names: bytes) -> int:
    """Return the sum of the numbers of these names; those that are missing count as 0."""
    return sum(int(fields[name]) for name in names if fields.get(name, b"").isdigit())
