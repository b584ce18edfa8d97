"""Control groups of this process that limit memory, of version 1 or 2: each of the nested ones counts."""

from __future__ import annotations

import os

from .files import SystemFile, counted

NO_LIMIT = 1 << 60
"""Limits from here on are none; version 1 writes 2**63 less a page."""


class ControlGroup:
    """A control group, in the folder of its files."""

    def __init__(self, folder: str, *, is_v1: bool) -> None:
        limits = ("memory.limit_in_bytes",) if is_v1 else ("memory.max", "memory.high")
        self._limits = [SystemFile(os.path.join(folder, name)) for name in limits]
        self._usage = SystemFile(os.path.join(folder, "memory.usage_in_bytes" if is_v1 else "memory.current"))
        self._counts = SystemFile(os.path.join(folder, "memory.stat"))
        self._events = SystemFile(os.path.join(folder, "memory.failcnt" if is_v1 else "memory.events"))
        self._pressure = SystemFile(os.path.join(folder, "memory.pressure"))
        kind = b"total_" if is_v1 else b""
        self._idle, self._recent = kind + b"inactive_file", kind + b"active_file"
        self.limit: int | None = None
        """Bytes that the group may have, as it was looked up last; None: any."""
        self.look_up()

    def look_up(self) -> int | None:
        """Return the limit as it is now: that at which the kernel kills, or slows the group down."""
        limits = [limit for file in self._limits if (limit := file.number()) is not None and 0 <= limit < NO_LIMIT]
        self.limit = min(limits, default=None)
        return self.limit

    def free(self) -> int:
        """Return the bytes up to the limit, those of the page cache taken."""
        usage = self._usage.number()
        return NO_LIMIT if usage is None or self.limit is None else self.limit - usage

    def cached(self) -> int:
        """Return the bytes of the page cache that the kernel takes back without harm: all pages that were read once,
        half of those that were read again.
        """
        fields = self._counts.fields()
        return counted(fields, self._idle) + counted(fields, self._recent) // 2

    def hits(self) -> int:
        """Return how often the group met its limit."""
        number = self._events.number()
        return counted(self._events.fields(), b"high", b"max", b"oom") if number is None else number

    def stalled_us(self) -> int | None:
        """Return the time that something in the group waited for memory, in us; None where the kernel does not say."""
        return stalled_us(self._pressure)

    def close(self) -> None:
        """Give the descriptors back."""
        for file in (*self._limits, self._usage, self._counts, self._events, self._pressure):
            file.close()


def stalled_us(file: SystemFile) -> int | None:
    """Return the total of the line ``some`` of a file of pressures."""
    for line in file.text().splitlines():
        if line.startswith(b"some "):
            total = line.rpartition(b"total=")[2]
            return int(total) if total.isdigit() else None
    return None


def own_groups(root: str = "/") -> list[ControlGroup]:
    """Return the groups of this process that have a limit, the outermost first; ``root`` stands for / in tests."""
    found = []
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        folder = os.path.join(root, "sys/fs/cgroup", "memory" if controllers else "")
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            one = ControlGroup(os.path.join(folder, *parts[:depth]), is_v1=bool(controllers))
            if one.limit is None:
                one.close()
            else:
                found.append(one)
    return found


def group_limit(root: str = "/") -> int | None:
    """Return the bytes that the strictest control group allows this process; None without a limit."""
    groups = own_groups(root)
    limits = [group.limit for group in groups if group.limit is not None]
    for group in groups:
        group.close()
    return min(limits, default=None)


def _lines(path: str) -> list[str]:
    file = SystemFile(path)
    try:
        return file.text().decode(errors="surrogateescape").splitlines()
    finally:
        file.close()
