"""Small files of /proc and /sys that are read again and again: kept open, and read whole."""

from __future__ import annotations

import os
from contextlib import suppress

FILE_BYTES_MAX = 1 << 14


class SystemFile:
    """A file that a kernel writes. One that is not there, or that cannot be read, has no text."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY)

    def text(self) -> bytes:
        """Return what the file says now."""
        if self._fd < 0:
            return b""
        try:
            return os.pread(self._fd, FILE_BYTES_MAX, 0)
        except OSError:
            return b""

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
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def counted(fields: dict[bytes, bytes], *names: bytes) -> int:
    """Return the sum of the numbers of these names; those that are missing count as 0."""
    return sum(int(fields[name]) for name in names if fields.get(name, b"").isdigit())
