"""The time that only reading takes what a plan streams: what the device lets no runtime do faster.

Reads the plan's loads, in the loader's pieces and with as many readers as it has past the page cache, to the addresses
that the plan gives them in an arena of its size, on huge pages as the session's is. Nothing is computed, checked or
waited for beside it. One word of each line is looked at, since nobody reads what nobody looks at: a device that a host
emulates copies into memory, and more slowly into lines that another core's cache holds (2.9 GB/s instead of
3.2, docs/decisions/0063-latency-of-reads.md).
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.summary import median

if TYPE_CHECKING:
    import flexnn
    from flexnn.planning import Plan

READERS, PIECE_BYTES_MAX = 3, 5 << 18
"""Readers and the largest request, equal to those of engine/loader.h and loader.c."""
PAGE, HUGE, LINE_WORDS = 4096, 2 << 20, 8
ROUNDS = 7


def read_alone(plan: Plan, direct_fd: int) -> float:
    """Milliseconds for one run's loads from ``direct_fd``, the artifact opened with O_DIRECT: the median of rounds."""
    pieces = [
        piece
        for load in plan.loads
        for piece in _pieces(int(load["file_offset"]), int(load["bytes"]), int(load["address"]))
    ]
    size = -(-max(plan.arena_bytes, PAGE) // PAGE) * PAGE
    with mmap.mmap(-1, size + HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as arena:
        arena.madvise(mmap.MADV_HUGEPAGE)
        before = -(np.frombuffer(arena, np.uint8).ctypes.data + size) % HUGE  # its end lies as the session's does
        view = memoryview(arena)[before : before + size]
        times = [_round(pieces, view, direct_fd) for _ in range(1 + ROUNDS)]
        view.release()
    return median(times[1:]) * 1e3


def device(session: flexnn.Session, path: Path) -> dict[str, Any]:
    """Close the session, in whose place there is room then, and read what its plan streams."""
    plan, bytes_read = session.plan, session.last_run["bytes_read"]
    session.close()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return {"predicted": plan.predicted_ms, "bytes": bytes_read, "read_ms": read_alone(plan, fd)}
    finally:
        os.close(fd)


def _pieces(offset: int, size: int, address: int) -> list[tuple[int, int, int]]:
    """A load in equal pieces of whole pages, as the loader cuts it."""
    count = -(-size // PIECE_BYTES_MAX)
    step = -(-size // max(count, 1) // PAGE) * PAGE
    return [(offset + at, min(step, size - at), address + at) for at in range(0, size, step)]


def _round(pieces: list[tuple[int, int, int]], arena: memoryview, fd: int) -> float:
    left, lock, failures = iter(pieces), threading.Lock(), []

    def read() -> None:
        while True:
            with lock:
                piece = next(left, None)
            if piece is None:
                return
            offset, size, address = piece
            place = arena[address : address + size]
            if os.preadv(fd, [place], offset) != size:
                failures.append(piece)
            np.frombuffer(place, np.uint64)[::LINE_WORDS].sum()

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise OSError(f"{len(failures)} reads were short")
    return time.perf_counter() - start
