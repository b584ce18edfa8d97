"""Memory that this process may still take: the least of what its control groups, the system and RLIMIT_AS leave."""

from __future__ import annotations

import os
import resource

from .files import SystemFile, counted
from .groups import NO_LIMIT, own_groups, stalled_us

PRESSED = 0.1
"""Part of the time that something waits for memory, from which on memory is short."""
PRESSED_NS = 100_000_000
"""Time over which that part is taken."""
SHORT_PART = 5
"""Pressure of the whole system counts where less than one part in so many of its memory is available: groups that meet
limits of their own add to it, too.
"""


HALF = "half of the free memory"
"""Most memory for arrays that users name, or whose shapes they do."""


def half_of_free() -> int:
    """Return half of the bytes that this process may still take."""
    limits = Limits()
    try:
        return limits.free() // 2
    finally:
        limits.close()


class Limits:
    """Readers of what limits this process; ``root`` stands for / in tests."""

    def __init__(self, root: str = "/") -> None:
        self._groups = own_groups(root)
        self._memory = SystemFile(os.path.join(root, "proc/meminfo"))
        self._process = SystemFile(os.path.join(root, "proc/self/statm"))
        self._pressure = SystemFile(os.path.join(root, "proc/pressure/memory"))
        self._page = os.sysconf("SC_PAGESIZE")
        fields = self._memory.fields()
        self._total = counted(fields, b"MemTotal") << 10 or NO_LIMIT
        self.tightest = ""
        """Name of what leaves least, as ``free`` found it."""
        self._stalls, self._hits = self._stall_us(), [group.hits() for group in self._groups]
        self._since_ns = 0
        self._is_pressed = False

    @property
    def whole(self) -> int:
        """Bytes that this process could have if it were alone: the least limit."""
        limits = [limit for group in self._groups if (limit := group.look_up()) is not None]
        return min([self._total, _address_limit() or self._total, *limits])

    def at_once(self) -> int:
        """Return the bytes that the control groups leave without taking pages from the page cache. It is cheap."""
        return min([group.free() for group in self._groups], default=NO_LIMIT)

    def free(self) -> int:
        """Return the bytes that may be taken now."""
        fields = self._memory.fields()
        least = counted(fields, b"MemAvailable") << 10 if fields else NO_LIMIT
        self.tightest = "of the system's memory"
        for group in self._groups:
            limit = group.look_up()
            if limit is not None and (left := group.free() + group.cached()) < least:
                least, self.tightest = left, f"up to the control group's limit of {limit >> 20} MiB"
        most = _address_limit()
        words = self._process.text().split() if most is not None else []
        if most is not None and words and (left := most - int(words[0]) * self._page) < least:
            least, self.tightest = left, "up to RLIMIT_AS"
        return least

    def resident(self) -> int:
        """Return the bytes of this process that are in memory."""
        words = self._process.text().split()
        return int(words[1]) * self._page if len(words) > 1 else 0

    def pressed(self, now_ns: int, reserve: int) -> bool:
        """Return whether memory is short by what the kernel says: something waits for it for a good part of the time,
        or a group meets its limit that has less than the reserve of page cache.
        """
        elapsed = now_ns - self._since_ns
        if elapsed < PRESSED_NS:
            return self._is_pressed
        hits, stalls = [group.hits() for group in self._groups], self._stall_us()
        waits = [new - old for new, old in zip(stalls, self._stalls, strict=True)]
        if not self._is_short():
            waits[-1] = 0
        met = [group for group, new, old in zip(self._groups, hits, self._hits, strict=True) if new > old]
        is_met = any(group.cached() < reserve for group in met)
        self._is_pressed = bool(self._since_ns) and (is_met or max(waits) * 1000 > PRESSED * elapsed)
        self._hits, self._stalls, self._since_ns = hits, stalls, now_ns
        return self._is_pressed

    def _stall_us(self) -> list[int]:
        """Return how long something waited in each group, and in the whole system."""
        return [*(group.stalled_us() or 0 for group in self._groups), stalled_us(self._pressure) or 0]

    def _is_short(self) -> bool:
        return counted(self._memory.fields(), b"MemAvailable") << 10 < self._total // SHORT_PART

    def close(self) -> None:
        """Give the descriptors back."""
        for group in self._groups:
            group.close()
        for file in (self._memory, self._process, self._pressure):
            file.close()


def _address_limit() -> int | None:
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if most == resource.RLIM_INFINITY else most
